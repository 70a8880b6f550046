// Small tensor programs by name: those that the recorded schedules count kernels of, as tensors
// whose values aren't computed yet.
#pragma once

#include <string>
#include <vector>

#include "engine/lazy/lazy_context.h"
#include "engine/tensor/tensor.h"

namespace beamd {

struct Program {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

std::vector<std::string> ProgramNames();
// Inputs are Empty; give them values with Assign or Replace before realising. Failed outputs say
// what went wrong. No outputs: the name isn't known.
Program MakeProgram(const std::string& name, LazyContext& context);

// `count` element-wise operations with a reduction every tenth, on [64, 64]: what
// tinygrad 0.10.0 is timed with.
Program MakeChain(LazyContext& context, int count);

}  // namespace beamd

// What a tensor graph of numbers computes, a node and an element at a time: to compare graphs with.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/uop/uop.h"

namespace beamd::testing {

// Row-major elements; integers and bool as what they are, floats of float64's precision.
struct NaiveValue {
  std::vector<int64_t> shape;
  std::vector<double> elements;
};

// The values of a verified graph's outputs. `memory` gives what a BUFFER or an EMPTY holds: as many
// elements as it is asked for. Knows float32, int32 and bool, which floats hold exactly.
std::vector<NaiveValue> NaiveOutputs(
    UOp root, const std::function<std::vector<double>(UOp, int64_t)>& memory);

}  // namespace beamd::testing

// Whether what a kernel left in its outputs is what the kernel means: the one function that the
// service's verifier and conformance share.
//
// The evaluator decides, by SEMANTICS "Equal". Where it can look at every element in time, it does.
// Else it looks at a seeded sample, and a second result of the same kernel (the unoptimised one's)
// tells where else to look: wherever the two differ by more than the sample's errors explain.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/uop.h"

namespace beamd {

// One output, after the kernel.
struct OutputResult {
  uint64_t slot = 0;
  Scalar scalar = Scalar::kVoid;
  int64_t elements = 0;
  const void* got = nullptr;
  const void* reference = nullptr;  // the same of the second result, or null
};

struct OutputCheckOptions {
  uint64_t seed = 0;
  double work = 1.5e6;  // nodes times points that the evaluator may spend an output
  // What one element may cost where no reference stands in; costlier ones are not looked at.
  double least_work = 4e8;
  int64_t most_samples = 256;
  int64_t most_suspects = 64;
};

struct OutputCheck {
  bool equal = true;
  std::string detail;     // the first element that is wrong
  int64_t checked = 0;    // elements compared, with the evaluator or the reference
  int64_t evaluated = 0;  // those that the evaluator looked at
  int64_t undecided = 0;  // of them
  bool complete = true;   // every element was compared with something
};

// `inputs` is what every buffer held before. Errors are the evaluator's.
absl::StatusOr<OutputCheck> CheckOutputs(UOp sink, const EvalInputs& inputs,
                                         std::span<const OutputResult> outputs,
                                         const OutputCheckOptions& options);

}  // namespace beamd

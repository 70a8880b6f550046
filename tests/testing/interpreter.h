// Runs a linear program the plain way, before any emitter sees it: what program.h says, a node at a
// time, for all work-items of a group in step.
//
// Reports what the order hides: two work-items that touch an element, one of them to write it,
// without a barrier between (or from two groups at all); memory read that nobody has written; an
// access outside its buffer or less aligned than the program claims; a loop whose extent differs
// between the work-items of a group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/target_caps.h"
#include "engine/lower/program.h"

namespace beamd::testing {

// `buffers` has the bytes of image.buffers, `variables` the values of image.variables, both in that
// order. The whole launch runs, group after group. DataLoss: a race; OutOfRange: an access outside;
// Internal: a list that breaks another of its rules.
absl::Status Interpret(const LinearProgram& program, const TargetCaps& caps,
                       std::vector<std::string>& buffers, const std::vector<int64_t>& variables);

}  // namespace beamd::testing

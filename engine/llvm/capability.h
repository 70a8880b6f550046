// What the code generator has code for. Asked before LLVM sees a program: where LLVM can't select
// code for a GPU it ends the process.
#pragma once

#include "absl/status/status.h"
#include "engine/base/target_caps.h"
#include "engine/lower/program.h"

namespace beamd {

// Unimplemented for a GPU that no code is generated for; FailedPrecondition where its features,
// waves or code object version aren't ones that it has.
absl::Status CheckTarget(const TargetCaps& caps);

// FailedPrecondition where a launch asks for more than the target has: work-items, shared memory,
// parameters. Unimplemented for a tensor core that it lacks.
absl::Status CheckProgram(const LinearProgram& program, const TargetCaps& caps);

}  // namespace beamd

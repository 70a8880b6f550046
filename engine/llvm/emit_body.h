// What a program's ops mean as IR, alike for all targets: values, loops, accumulators, loads and
// stores. Where targets part, EmitTarget says how.
#pragma once

#include "absl/status/status.h"
#include "engine/llvm/emit_target.h"
#include "engine/lower/program.h"
#include "llvm/IR/Module.h"

namespace beamd {

// Error: InvalidArgument for a program that breaks its contract; what `target` refuses.
absl::Status EmitBody(const LinearProgram& program, EmitTarget& target, llvm::Module& module);

}  // namespace beamd

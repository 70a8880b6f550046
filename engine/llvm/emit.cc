#include "engine/llvm/emit.h"

#include "engine/llvm/emit_body.h"
#include "engine/llvm/emit_target.h"

namespace beamd {

absl::Status EmitModule(const LinearProgram& program, const TargetCaps& caps,
                        llvm::Module& module) {
  return EmitBody(program, *NewCpuTarget(program, caps, module), module);
}

}  // namespace beamd

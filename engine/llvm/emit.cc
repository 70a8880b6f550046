#include "engine/llvm/emit.h"

#include <memory>

#include "engine/base/status.h"
#include "engine/llvm/capability.h"
#include "engine/llvm/emit_body.h"
#include "engine/llvm/emit_target.h"

namespace beamd {

absl::Status EmitModule(const LinearProgram& program, const TargetCaps& caps,
                        llvm::Module& module) {
  BEAMD_RETURN_IF_ERROR(CheckProgram(program, caps));
  std::unique_ptr<EmitTarget> target;
  switch (caps.kind) {
    case TargetKind::kCpu:
      target = NewCpuTarget(program, caps, module);
      break;
    case TargetKind::kCuda:
      target = NewNvptxTarget(program, caps, module);
      break;
    case TargetKind::kHip:
      target = NewAmdgpuTarget(program, caps, module);
      break;
  }
  return EmitBody(program, *target, module);
}

}  // namespace beamd

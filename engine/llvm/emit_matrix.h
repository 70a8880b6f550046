// WMMA: the intrinsic of a tensor core.
#pragma once

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/tensor_core.h"
#include "engine/llvm/value.h"

namespace beamd {

// x*y+z by the work-items of a wave. Operands and result are a work-item's elements in the order of
// its registers, register values as value.h has them.
// Unimplemented where there is no intrinsic for `core`.
absl::StatusOr<llvm::Value*> EmitMatrixProduct(Builder& b, const AluTarget& alu,
                                               const TargetCaps& caps, const TensorCore& core,
                                               llvm::Value* x, llvm::Value* y, llvm::Value* z);

}  // namespace beamd

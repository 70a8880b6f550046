#include "engine/llvm/emit_target.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"

namespace beamd {
namespace {

// Sines that a program may have in line. Each branches, and register allocation takes time with the
// square of the blocks that their constants live through: a chain of 500 took LLVM 8 s.
constexpr int64_t kMostInlineSines = 64;

absl::Status HasNone(UOp u) {
  return absl::UnimplementedError(absl::StrCat("the target has no ", Name(u.op())));
}

}  // namespace

EmitTarget::EmitTarget(const LinearProgram& program, const TargetCaps& caps, llvm::Module& module)
    : program_(program), caps_(caps), module_(module) {
  traits_.alu.call_sin =
      std::ranges::count_if(program.ops, [](UOp u) { return u.is(Op::kSin); }) > kMostInlineSines;
}

void EmitTarget::End(Builder& b) {
  if (done_ != nullptr) {
    b.CreateBr(done_);
    b.SetInsertPoint(done_);
  }
  b.CreateRetVoid();
}

EmitTarget::LoopBounds EmitTarget::BoundsOf(Builder& /*b*/, UOp /*range*/, llvm::Value* extent) {
  return {llvm::ConstantInt::get(extent->getType(), 0), extent, false};
}

void EmitTarget::LeaveUnless(Builder& b, llvm::Value* goes_on) {
  llvm::Function* entry = b.GetInsertBlock()->getParent();
  llvm::BasicBlock* next = llvm::BasicBlock::Create(b.getContext(), "", entry);
  if (done_ == nullptr) done_ = llvm::BasicBlock::Create(b.getContext(), "", entry);
  b.CreateCondBr(goes_on, next, done_);
  b.SetInsertPoint(next);
}

absl::StatusOr<llvm::Value*> EmitTarget::LaunchIndex(Builder& /*b*/, UOp special,
                                                     int64_t /*count*/) {
  return HasNone(special);
}

absl::StatusOr<llvm::Value*> EmitTarget::SharedMemory(UOp define, llvm::Type* /*element*/) {
  return HasNone(define);
}

absl::Status EmitTarget::Barrier(Builder& /*b*/, UOp barrier) { return HasNone(barrier); }

absl::StatusOr<llvm::Value*> EmitTarget::MatrixProduct(Builder& /*b*/, UOp wmma, llvm::Value* /*x*/,
                                                       llvm::Value* /*y*/, llvm::Value* /*z*/) {
  return HasNone(wmma);
}

}  // namespace beamd

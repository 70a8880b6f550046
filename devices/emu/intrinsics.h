// What the intrinsics of NVPTX and AMDGPU become here.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "devices/emu/kernel.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"

namespace beamd::emu {

// Replaces calls in one function, whose only parameter is the WorkItem.
class IntrinsicLowering {
 public:
  IntrinsicLowering(llvm::Function& function, std::array<int64_t, 3> groups,
                    std::array<int64_t, 3> items, int wave, TranslatedKernel& kernel)
      : function_(function), groups_(groups), items_(items), wave_(wave), kernel_(kernel) {}

  // Replaces and erases `call`, to an intrinsic of a GPU. Unimplemented naming it where it is
  // unknown or its constant operands ask for what isn't emulated.
  absl::Status Lower(llvm::CallInst& call);

  static bool IsOfGpu(absl::string_view name);
  static bool IsBarrier(const llvm::CallInst& call);

 private:
  llvm::Value* LoadMember(llvm::IRBuilder<>& builder, size_t offset);
  // The value that the call becomes; null: it has none; Unimplemented.
  absl::StatusOr<llvm::Value*> Replace(llvm::CallInst& call, llvm::IRBuilder<>& builder);
  absl::StatusOr<llvm::Value*> Act(llvm::CallInst& call, Collective collective, int64_t bytes,
                                   int flags, llvm::IRBuilder<>& builder);
  llvm::Value* CallLibrary(llvm::CallInst& call, const char* name, llvm::Type* result,
                           llvm::IRBuilder<>& builder);
  llvm::Value* Scratch(llvm::AllocaInst*& scratch);

  llvm::Function& function_;
  const std::array<int64_t, 3> groups_, items_;
  const int wave_;
  TranslatedKernel& kernel_;
  // Where operands and results of wave operations pass.
  llvm::AllocaInst* operands_ = nullptr;
  llvm::AllocaInst* results_ = nullptr;
};

}  // namespace beamd::emu

// A CPU: buffers and variables behind arrays, a part of the outermost loop a call.
#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "engine/llvm/emit.h"
#include "engine/llvm/emit_target.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"

namespace beamd {
namespace {

using llvm::Type;
using llvm::Value;

class CpuEmission final : public EmitTarget {
 public:
  CpuEmission(const LinearProgram& program, const TargetCaps& caps, llvm::Module& module)
      : EmitTarget(program, caps, module) {
    traits_.alu.fma = absl::StrContains(caps.features, "+fma");
    traits_.masking = absl::StrContains(caps.features, "+avx512vl") ? Masking::kAvx512
                      : absl::StrContains(caps.features, "+avx")    ? Masking::kAvx
                                                                    : Masking::kLanes;
  }

  void Begin(Builder& b) override {
    llvm::LLVMContext& context = module_.getContext();
    llvm::Function* entry = llvm::Function::Create(
        llvm::FunctionType::get(
            b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()}, false),
        llvm::GlobalValue::ExternalLinkage, kKernelEntry, module_);
    entry->addFnAttr(llvm::Attribute::NoUnwind);
    entry->setMustProgress();
    if (!caps_.arch.empty()) entry->addFnAttr("target-cpu", caps_.arch);
    if (!caps_.features.empty()) entry->addFnAttr("target-features", caps_.features);
    entry->addFnAttr("prefer-vector-width", std::to_string(8 * caps_.vector_bytes));
    entry->addFnAttr("no-builtins");
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "", entry));
    begin_ = entry->getArg(2);
    end_ = entry->getArg(3);

    llvm::MDNode* const yes = llvm::MDNode::get(context, {});
    const auto number = [&](int64_t v) {
      return llvm::MDNode::get(context, llvm::ConstantAsMetadata::get(b.getInt64(v)));
    };
    const auto load = [&](Type* type, int array, size_t place) {
      Value* address = b.CreateConstInBoundsGEP1_64(type, entry->getArg(array), place);
      llvm::LoadInst* value = b.CreateAlignedLoad(type, address, llvm::Align(8));
      value->setMetadata(llvm::LLVMContext::MD_invariant_load, yes);
      value->setMetadata(llvm::LLVMContext::MD_noundef, yes);
      return value;
    };
    const std::vector<KernelImage::Buffer>& buffers = program_.image.buffers;
    for (size_t i = 0; i < buffers.size(); ++i) {
      llvm::LoadInst* pointer = load(b.getPtrTy(), 0, i);
      pointer->setMetadata(llvm::LLVMContext::MD_nonnull, yes);
      pointer->setMetadata(llvm::LLVMContext::MD_align, number(64));
      pointer->setMetadata(
          llvm::LLVMContext::MD_dereferenceable,
          number(std::max<int64_t>(buffers[i].size_elements, 1) * SizeBytes(buffers[i].scalar)));
      buffers_.push_back(pointer);
    }
    for (size_t i = 0; i < program_.image.variables.size(); ++i) {
      variables_.push_back(load(b.getInt64Ty(), 1, i));
    }
    // One slice: all or nothing.
    if (!program_.slice_range) LeaveUnless(b, b.CreateICmpSLT(begin_, end_));
  }

  LoopBounds BoundsOf(Builder& b, UOp range, Value* extent) override {
    if (range != program_.slice_range) return EmitTarget::BoundsOf(b, range, extent);
    return {begin_, b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end_, extent), true};
  }

 private:
  Value* begin_ = nullptr;
  Value* end_ = nullptr;
};

}  // namespace

std::unique_ptr<EmitTarget> NewCpuTarget(const LinearProgram& program, const TargetCaps& caps,
                                         llvm::Module& module) {
  return std::make_unique<CpuEmission>(program, caps, module);
}

}  // namespace beamd

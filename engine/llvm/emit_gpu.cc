// GPUs: a work-item's program as a kernel for LLVM's NVPTX and AMDGPU targets.
#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/kernel/tensor_core.h"
#include "engine/llvm/emit.h"
#include "engine/llvm/emit_matrix.h"
#include "engine/llvm/emit_target.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/IntrinsicsAMDGPU.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace beamd {
namespace {

using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

class GpuTarget : public EmitTarget {
 public:
  GpuTarget(const LinearProgram& program, const TargetCaps& caps, llvm::Module& module)
      : EmitTarget(program, caps, module) {
    traits_.alu.fma = true;
    traits_.alu.half = true;
    traits_.alu.gpu = true;
    traits_.alu.table_space = kGlobalSpace;
    traits_.buffer_space = kGlobalSpace;
    traits_.narrow_indices = true;
  }

  // LangRef, "Parameter Attributes". What the kernel doesn't write and nothing else points to may
  // be read through the read-only cache.
  void Begin(Builder& b) override {
    llvm::LLVMContext& context = module_.getContext();
    const std::vector<KernelImage::Buffer>& buffers = program_.image.buffers;
    std::vector<Type*> parameters(buffers.size(), b.getPtrTy(kGlobalSpace));
    parameters.resize(buffers.size() + program_.image.variables.size(), b.getInt64Ty());
    llvm::Function* entry =
        llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), parameters, false),
                               llvm::GlobalValue::ExternalLinkage, kKernelEntry, module_);
    entry->addFnAttr(llvm::Attribute::NoUnwind);
    entry->setMustProgress();
    entry->addFnAttr("no-builtins");
    entry->addFnAttr("target-cpu", caps_.arch);
    if (!caps_.features.empty()) entry->addFnAttr("target-features", caps_.features);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const KernelImage::Buffer& buffer = buffers[i];
      llvm::AttrBuilder attributes(context);
      attributes.addAttribute(llvm::Attribute::NoAlias);
      attributes.addAttribute(llvm::Attribute::NonNull);
      attributes.addAlignmentAttr(llvm::Align(64));
      attributes.addDereferenceableAttr(std::max<int64_t>(buffer.size_elements, 1) *
                                        SizeBytes(buffer.scalar));
      if (!buffer.written) attributes.addAttribute(llvm::Attribute::ReadOnly);
      if (!buffer.read) attributes.addAttribute(llvm::Attribute::WriteOnly);
      entry->addParamAttrs(i, attributes);
    }
    for (llvm::Argument& argument : entry->args()) {
      (argument.getArgNo() < buffers.size() ? buffers_ : variables_).push_back(&argument);
    }
    Describe(b, *entry);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "", entry));
  }

  absl::StatusOr<Value*> LaunchIndex(Builder& b, UOp special, int64_t count) override {
    const std::string& name = special.data<std::string>();
    const bool known =
        name.size() == 2 && (name[0] == 'g' || name[0] == 'l') && name[1] >= '0' && name[1] <= '2';
    if (!known) return absl::InvalidArgumentError(absl::StrCat("no index of a launch: ", name));
    if (count > int64_t{1} << 31) {
      return absl::InvalidArgumentError(absl::StrCat(name, " counts to ", count));
    }
    llvm::CallInst* index = b.CreateIntrinsic(IndexIntrinsic(name[0] == 'g', name[1] - '0'), {});
    index->addRangeRetAttr(
        llvm::ConstantRange(llvm::APInt(32, 0), llvm::APInt(32, static_cast<uint64_t>(count))));
    return index;
  }

  absl::StatusOr<Value*> SharedMemory(UOp define, Type* element) override {
    const UOp count = define.src(0);
    if (!count.is_const() || count.int_value() <= 0) {
      return absl::InvalidArgumentError("DEFINE_LOCAL: its size is no positive constant");
    }
    auto* array = llvm::ArrayType::get(element, static_cast<uint64_t>(count.int_value()));
    auto* memory = new llvm::GlobalVariable(
        module_, array, /*isConstant=*/false, llvm::GlobalValue::InternalLinkage,
        llvm::PoisonValue::get(array), absl::StrCat("shared", shared_++), nullptr,
        llvm::GlobalValue::NotThreadLocal, kSharedSpace);
    memory->setAlignment(llvm::Align(16));
    return memory;
  }

  absl::StatusOr<Value*> MatrixProduct(Builder& b, UOp wmma, Value* x, Value* y,
                                       Value* z) override {
    const auto which = static_cast<size_t>(wmma.arg().as_int());
    return EmitMatrixProduct(b, traits_.alu, caps_, TensorCoresOf(caps_)[which], x, y, z);
  }

 protected:
  // What makes the function a kernel, and its launch's bounds.
  virtual void Describe(Builder& b, llvm::Function& entry) = 0;
  virtual ID IndexIntrinsic(bool of_group, int axis) const = 0;

  const std::array<int64_t, 3>& local_size() const { return program_.image.local_size; }

 private:
  int shared_ = 0;
};

// PTX ISA; LLVM's "User Guide for NVPTX Back-end".
class NvptxTarget final : public GpuTarget {
 public:
  NvptxTarget(const LinearProgram& program, const TargetCaps& caps, llvm::Module& module)
      : GpuTarget(program, caps, module) {
    // PTX ISA, "fma" of .bf16, of which LLVM also makes sums and products: sm_80.
    traits_.alu.bfloat = ComputeCapability(caps.arch) >= 80;
  }

  absl::Status Barrier(Builder& b, UOp /*barrier*/) override {
    b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {b.getInt32(0)});
    return absl::OkStatus();
  }

 protected:
  void Describe(Builder& /*b*/, llvm::Function& entry) override {
    entry.setCallingConv(llvm::CallingConv::PTX_Kernel);
    entry.addFnAttr("nvvm.reqntid", absl::StrJoin(local_size(), ","));
  }

  ID IndexIntrinsic(bool of_group, int axis) const override {
    static constexpr ID kGroup[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x,
                                    llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y,
                                    llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z};
    static constexpr ID kItem[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x,
                                   llvm::Intrinsic::nvvm_read_ptx_sreg_tid_y,
                                   llvm::Intrinsic::nvvm_read_ptx_sreg_tid_z};
    return of_group ? kGroup[axis] : kItem[axis];
  }
};

// LLVM's "User Guide for AMDGPU Backend".
class AmdgpuTarget final : public GpuTarget {
 public:
  using GpuTarget::GpuTarget;

  // The barrier by itself waits for no memory. The fences are told to order shared memory only, or
  // they would empty a cache of global memory ("Memory Model", amdgpu-synchronize-as).
  absl::Status Barrier(Builder& b, UOp /*barrier*/) override {
    llvm::LLVMContext& context = module_.getContext();
    const llvm::SyncScope::ID scope = context.getOrInsertSyncScopeID("workgroup");
    llvm::MDNode* local =
        llvm::MDNode::get(context, {llvm::MDString::get(context, "amdgpu-synchronize-as"),
                                    llvm::MDString::get(context, "local")});
    b.CreateFence(llvm::AtomicOrdering::Release, scope)
        ->setMetadata(llvm::LLVMContext::MD_mmra, local);
    b.CreateIntrinsic(llvm::Intrinsic::amdgcn_s_barrier, {});
    b.CreateFence(llvm::AtomicOrdering::Acquire, scope)
        ->setMetadata(llvm::LLVMContext::MD_mmra, local);
    return absl::OkStatus();
  }

 protected:
  void Describe(Builder& b, llvm::Function& entry) override {
    entry.setCallingConv(llvm::CallingConv::AMDGPU_KERNEL);
    const int64_t items = local_size()[0] * local_size()[1] * local_size()[2];
    entry.addFnAttr("amdgpu-flat-work-group-size", absl::StrCat(items, ",", items));
    entry.addFnAttr("uniform-work-group-size", "true");
    std::vector<llvm::Metadata*> sizes;
    for (const int64_t size : local_size()) {
      sizes.push_back(llvm::ConstantAsMetadata::get(b.getInt32(static_cast<uint32_t>(size))));
    }
    entry.setMetadata("reqd_work_group_size", llvm::MDNode::get(module_.getContext(), sizes));
    // What the kernel asks of the runtime besides its parameters: nothing.
    for (const char* unused :
         {"completion-action", "default-queue", "dispatch-id", "dispatch-ptr", "heap-ptr",
          "hostcall-ptr", "implicitarg-ptr", "lds-kernel-id", "multigrid-sync-arg", "queue-ptr"}) {
      entry.addFnAttr(absl::StrCat("amdgpu-no-", unused));
    }
    module_.addModuleFlag(llvm::Module::Error, "amdhsa_code_object_version",
                          static_cast<uint32_t>(100 * caps_.code_object_version));
  }

  ID IndexIntrinsic(bool of_group, int axis) const override {
    static constexpr ID kGroup[] = {llvm::Intrinsic::amdgcn_workgroup_id_x,
                                    llvm::Intrinsic::amdgcn_workgroup_id_y,
                                    llvm::Intrinsic::amdgcn_workgroup_id_z};
    static constexpr ID kItem[] = {llvm::Intrinsic::amdgcn_workitem_id_x,
                                   llvm::Intrinsic::amdgcn_workitem_id_y,
                                   llvm::Intrinsic::amdgcn_workitem_id_z};
    return of_group ? kGroup[axis] : kItem[axis];
  }
};

}  // namespace

std::unique_ptr<EmitTarget> NewNvptxTarget(const LinearProgram& program, const TargetCaps& caps,
                                           llvm::Module& module) {
  return std::make_unique<NvptxTarget>(program, caps, module);
}

std::unique_ptr<EmitTarget> NewAmdgpuTarget(const LinearProgram& program, const TargetCaps& caps,
                                            llvm::Module& module) {
  return std::make_unique<AmdgpuTarget>(program, caps, module);
}

}  // namespace beamd

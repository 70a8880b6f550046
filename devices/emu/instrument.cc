#include "devices/emu/instrument.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "devices/emu/intrinsics.h"
#include "engine/base/status.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/ReplaceConstant.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"

namespace beamd::emu {
namespace {

// LLVM's numbers of address spaces, the same on NVPTX and AMDGPU.
constexpr unsigned kGlobalSpace = 1;
constexpr unsigned kSharedSpace = 3;

// Buffers begin at multiples of 64 (kWindowAlignment).
constexpr uint64_t kBufferAlignment = 64;

// Scalars are at most this large, so accesses needn't be told apart more coarsely.
constexpr int kCoarsestGranule = 3;

std::string Text(llvm::StringRef text) { return text.str(); }

// What a pointer leads into.
struct Memory {
  enum class Kind : uint8_t { kBuffer, kShared, kData } kind;
  size_t buffer = 0;            // kBuffer
  int64_t begin = 0, end = 0;   // kShared, kData
  llvm::Value* base = nullptr;  // kBuffer: an int64; kData: a pointer
  bool constant = false;        // kData
  std::string name;

  bool operator==(const Memory& other) const {
    return kind == other.kind && buffer == other.buffer && begin == other.begin &&
           base == other.base;
  }
};

// An instruction's access to memory.
struct Touch {
  llvm::Instruction* instruction;
  llvm::Value* pointer;
  llvm::Type* type;
  llvm::Align alignment;
  AccessKind kind;
};

std::optional<Touch> TouchOf(llvm::Instruction& i) {
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&i)) {
    return Touch{&i, load->getPointerOperand(), load->getType(), load->getAlign(),
                 AccessKind::kLoad};
  }
  if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i)) {
    return Touch{&i, store->getPointerOperand(), store->getValueOperand()->getType(),
                 store->getAlign(), AccessKind::kStore};
  }
  if (auto* rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&i)) {
    return Touch{&i, rmw->getPointerOperand(), rmw->getType(), rmw->getAlign(),
                 AccessKind::kAtomic};
  }
  if (auto* exchange = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&i)) {
    return Touch{&i, exchange->getPointerOperand(), exchange->getNewValOperand()->getType(),
                 exchange->getAlign(), AccessKind::kAtomic};
  }
  return std::nullopt;
}

bool IsKernel(const llvm::Function& f) {
  return f.getCallingConv() == llvm::CallingConv::PTX_Kernel ||
         f.getCallingConv() == llvm::CallingConv::AMDGPU_KERNEL;
}

// Whether a fence orders what a work-group shares.
bool OrdersGroup(const llvm::FenceInst& fence) {
  llvm::SmallVector<llvm::StringRef> names;
  fence.getContext().getSyncScopeNames(names);
  const llvm::StringRef scope = names[fence.getSyncScopeID()];
  return scope.empty() || scope == "workgroup" || scope == "agent" || scope == "system";
}

// Whether `barrier` has the fence that AMD's wants on one side: s_barrier alone doesn't wait for
// LDS (LLVM's AMDGPU usage, "Memory Model": a fence is what becomes the wait).
bool IsFenced(llvm::Instruction& barrier, bool before) {
  llvm::BasicBlock* block = barrier.getParent();
  llvm::Instruction* at = &barrier;
  while (true) {
    at = before ? at->getPrevNode() : at->getNextNode();
    if (at == nullptr || at->isTerminator()) {
      block = before ? block->getSinglePredecessor() : block->getSingleSuccessor();
      if (block == nullptr || block == barrier.getParent()) return false;
      at = before ? block->getTerminator() : &block->front();
    }
    if (const auto* fence = llvm::dyn_cast<llvm::FenceInst>(at)) {
      const llvm::AtomicOrdering ordering = fence->getOrdering();
      return OrdersGroup(*fence) &&
             (before ? llvm::isReleaseOrStronger(ordering) : llvm::isAcquireOrStronger(ordering));
    }
    const auto* const call = llvm::dyn_cast<llvm::CallInst>(at);
    if (call != nullptr && IntrinsicLowering::IsBarrier(*call)) return false;
    if (before ? at->mayWriteToMemory() : llvm::isa<llvm::LoadInst>(at)) return false;
  }
}

class Instrumenter {
 public:
  Instrumenter(llvm::Module& module, const KernelImage& image, const TargetCaps& caps,
               TranslatedKernel& kernel)
      : module_(module),
        context_(module.getContext()),
        image_(image),
        caps_(caps),
        kernel_(kernel) {}

  absl::Status Run() {
    llvm::StripDebugInfo(module_);
    BEAMD_RETURN_IF_ERROR(CheckKernel());
    BEAMD_RETURN_IF_ERROR(InlineWhatTouchesMemory());
    BEAMD_RETURN_IF_ERROR(CheckBarriers());
    MakeEntry();
    BEAMD_RETURN_IF_ERROR(PlaceShared());
    BEAMD_RETURN_IF_ERROR(KeepData());
    // The kernel's own accesses: what calls become reads its work-item.
    FindAccesses();
    BEAMD_RETURN_IF_ERROR(ReplaceCalls());
    BEAMD_RETURN_IF_ERROR(CheckAccesses());
    Clean();
    return absl::OkStatus();
  }

 private:
  absl::Status CheckKernel() {
    source_ = module_.getFunction(image_.entry);
    if (source_ == nullptr || source_->isDeclaration() || !IsKernel(*source_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the image can't be loaded: it has no kernel \"", image_.entry, "\""));
    }
    bool fits = source_->arg_size() == image_.buffers.size() + image_.variables.size() &&
                source_->getReturnType()->isVoidTy();
    for (size_t i = 0; fits && i < source_->arg_size(); ++i) {
      const llvm::Type* type = source_->getArg(static_cast<unsigned>(i))->getType();
      fits = i < image_.buffers.size()
                 ? type->isPointerTy() && type->getPointerAddressSpace() == kGlobalSpace
                 : type->isIntegerTy(64);
    }
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the image can't be loaded: its kernel doesn't take an address a buffer and an int64 a "
        "variable");
  }

  // Functions of arithmetic alone stay calls; in others the checks would need the work-item.
  absl::Status InlineWhatTouchesMemory() {
    const auto touches = [](const llvm::Function& f) {
      return std::any_of(llvm::inst_begin(f), llvm::inst_end(f), [](const llvm::Instruction& i) {
        const auto* const call = llvm::dyn_cast<llvm::CallInst>(&i);
        if (call == nullptr) return i.mayReadOrWriteMemory();
        const llvm::Function* const callee = call->getCalledFunction();
        return callee == nullptr || !callee->isIntrinsic() ||
               IntrinsicLowering::IsOfGpu({callee->getName().data(), callee->getName().size()});
      });
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (llvm::Instruction& i : llvm::instructions(*source_)) {
        auto* const call = llvm::dyn_cast<llvm::CallInst>(&i);
        if (call == nullptr) continue;
        llvm::Function* const callee = call->getCalledFunction();
        if (callee == nullptr || callee->isDeclaration() || !touches(*callee)) continue;
        llvm::InlineFunctionInfo info;
        if (callee == source_ || !llvm::InlineFunction(*call, info).isSuccess()) {
          return absl::UnimplementedError(
              absl::StrCat("the emulator can't take apart ", Text(callee->getName())));
        }
        changed = true;
        break;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckBarriers() {
    if (caps_.kind != TargetKind::kHip) return absl::OkStatus();
    for (llvm::Instruction& i : llvm::instructions(*source_)) {
      auto* const call = llvm::dyn_cast<llvm::CallInst>(&i);
      if (call == nullptr || !IntrinsicLowering::IsBarrier(*call)) continue;
      for (const bool before : {true, false}) {
        if (IsFenced(i, before)) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "a barrier of kernel \"", image_.entry, "\" has no ",
            before ? "release fence of its group before" : "acquire fence of its group behind",
            " it: it doesn't wait for shared memory"));
      }
    }
    return absl::OkStatus();
  }

  // Moves the kernel's body into a function of the work-item.
  void MakeEntry() {
    llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
    entry_ = llvm::Function::Create(
        llvm::FunctionType::get(llvm::Type::getVoidTy(context_), {pointer}, false),
        llvm::GlobalValue::ExternalLinkage, kEmuEntry, module_);
    entry_->addFnAttr(llvm::Attribute::NoUnwind);
    entry_->splice(entry_->end(), source_);
    llvm::IRBuilder<> b(&entry_->getEntryBlock(), entry_->getEntryBlock().begin());
    llvm::Value* const arguments = b.CreateLoad(pointer, Member(b, offsetof(WorkItem, arguments)));
    const auto word = [&](size_t i) {
      return b.CreateLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), arguments, i));
    };
    const size_t buffers = image_.buffers.size();
    for (size_t i = 0; i < source_->arg_size(); ++i) {
      llvm::Argument& argument = *source_->getArg(static_cast<unsigned>(i));
      if (i >= buffers) {
        argument.replaceAllUsesWith(word(buffers + i));
        continue;
      }
      llvm::Value* const base = word(2 * i);
      llvm::Value* const address = b.CreateIntToPtr(base, argument.getType());
      argument.replaceAllUsesWith(address);
      memories_[address] = {.kind = Memory::Kind::kBuffer, .buffer = i, .base = base};
      sizes_.push_back(word(2 * i + 1));
      kernel_.buffer_granules.push_back(kCoarsestGranule);
    }
    kernel_.shared_granule = kCoarsestGranule;
    source_->eraseFromParent();
    prologue_end_ = b.CreateAlloca(b.getInt8Ty());  // goes away; keeps the place
  }

  llvm::Value* Member(llvm::IRBuilder<>& b, size_t offset) {
    return b.CreateConstGEP1_64(b.getInt8Ty(), entry_->getArg(0), offset);
  }

  // Arrays in shared memory get places in the block that a work-item is given.
  absl::Status PlaceShared() {
    llvm::SmallVector<llvm::Constant*> constants;
    std::vector<llvm::GlobalVariable*> arrays;
    for (llvm::GlobalVariable& g : module_.globals()) {
      if (g.getAddressSpace() != kSharedSpace) continue;
      if (!g.hasInitializer()) {
        return absl::UnimplementedError(
            absl::StrCat("shared memory of no stated size: ", Text(g.getName())));
      }
      arrays.push_back(&g);
      constants.push_back(&g);
    }
    if (arrays.empty()) return absl::OkStatus();
    llvm::convertUsersOfConstantsToInstructions(constants);
    llvm::IRBuilder<> b(prologue_end_);
    llvm::Value* const shared = b.CreateLoad(b.getInt64Ty(), Member(b, offsetof(WorkItem, shared)));
    uint64_t end = 0;
    for (llvm::GlobalVariable* g : arrays) {
      const uint64_t begin = llvm::alignTo(end, g->getAlign().valueOrOne());
      end = begin + module_.getDataLayout().getTypeAllocSize(g->getValueType()).getFixedValue();
      // An address by itself, which the search for what a pointer leads into ends at.
      llvm::Value* const array =
          b.CreateIntToPtr(b.CreateAdd(shared, b.getInt64(begin)), g->getType());
      memories_[array] = {.kind = Memory::Kind::kShared,
                          .begin = static_cast<int64_t>(begin),
                          .end = static_cast<int64_t>(end),
                          .name = Text(g->getName())};
      g->replaceAllUsesWith(array);
      g->eraseFromParent();
    }
    kernel_.shared_bytes = static_cast<int64_t>(end);
    if (kernel_.shared_bytes <= std::min(image_.shared_bytes, caps_.shared_bytes)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "the kernel takes ", kernel_.shared_bytes, " bytes of shared memory, its image says ",
        image_.shared_bytes, ", the target has ", caps_.shared_bytes));
  }

  // The module's own constants stay where the linker puts them.
  absl::Status KeepData() {
    for (llvm::GlobalVariable& g : module_.globals()) {
      if (!g.hasInitializer() || !g.isConstant()) {
        return absl::UnimplementedError(
            absl::StrCat("a variable of the module: ", Text(g.getName())));
      }
      const auto bytes = static_cast<int64_t>(
          module_.getDataLayout().getTypeAllocSize(g.getValueType()).getFixedValue());
      memories_[&g] = {.kind = Memory::Kind::kData,
                       .end = bytes,
                       .base = &g,
                       .constant = true,
                       .name = Text(g.getName())};
      g.setLinkage(llvm::GlobalValue::ExternalLinkage);
      g.setVisibility(llvm::GlobalValue::DefaultVisibility);
      g.setDSOLocal(true);
      g.setName(absl::StrCat("beamd_emu_data", kernel_.constants.size()));
      kernel_.constants.push_back({Text(g.getName()), bytes});
    }
    return absl::OkStatus();
  }

  absl::Status ReplaceCalls() {
    IntrinsicLowering lowering(*entry_, image_.global_size, image_.local_size, caps_.wave_size,
                               kernel_);
    std::vector<llvm::CallInst*> calls;
    std::vector<llvm::Instruction*> fences;
    for (llvm::Instruction& i : llvm::instructions(*entry_)) {
      if (auto* call = llvm::dyn_cast<llvm::CallInst>(&i)) calls.push_back(call);
      if (llvm::isa<llvm::FenceInst>(i)) fences.push_back(&i);
      if (llvm::isa<llvm::InvokeInst, llvm::CallBrInst, llvm::VAArgInst>(i)) {
        return absl::UnimplementedError(
            absl::StrCat("the emulator doesn't know ", i.getOpcodeName()));
      }
    }
    for (llvm::Instruction* fence : fences) fence->eraseFromParent();
    for (llvm::CallInst* call : calls) {
      const llvm::Function* const callee = call->getCalledFunction();
      if (callee == nullptr) {
        return absl::UnimplementedError("inline assembly or a call through a pointer");
      }
      const std::string name = Text(callee->getName());
      if (IntrinsicLowering::IsOfGpu(name)) {
        BEAMD_RETURN_IF_ERROR(lowering.Lower(*call));
        continue;
      }
      // What only tells the optimiser something may say that it touches memory.
      const bool says =
          llvm::isa<llvm::AssumeInst, llvm::LifetimeIntrinsic, llvm::NoAliasScopeDeclInst>(*call);
      if (says || call->use_empty()) {
        if (says || !call->mayHaveSideEffects()) {
          call->eraseFromParent();
          continue;
        }
      }
      if (callee->isIntrinsic() ? call->mayReadOrWriteMemory() : callee->isDeclaration()) {
        return absl::UnimplementedError(absl::StrCat("the emulator doesn't know ", name));
      }
    }
    return absl::OkStatus();
  }

  void FindAccesses() {
    bool in_prologue = true;
    for (llvm::Instruction& i : llvm::instructions(*entry_)) {
      in_prologue = in_prologue && &i != prologue_end_;
      if (in_prologue) continue;
      if (auto* alloca = llvm::dyn_cast<llvm::AllocaInst>(&i)) KeepPrivate(*alloca);
      if (const std::optional<Touch> touch = TouchOf(i)) touches_.push_back(*touch);
    }
  }

  absl::Status CheckAccesses() {
    // From the end on: each split of a block then moves only what lies up to the last one.
    for (auto touch = touches_.rbegin(); touch != touches_.rend(); ++touch) {
      BEAMD_RETURN_IF_ERROR(Check(*touch));
    }
    if (unknown_granule_ < kCoarsestGranule) {
      kernel_.shared_granule = std::min(kernel_.shared_granule, unknown_granule_);
      for (int& granule : kernel_.buffer_granules) granule = std::min(granule, unknown_granule_);
    }
    return absl::OkStatus();
  }

  void KeepPrivate(llvm::AllocaInst& alloca) {
    const auto size = alloca.getAllocationSize(module_.getDataLayout());
    if (!size) return;
    memories_[&alloca] = {.kind = Memory::Kind::kData,
                          .end = static_cast<int64_t>(size->getFixedValue()),
                          .base = &alloca,
                          .name = "private memory"};
  }

  // The memory that the pointer leads into, whatever way it takes; null: unknown.
  const Memory* MemoryOf(const llvm::Value* pointer) const {
    llvm::SmallVector<const llvm::Value*> objects;
    llvm::getUnderlyingObjects(pointer, objects, nullptr, /*MaxLookup=*/0);
    const Memory* found = nullptr;
    for (const llvm::Value* object : objects) {
      const auto it = memories_.find(object);
      if (it == memories_.end() || (found != nullptr && !(*found == it->second))) return nullptr;
      found = &it->second;
    }
    return found;
  }

  absl::Status Check(const Touch& touch) {
    const llvm::TypeSize size = module_.getDataLayout().getTypeStoreSize(touch.type);
    Access access;
    access.kind = touch.kind;
    access.bytes = static_cast<uint32_t>(size.getFixedValue());
    access.alignment = static_cast<uint32_t>(touch.alignment.value());
    const int granule = std::countr_zero(uint64_t{access.bytes} | access.alignment);
    const bool stores = touch.kind != AccessKind::kLoad;
    const auto number = static_cast<uint32_t>(kernel_.accesses.size());
    llvm::IRBuilder<> b(touch.instruction);
    const Memory* const memory = MemoryOf(touch.pointer);
    llvm::Value* const address = b.CreatePtrToInt(touch.pointer, b.getInt64Ty());
    if (memory == nullptr) {
      unknown_granule_ = std::min(unknown_granule_, granule);
      CallCheck(b, "beamd_emu_unknown", number, address);
    } else if (memory->kind == Memory::Kind::kShared) {
      access.space = MemorySpace::kShared;
      access.begin = memory->begin;
      access.end = memory->end;
      access.array = memory->name;
      kernel_.shared_granule = std::min(kernel_.shared_granule, granule);
      CallCheck(b, "beamd_emu_shared", number, address);
    } else if (memory->kind == Memory::Kind::kBuffer) {
      const KernelImage::Buffer& buffer = image_.buffers[memory->buffer];
      if (stores ? !buffer.written : !buffer.read) {
        return absl::InvalidArgumentError(
            absl::StrCat("the kernel ", stores ? "stores to" : "loads from", " slot ", buffer.slot,
                         ", which its image doesn't say"));
      }
      access.space = MemorySpace::kGlobal;
      access.buffer = static_cast<int32_t>(memory->buffer);
      int& of_buffer = kernel_.buffer_granules[memory->buffer];
      of_buffer = std::min(of_buffer, granule);
      llvm::Value* const offset = b.CreateSub(address, memory->base);
      FaultIf(b, touch.instruction,
              OutsideOrMisaligned(b, offset, Limit(memory->buffer, access.bytes), access.alignment),
              number, address);
      if (buffer.written) {
        b.SetInsertPoint(touch.instruction);
        CallCheck(b, "beamd_emu_global", number, offset);
      }
    } else {
      if (stores && memory->constant) {
        return absl::InvalidArgumentError(
            absl::StrCat("the kernel stores to ", memory->name, ", which is constant"));
      }
      access.space = MemorySpace::kGlobal;
      access.array = memory->name;
      access.end = memory->end;
      const int64_t limit = std::max<int64_t>(memory->end - int64_t{access.bytes} + 1, 0);
      if (LiesInside(touch.pointer, memory->base, limit)) return absl::OkStatus();
      llvm::Value* const offset =
          b.CreateSub(address, b.CreatePtrToInt(memory->base, b.getInt64Ty()));
      FaultIf(b, touch.instruction,
              OutsideOrMisaligned(b, offset, b.getInt64(static_cast<uint64_t>(limit)), 1), number,
              address);
    }
    kernel_.accesses.push_back(std::move(access));
    return absl::OkStatus();
  }

  // Whether the pointer is a fixed number of bytes from `base`, fewer than `limit`.
  bool LiesInside(const llvm::Value* pointer, const llvm::Value* base, int64_t limit) const {
    llvm::APInt offset(64, 0);
    const llvm::Value* const from = pointer->stripAndAccumulateConstantOffsets(
        module_.getDataLayout(), offset, /*AllowNonInbounds=*/true);
    return from == base && offset.ult(static_cast<uint64_t>(limit));
  }

  // How far an access of so many bytes may begin into a buffer, exclusive.
  llvm::Value* Limit(size_t buffer, uint32_t bytes) {
    llvm::Value*& limit = limits_[{buffer, bytes}];
    if (limit == nullptr) {
      llvm::IRBuilder<> b(prologue_end_);
      limit =
          b.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, sizes_[buffer], b.getInt64(bytes - 1));
    }
    return limit;
  }

  static llvm::Value* OutsideOrMisaligned(llvm::IRBuilder<>& b, llvm::Value* offset,
                                          llvm::Value* limit, uint64_t alignment) {
    llvm::Value* const outside = b.CreateICmpUGE(offset, limit);
    const uint64_t tested = std::min(alignment, kBufferAlignment);
    if (tested == 1) return outside;
    return b.CreateOr(outside, b.CreateIsNotNull(b.CreateAnd(offset, b.getInt64(tested - 1))));
  }

  void FaultIf(llvm::IRBuilder<>& b, llvm::Instruction* before, llvm::Value* wrong, uint32_t access,
               llvm::Value* address) {
    llvm::MDNode* const never = llvm::MDBuilder(context_).createUnlikelyBranchWeights();
    b.SetInsertPoint(llvm::SplitBlockAndInsertIfThen(wrong, before, /*Unreachable=*/true, never));
    CallCheck(b, "beamd_emu_fault", access, address);
  }

  void CallCheck(llvm::IRBuilder<>& b, const char* name, uint32_t access, llvm::Value* where) {
    const llvm::FunctionCallee check = module_.getOrInsertFunction(
        name, llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getInt32Ty(), b.getInt64Ty()},
                                      false));
    b.CreateCall(check, {entry_->getArg(0), b.getInt32(access), where});
  }

  // What is left of the GPU: attributes and metadata mean other things to this host, or promise
  // what the checks don't keep.
  void Clean() {
    prologue_end_->eraseFromParent();
    for (llvm::Function& f : module_) {
      if (f.isIntrinsic()) continue;
      f.setAttributes(llvm::AttributeList());
      f.addFnAttr(llvm::Attribute::NoUnwind);
      if (&f != entry_ && !f.isDeclaration()) f.setLinkage(llvm::GlobalValue::InternalLinkage);
      for (llvm::Instruction& i : llvm::instructions(f)) {
        llvm::MDNode* const weights = i.getMetadata(llvm::LLVMContext::MD_prof);
        i.dropUnknownNonDebugMetadata();
        if (weights != nullptr) i.setMetadata(llvm::LLVMContext::MD_prof, weights);
      }
    }
    while (!module_.named_metadata_empty()) {
      module_.eraseNamedMetadata(&*module_.named_metadata_begin());
    }
  }

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const KernelImage& image_;
  const TargetCaps& caps_;
  TranslatedKernel& kernel_;
  llvm::Function* source_ = nullptr;
  llvm::Function* entry_ = nullptr;
  llvm::AllocaInst* prologue_end_ = nullptr;
  std::map<const llvm::Value*, Memory> memories_;
  std::vector<Touch> touches_;
  std::vector<llvm::Value*> sizes_;  // of buffers
  std::map<std::pair<size_t, uint32_t>, llvm::Value*> limits_;
  int unknown_granule_ = kCoarsestGranule;
};

}  // namespace

absl::Status Instrument(llvm::Module& module, const KernelImage& image, const TargetCaps& caps,
                        TranslatedKernel& kernel) {
  return Instrumenter(module, image, caps, kernel).Run();
}

}  // namespace beamd::emu

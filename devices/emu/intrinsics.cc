#include "devices/emu/intrinsics.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace beamd::emu {
namespace {

// What the operands and results of a lane take at most.
constexpr int64_t kScratchBytes = 256;

constexpr const char* kBarriers[] = {
    "llvm.nvvm.barrier.cta.sync.aligned.all",
    "llvm.nvvm.barrier.cta.sync.all",
    "llvm.amdgcn.s.barrier",
};

// An item's or group's number along an axis.
struct Id {
  const char* name;
  size_t offset;  // in WorkItem
};
constexpr size_t kLocal = offsetof(WorkItem, local);
constexpr size_t kGroup = offsetof(WorkItem, group);
constexpr Id kIds[] = {
    {"llvm.nvvm.read.ptx.sreg.tid.x", kLocal},
    {"llvm.nvvm.read.ptx.sreg.tid.y", kLocal + 4},
    {"llvm.nvvm.read.ptx.sreg.tid.z", kLocal + 8},
    {"llvm.nvvm.read.ptx.sreg.ctaid.x", kGroup},
    {"llvm.nvvm.read.ptx.sreg.ctaid.y", kGroup + 4},
    {"llvm.nvvm.read.ptx.sreg.ctaid.z", kGroup + 8},
    {"llvm.amdgcn.workitem.id.x", kLocal},
    {"llvm.amdgcn.workitem.id.y", kLocal + 4},
    {"llvm.amdgcn.workitem.id.z", kLocal + 8},
    {"llvm.amdgcn.workgroup.id.x", kGroup},
    {"llvm.amdgcn.workgroup.id.y", kGroup + 4},
    {"llvm.amdgcn.workgroup.id.z", kGroup + 8},
};

// Nothing here: memory is as if each access were done before the next begins, and races are found
// by other means.
constexpr const char* kNothing[] = {
    "llvm.nvvm.membar.cta",      "llvm.nvvm.membar.gl",      "llvm.nvvm.membar.sys",
    "llvm.amdgcn.sched.barrier", "llvm.amdgcn.wave.barrier", "llvm.amdgcn.s.waitcnt",
};

// Of float32, and of float16 by way of it.
struct Library {
  const char* name;  // without the suffixes of types
  const char* function;
};
constexpr Library kLibrary[] = {
    {"llvm.nvvm.ex2.approx.ftz", "beamd_emu_ex2_ftz"},
    {"llvm.nvvm.lg2.approx.f", "beamd_emu_lg2"},
    {"llvm.nvvm.lg2.approx.ftz.f", "beamd_emu_lg2_ftz"},
    {"llvm.nvvm.sin.approx.f", "beamd_emu_sin"},
    {"llvm.nvvm.sin.approx.ftz.f", "beamd_emu_sin_ftz"},
    {"llvm.nvvm.cos.approx.f", "beamd_emu_cos"},
    {"llvm.nvvm.cos.approx.ftz.f", "beamd_emu_cos_ftz"},
    {"llvm.nvvm.rcp.approx.ftz.f", "beamd_emu_rcp_ftz"},
    {"llvm.nvvm.rsqrt.approx.f", "beamd_emu_rsqrt"},
    {"llvm.amdgcn.exp2", "beamd_emu_ex2_ftz"},
    {"llvm.amdgcn.log", "beamd_emu_log_ftz"},
    {"llvm.amdgcn.sin", "beamd_emu_sin_turns"},
    {"llvm.amdgcn.cos", "beamd_emu_cos_turns"},
    {"llvm.amdgcn.rsq", "beamd_emu_rsqrt"},
};

// What LLVM has an intrinsic of its own for, with the same operands.
struct Generic {
  const char* name;
  llvm::Intrinsic::ID id;
};
constexpr Generic kGeneric[] = {
    {"llvm.nvvm.ex2.approx", llvm::Intrinsic::exp2},
    {"llvm.nvvm.sqrt.rn.f", llvm::Intrinsic::sqrt},
    {"llvm.nvvm.sqrt.rn.d", llvm::Intrinsic::sqrt},
    {"llvm.nvvm.sqrt.f", llvm::Intrinsic::sqrt},
    {"llvm.nvvm.sqrt.approx.f", llvm::Intrinsic::sqrt},
    {"llvm.amdgcn.sqrt", llvm::Intrinsic::sqrt},
    {"llvm.nvvm.fma.rn.f", llvm::Intrinsic::fma},
    {"llvm.nvvm.fma.rn.d", llvm::Intrinsic::fma},
    {"llvm.nvvm.fma.rn.f16", llvm::Intrinsic::fma},
    {"llvm.nvvm.fma.rn.f16x2", llvm::Intrinsic::fma},
    {"llvm.nvvm.fma.rn.bf16", llvm::Intrinsic::fma},
    {"llvm.nvvm.fma.rn.bf16x2", llvm::Intrinsic::fma},
    {"llvm.nvvm.fmax.f", llvm::Intrinsic::maxnum},
    {"llvm.nvvm.fmax.d", llvm::Intrinsic::maxnum},
    {"llvm.nvvm.fmin.f", llvm::Intrinsic::minnum},
    {"llvm.nvvm.fmin.d", llvm::Intrinsic::minnum},
    {"llvm.nvvm.fmax.nan.f", llvm::Intrinsic::maximum},
    {"llvm.nvvm.fmax.nan.f16", llvm::Intrinsic::maximum},
    {"llvm.nvvm.fmax.nan.bf16", llvm::Intrinsic::maximum},
    {"llvm.nvvm.fmin.nan.f", llvm::Intrinsic::minimum},
};

struct Quotient {
  const char* name;
  bool of_one;  // 1 / x, else x / y
};
constexpr Quotient kQuotients[] = {
    {"llvm.nvvm.rcp.rn.f", true},  {"llvm.nvvm.rcp.rn.d", true},  {"llvm.amdgcn.rcp", true},
    {"llvm.nvvm.div.rn.f", false}, {"llvm.nvvm.div.rn.d", false},
};

struct Shuffle {
  const char* name;
  CollectiveKind kind;
  int64_t bytes;  // of operands
};
constexpr Shuffle kShuffles[] = {
    {"llvm.nvvm.shfl.sync.idx.i32", CollectiveKind::kShuffleIdx, 16},
    {"llvm.nvvm.shfl.sync.idx.f32", CollectiveKind::kShuffleIdx, 16},
    {"llvm.nvvm.shfl.sync.bfly.i32", CollectiveKind::kShuffleXor, 16},
    {"llvm.nvvm.shfl.sync.bfly.f32", CollectiveKind::kShuffleXor, 16},
    {"llvm.nvvm.shfl.sync.up.i32", CollectiveKind::kShuffleUp, 16},
    {"llvm.nvvm.shfl.sync.up.f32", CollectiveKind::kShuffleUp, 16},
    {"llvm.nvvm.shfl.sync.down.i32", CollectiveKind::kShuffleDown, 16},
    {"llvm.nvvm.shfl.sync.down.f32", CollectiveKind::kShuffleDown, 16},
    {"llvm.amdgcn.ds.bpermute", CollectiveKind::kPermute, 8},
};

// The row of `table` for this name, or null.
template <typename Row, size_t size>
const Row* Find(const Row (&table)[size], absl::string_view name) {
  const auto* const row = std::find_if(std::begin(table), std::end(table),
                                       [&](const Row& r) { return r.name == name; });
  return row == std::end(table) ? nullptr : row;
}

template <size_t size>
bool Contains(const char* const (&names)[size], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

absl::string_view NameOf(const llvm::CallInst& call) {
  const llvm::Function* const callee = call.getCalledFunction();
  if (callee == nullptr) return "";
  return {callee->getName().data(), callee->getName().size()};
}

// Without the suffixes of overloaded types.
absl::string_view BaseNameOf(const llvm::CallInst& call) {
  const llvm::StringRef name = llvm::Intrinsic::getBaseName(call.getIntrinsicID());
  return {name.data(), name.size()};
}

}  // namespace

bool IntrinsicLowering::IsOfGpu(absl::string_view name) {
  return absl::StartsWith(name, "llvm.nvvm.") || absl::StartsWith(name, "llvm.amdgcn.");
}

bool IntrinsicLowering::IsBarrier(const llvm::CallInst& call) {
  return Contains(kBarriers, NameOf(call));
}

llvm::Value* IntrinsicLowering::LoadMember(llvm::IRBuilder<>& builder, size_t offset) {
  return builder.CreateLoad(builder.getInt32Ty(),
                            builder.CreateConstGEP1_64(builder.getInt8Ty(), function_.getArg(0),
                                                       static_cast<uint64_t>(offset)));
}

llvm::Value* IntrinsicLowering::Scratch(llvm::AllocaInst*& scratch) {
  if (scratch == nullptr) {
    llvm::IRBuilder<> builder(&function_.getEntryBlock(), function_.getEntryBlock().begin());
    scratch =
        builder.CreateAlloca(llvm::ArrayType::get(builder.getInt8Ty(), uint64_t{kScratchBytes}));
    scratch->setAlignment(llvm::Align(16));
  }
  return scratch;
}

absl::StatusOr<llvm::Value*> IntrinsicLowering::Act(llvm::CallInst& call, Collective collective,
                                                    int64_t bytes, int flags,
                                                    llvm::IRBuilder<>& builder) {
  const llvm::DataLayout& layout = function_.getParent()->getDataLayout();
  const unsigned values = call.arg_size() - static_cast<unsigned>(flags);
  for (unsigned i = values; i < call.arg_size(); ++i) {
    const auto* const flag = llvm::dyn_cast<llvm::ConstantInt>(call.getArgOperand(i));
    if (flag == nullptr || !flag->isZero()) {
      return absl::UnimplementedError(absl::StrCat(NameOf(call), " with operand ", i, " set"));
    }
  }
  int64_t offset = 0;
  for (unsigned i = 0; i < values; ++i) {
    llvm::Value* const value = call.getArgOperand(i);
    const auto size =
        static_cast<int64_t>(layout.getTypeStoreSize(value->getType()).getFixedValue());
    if (offset + size > bytes) break;
    builder.CreateAlignedStore(value,
                               builder.CreateConstGEP1_64(builder.getInt8Ty(), Scratch(operands_),
                                                          static_cast<uint64_t>(offset)),
                               llvm::Align(1));
    offset += size;
  }
  if (offset != bytes || bytes > kScratchBytes) {
    return absl::UnimplementedError(absl::StrCat(NameOf(call), " with operands of other sizes"));
  }
  llvm::Type* const pointer = builder.getPtrTy();
  const llvm::FunctionCallee act = function_.getParent()->getOrInsertFunction(
      "beamd_emu_act",
      llvm::FunctionType::get(builder.getVoidTy(),
                              {pointer, builder.getInt32Ty(), pointer, pointer}, false));
  builder.CreateCall(act, {function_.getArg(0),
                           builder.getInt32(static_cast<uint32_t>(kernel_.collectives.size())),
                           Scratch(operands_), Scratch(results_)});
  kernel_.collectives.push_back(std::move(collective));
  return builder.CreateAlignedLoad(call.getType(), Scratch(results_), llvm::Align(1));
}

llvm::Value* IntrinsicLowering::CallLibrary(llvm::CallInst& call, const char* name,
                                            llvm::Type* result, llvm::IRBuilder<>& builder) {
  llvm::Type* const type = call.getType();
  const llvm::FunctionCallee function = function_.getParent()->getOrInsertFunction(
      name, llvm::FunctionType::get(result, {builder.getFloatTy()}, false));
  const auto scalar = [&](llvm::Value* x) -> llvm::Value* {
    if (x->getType()->isFloatTy()) return builder.CreateCall(function, {x});
    llvm::Value* const wide =
        builder.CreateCall(function, {builder.CreateFPExt(x, builder.getFloatTy())});
    return builder.CreateFPTrunc(wide, x->getType());
  };
  llvm::Value* const x = call.getArgOperand(0);
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (vector == nullptr) return scalar(x);
  llvm::Value* lanes = llvm::PoisonValue::get(type);
  for (unsigned i = 0; i < vector->getNumElements(); ++i) {
    lanes = builder.CreateInsertElement(lanes, scalar(builder.CreateExtractElement(x, i)), i);
  }
  return lanes;
}

absl::StatusOr<llvm::Value*> IntrinsicLowering::Replace(llvm::CallInst& call,
                                                        llvm::IRBuilder<>& builder) {
  const absl::string_view name = NameOf(call);
  const absl::string_view base = BaseNameOf(call);
  llvm::Module& module = *function_.getParent();
  if (const Id* id = Find(kIds, name); id != nullptr) return LoadMember(builder, id->offset);
  static constexpr absl::string_view kAxes = "xyz";
  for (size_t d = 0; d < kAxes.size(); ++d) {
    const absl::string_view axis = kAxes.substr(d, 1);
    if (name == absl::StrCat("llvm.nvvm.read.ptx.sreg.ntid.", axis)) {
      return builder.getInt32(static_cast<uint32_t>(items_[d]));
    }
    if (name == absl::StrCat("llvm.nvvm.read.ptx.sreg.nctaid.", axis)) {
      return builder.getInt32(static_cast<uint32_t>(groups_[d]));
    }
  }
  if (name == "llvm.nvvm.read.ptx.sreg.laneid") {
    return builder.CreateURem(LoadMember(builder, offsetof(WorkItem, index)),
                              builder.getInt32(static_cast<uint32_t>(wave_)));
  }
  if (IsBarrier(call)) {
    // Of NVIDIA's sixteen barriers one serves.
    if (call.arg_size() == 1) {
      const auto* const number = llvm::dyn_cast<llvm::ConstantInt>(call.getArgOperand(0));
      if (number == nullptr || !number->isZero()) {
        return absl::UnimplementedError(absl::StrCat(name, " of another barrier than 0"));
      }
    }
    const llvm::FunctionCallee barrier = module.getOrInsertFunction(
        "beamd_emu_barrier",
        llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy(), builder.getInt32Ty()},
                                false));
    builder.CreateCall(barrier, {function_.getArg(0),
                                 builder.getInt32(static_cast<uint32_t>(kernel_.barriers++))});
    return nullptr;
  }
  if (Contains(kNothing, name)) return nullptr;
  for (const MatrixOp& op : MatrixOps()) {
    if (op.intrinsic != name) continue;
    if (op.wave != wave_) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " wants waves of ", op.wave, ", the target has ", wave_));
    }
    const int64_t bytes =
        FragmentBytes(op.a, op.in) + FragmentBytes(op.b, op.in) + FragmentBytes(op.c, op.out);
    return Act(call, {CollectiveKind::kMatrix, &op, std::string(name)}, bytes, op.flags, builder);
  }
  if (const Shuffle* s = Find(kShuffles, name); s != nullptr) {
    return Act(call, {s->kind, nullptr, std::string(name)}, s->bytes, 0, builder);
  }
  if (const Library* l = Find(kLibrary, base); l != nullptr) {
    if (call.getType()->getScalarType()->isDoubleTy()) {
      return absl::UnimplementedError(absl::StrCat("the emulator doesn't know ", name));
    }
    return CallLibrary(call, l->function, builder.getFloatTy(), builder);
  }
  if (name == "llvm.nvvm.f2tf32.rna") {
    return CallLibrary(call, "beamd_emu_tf32", builder.getInt32Ty(), builder);
  }
  if (const Generic* g = Find(kGeneric, base); g != nullptr) {
    std::vector<llvm::Value*> operands(call.arg_begin(), call.arg_end());
    return builder.CreateIntrinsic(g->id, {call.getType()}, operands);
  }
  if (const Quotient* q = Find(kQuotients, base); q != nullptr) {
    if (!q->of_one) return builder.CreateFDiv(call.getArgOperand(0), call.getArgOperand(1));
    // AMD's is exact to an ulp for float32 and less, but not for float64.
    if (base == "llvm.amdgcn.rcp" && call.getType()->isDoubleTy()) {
      return absl::UnimplementedError(absl::StrCat("the emulator doesn't know ", name));
    }
    return builder.CreateFDiv(llvm::ConstantFP::get(call.getType(), 1.0), call.getArgOperand(0));
  }
  if (base == "llvm.amdgcn.fract") {
    llvm::Value* const x = call.getArgOperand(0);
    return builder.CreateFSub(x, builder.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x));
  }
  return absl::UnimplementedError(absl::StrCat("the emulator doesn't know ", name));
}

absl::Status IntrinsicLowering::Lower(llvm::CallInst& call) {
  llvm::IRBuilder<> builder(&call);
  BEAMD_ASSIGN_OR_RETURN(llvm::Value* const value, Replace(call, builder));
  if (value != nullptr) {
    if (value->getType() != call.getType()) {
      return absl::UnimplementedError(absl::StrCat(NameOf(call), " of another type"));
    }
    call.replaceAllUsesWith(value);
  }
  call.eraseFromParent();
  return absl::OkStatus();
}

}  // namespace beamd::emu

#include "engine/llvm/emit_body.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/llvm/value.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"

namespace beamd {
namespace {

using llvm::BasicBlock;
using llvm::PHINode;
using llvm::Type;
using llvm::Value;

// What the emitter knows of a node.
struct Emitted {
  Value* value = nullptr;   // in register form
  Value* memory = nullptr;  // the same in memory form, where that came first: bits of a NaN survive
  // An integer that is carried in another width than its dtype's because it provably lies in
  // [lo, hi], inside its dtype: a loop index and what is computed from it. `value` is then an i64,
  // so that an address is one add or a scaled operand, with no sign extension in between that would
  // hide it from LLVM; or what EmitTarget::narrow_indices says.
  bool index = false;
  int64_t lo = 0, hi = 0;
};

struct Accumulator {
  UOp op;
  Value* current = nullptr;   // what the ACC reads as
  Value* assigned = nullptr;  // what ASSIGN left for the next iteration
};

struct Loop {
  UOp range;
  BasicBlock* before = nullptr;
  BasicBlock* header = nullptr;  // null: a single turn, no loop was made
  BasicBlock* after = nullptr;
  PHINode* index = nullptr;
  Value* end = nullptr;
  bool guarded = false;  // may take no turn: `after` is also reached from `before`
  struct Carried {
    size_t accumulator;
    PHINode* phi;
    Value* initial;
  };
  std::vector<Carried> carried;
};

// What VMASKMOV takes at once of a vector: a register or half of one.
struct MaskedPart {
  int first;  // lane
  int count;  // of the vector's lanes
  int wide;   // the register's lanes
  int bits;   // a lane's
  llvm::Intrinsic::ID load, store;
};

class Emitter {
 public:
  Emitter(const LinearProgram& program, EmitTarget& target, llvm::Module& module)
      : program_(program),
        target_(target),
        traits_(target.traits()),
        module_(module),
        context_(module.getContext()),
        b_(context_),
        invariant_(llvm::MDNode::get(context_, {})),
        nodes_(program.ops.empty() ? 0 : program.ops[0].graph().size()) {}

  absl::Status Run();

 private:
  void MakeScopes();
  // Says of a load or store what other accesses can't change it.
  void Annotate(llvm::Instruction* access, UOp buffer);
  absl::Status Emit(UOp u);
  absl::Status EmitSpecial(UOp u);
  absl::Status EmitIndex(UOp u);
  absl::Status EmitLoad(UOp u);
  // Vectors of which single lanes may be off.
  Value* LoadMasked(UOp load, Value* pointer, llvm::Align align, Value* valid);
  void StoreMasked(UOp store, Value* value, Value* pointer, llvm::Align align, Value* valid);
  Value* LoadLanes(UOp load, Value* pointer, Value* valid);
  Value* LoadRegisters(UOp load, Value* pointer, llvm::Align align, Value* valid);
  void StoreRegisters(UOp store, Value* value, Value* pointer, Value* valid);
  Value* Part(Value* vector, int first, int count, int wide);
  Value* SignMask(Value* valid, const MaskedPart& part);
  absl::Status EmitStore(UOp u);
  void StoreLanes(UOp store, Value* value, Value* pointer, Value* valid);
  absl::Status EmitVectorize(UOp u);
  absl::Status EmitGep(UOp u);
  absl::Status EmitArithmetic(UOp u);
  bool EmitIndexArithmetic(UOp u);
  absl::Status OpenLoop(UOp range);
  absl::Status CloseLoop(UOp range);
  void FlushStores();

  // Operand in register form; null for a node that has no value (checked by Emit beforehand).
  Value* Get(UOp u);
  // With bounds; absent where they aren't known.
  std::optional<Emitted> AsIndex(UOp u);
  // What carries an index in [lo, hi].
  Type* IndexType(int64_t lo, int64_t hi);
  Value* Extended(const Emitted& index, Type* type);
  void SetIndex(UOp u, Value* value, int64_t lo, int64_t hi) {
    nodes_[u.id()] = {value, nullptr, true, lo, hi};
  }
  Type* TypeOf(DType dtype) const { return RegisterType(context_, traits_.alu, dtype); }
  Type* MemoryTypeOf(DType dtype) const { return MemoryType(context_, traits_.alu, dtype); }
  void Set(UOp u, Value* value) { nodes_[u.id()] = {value}; }
  Accumulator* FindAccumulator(UOp acc);
  // Of a DEFINE_GLOBAL among the image's buffers; their number where it is none of them.
  size_t PlaceOf(UOp buffer) const {
    const auto& buffers = program_.image.buffers;
    const auto slot = static_cast<int32_t>(buffer.data<BufferArg>().id);
    return std::ranges::find(buffers, slot, &KernelImage::Buffer::slot) - buffers.begin();
  }
  Value* Zeroes(Type* type);
  // The load, or zero where `valid` is false.
  Value* GuardedLoad(Type* type, Value* pointer, llvm::Align align, Value* valid, UOp buffer);
  Value* LoadFrom(Type* type, Value* pointer, llvm::Align align, UOp buffer);
  llvm::Align AlignmentOf(UOp access, Scalar s) const;
  bool IsStreamed(UOp store, llvm::Align align) const;
  BasicBlock* NewBlock() {
    return BasicBlock::Create(context_, "", b_.GetInsertBlock()->getParent());
  }
  absl::Status Broken(UOp u, absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(Name(u.op()), " (node ", u.id(), "): ", why));
  }

  const LinearProgram& program_;
  EmitTarget& target_;
  const TargetTraits& traits_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  Builder b_;
  llvm::MDNode* const invariant_;  // says yes wherever it is attached
  struct Scope {
    llvm::MDNode* own = nullptr;
    llvm::MDNode* others = nullptr;
  };
  std::vector<Scope> scopes_;   // as the image's buffers
  std::vector<Emitted> nodes_;  // by op id
  std::vector<Accumulator> accumulators_;
  std::vector<Loop> loops_;
  llvm::GlobalVariable* zeroes_ = nullptr;
  uint64_t zeroes_bytes_ = 0;

  // Guarded stores waiting for others under the same guard, so that they share one branch.
  struct PendingStore {
    Value* value;
    Value* pointer;
    llvm::Align align;
    UOp buffer;
  };
  UOp pending_guard_;
  std::vector<PendingStore> pending_;
};

bool IsTrue(UOp u) { return u.is_const_int(1); }

bool Fits(int64_t lo, int64_t hi, Scalar s) {
  if (s == Scalar::kUint64) return lo >= 0;
  return lo >= MinInt(s) && hi <= MaxInt(s);
}

Value* Emitter::Get(UOp u) {
  const Emitted& e = nodes_[u.id()];
  if (u.is(Op::kAcc) || u.is(Op::kAssign)) {
    const Accumulator* acc = FindAccumulator(u.is(Op::kAcc) ? u : u.src(0));
    return u.is(Op::kAcc) ? acc->current : acc->assigned;
  }
  if (!e.index) return e.value;
  return b_.CreateIntCast(e.value, TypeOf(u.dtype()), /*isSigned=*/e.lo < 0);
}

Type* Emitter::IndexType(int64_t lo, int64_t hi) {
  return traits_.narrow_indices && Fits(lo, hi, Scalar::kInt32) ? b_.getInt32Ty() : b_.getInt64Ty();
}

Value* Emitter::Extended(const Emitted& index, Type* type) {
  if (index.value->getType() == type) return index.value;
  if (index.lo < 0) return b_.CreateSExt(index.value, type);
  return b_.CreateZExt(index.value, type, "", /*IsNonNeg=*/true);
}

std::optional<Emitted> Emitter::AsIndex(UOp u) {
  if (nodes_[u.id()].index) return nodes_[u.id()];
  return std::nullopt;
}

Accumulator* Emitter::FindAccumulator(UOp acc) {
  const auto it = std::ranges::find(accumulators_, acc, &Accumulator::op);
  return it == accumulators_.end() ? nullptr : &*it;
}

// Memory that reads as zero, for loads that must not touch their buffer.
Value* Emitter::Zeroes(Type* type) {
  const uint64_t bytes = module_.getDataLayout().getTypeAllocSize(type);
  if (bytes > zeroes_bytes_) {
    auto* array = llvm::ArrayType::get(b_.getInt8Ty(), bytes);
    auto* larger = new llvm::GlobalVariable(
        module_, array, /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
        llvm::ConstantAggregateZero::get(array), "", nullptr, llvm::GlobalValue::NotThreadLocal,
        traits_.buffer_space);
    larger->setAlignment(llvm::Align(64));
    larger->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
    if (zeroes_ != nullptr) {
      zeroes_->replaceAllUsesWith(larger);
      zeroes_->eraseFromParent();
    }
    zeroes_ = larger;
    zeroes_bytes_ = bytes;
  }
  return zeroes_;
}

llvm::Align Emitter::AlignmentOf(UOp access, Scalar s) const {
  const std::vector<int32_t>& known = program_.index_alignment;
  const int64_t elements =
      access.id() < known.size() ? std::max(known[access.id()], int32_t{1}) : int64_t{1};
  const int64_t bytes = elements * SizeBytes(s);
  const int64_t memory = access.src(0).src(0).is(Op::kDefineLocal) ? 16 : 64;
  return llvm::Align(std::min<int64_t>(bytes & -bytes, memory));
}

// Reads of a buffer that is never written need no scope: they are invariant. Between buffers that
// are written a scope each says that they don't overlap.
void Emitter::MakeScopes() {
  const std::vector<KernelImage::Buffer>& buffers = program_.image.buffers;
  scopes_.resize(buffers.size());
  if (std::ranges::count(buffers, true, &KernelImage::Buffer::written) < 2) return;
  llvm::MDBuilder metadata(context_);
  llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain();
  std::vector<llvm::Metadata*> all;
  all.reserve(buffers.size());
  for (const KernelImage::Buffer& buffer : buffers) {
    all.push_back(buffer.written ? metadata.createAnonymousAliasScope(domain) : nullptr);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i].written) continue;
    std::vector<llvm::Metadata*> others;
    for (size_t j = 0; j < buffers.size(); ++j) {
      if (j != i && buffers[j].written) others.push_back(all[j]);
    }
    scopes_[i] = {llvm::MDNode::get(context_, all[i]), llvm::MDNode::get(context_, others)};
  }
}

void Emitter::Annotate(llvm::Instruction* access, UOp buffer) {
  if (!buffer.is(Op::kDefineGlobal)) return;
  const size_t place = PlaceOf(buffer);
  if (!program_.image.buffers[place].written) {
    access->setMetadata(llvm::LLVMContext::MD_invariant_load, invariant_);
  } else if (scopes_[place].own != nullptr) {
    access->setMetadata(llvm::LLVMContext::MD_alias_scope, scopes_[place].own);
    access->setMetadata(llvm::LLVMContext::MD_noalias, scopes_[place].others);
  }
}

absl::Status Emitter::Run() {
  target_.Begin(b_);
  MakeScopes();
  for (const UOp u : program_.ops) {
    for (const UOp s : u.src()) {
      const bool opened = s.is(Op::kAcc) && FindAccumulator(s) != nullptr;
      // An ACC stands before its ranges; a SINK only names the stores, and a BARRIER only orders.
      const bool no_operand = u.is(Op::kSink | Op::kBarrier) || s.is(Op::kBarrier) ||
                              (u.is(Op::kAcc) && s.is(Op::kRange));
      if (!opened && !no_operand && nodes_[s.id()].value == nullptr) {
        return Broken(u, absl::StrCat("source ", Name(s.op()), " has no value yet"));
      }
    }
    BEAMD_RETURN_IF_ERROR(Emit(u));
  }
  FlushStores();
  if (!loops_.empty()) return Broken(loops_.back().range, "is never closed");
  target_.End(b_);
  return absl::OkStatus();
}

absl::Status Emitter::Emit(UOp u) {
  switch (u.op()) {
    case Op::kDefineGlobal: {
      const size_t place = PlaceOf(u);
      if (place == target_.buffers().size()) return Broken(u, "its slot is missing from the image");
      Set(u, target_.buffers()[place]);
      return absl::OkStatus();
    }
    case Op::kDefineVar: {
      const auto& variable = u.data<VariableArg>();
      const auto& variables = program_.image.variables;
      const auto it = std::ranges::find(variables, variable.name, &KernelImage::Variable::name);
      if (it == variables.end()) return Broken(u, "is missing from the image");
      Value* value = target_.variables()[it - variables.begin()];
      if (Fits(variable.min, variable.max, u.scalar())) {
        Type* type = IndexType(variable.min, variable.max);
        SetIndex(u, b_.CreateTrunc(value, type), variable.min, variable.max);
      } else {
        Set(u, b_.CreateTrunc(value, TypeOf(u.dtype())));
      }
      return absl::OkStatus();
    }
    case Op::kConst: {
      if (IsFloat(u.scalar())) {
        Set(u, llvm::ConstantFP::get(TypeOf(u.dtype()), u.float_value()));
      } else if (IsInt(u.scalar()) && u.lanes() == 1 &&
                 Fits(u.int_value(), u.int_value(), u.scalar())) {
        const int64_t value = u.int_value();
        SetIndex(u, llvm::ConstantInt::getSigned(IndexType(value, value), value), value, value);
      } else {
        llvm::Constant* value = IntConstant(context_, u.scalar(), u.int_value());
        Set(u, u.lanes() == 1 ? value
                              : llvm::ConstantVector::getSplat(
                                    llvm::ElementCount::getFixed(u.lanes()), value));
      }
      return absl::OkStatus();
    }
    case Op::kVConst: {
      std::vector<llvm::Constant*> lanes;
      for (const int64_t lane : u.data<LanesArg>().lanes) {
        lanes.push_back(IsFloat(u.scalar()) ? FloatConstant(context_, traits_.alu, u.scalar(),
                                                            std::bit_cast<double>(lane))
                                            : IntConstant(context_, u.scalar(), lane));
      }
      if (static_cast<int>(lanes.size()) != u.lanes()) return Broken(u, "wrong number of lanes");
      Set(u, lanes.size() == 1 ? lanes[0] : llvm::ConstantVector::get(lanes));
      return absl::OkStatus();
    }
    case Op::kSpecial:
      return EmitSpecial(u);
    case Op::kDefineLocal: {
      BEAMD_ASSIGN_OR_RETURN(Value * memory, target_.SharedMemory(u, MemoryTypeOf(u.scalar())));
      Set(u, memory);
      return absl::OkStatus();
    }
    case Op::kBarrier:
      FlushStores();
      return target_.Barrier(b_, u);
    case Op::kWmma: {
      BEAMD_ASSIGN_OR_RETURN(Value * product, target_.MatrixProduct(b_, u, Get(u.src(0)),
                                                                    Get(u.src(1)), Get(u.src(2))));
      Set(u, product);
      return absl::OkStatus();
    }
    case Op::kRange:
      return OpenLoop(u);
    case Op::kEndLoop:
      return CloseLoop(u.src(0));
    case Op::kAcc:
      accumulators_.push_back({u, Get(u.src(0)), Get(u.src(0))});
      return absl::OkStatus();
    case Op::kAssign: {
      Accumulator* acc = FindAccumulator(u.src(0));
      if (acc == nullptr) return Broken(u, "assigns to no accumulator");
      acc->assigned = Get(u.src(1));
      Set(u, acc->assigned);  // marks it as seen: Get reads the accumulator
      return absl::OkStatus();
    }
    case Op::kIndex:
      return EmitIndex(u);
    case Op::kLoad:
      return EmitLoad(u);
    case Op::kStore:
      return EmitStore(u);
    case Op::kVectorize:
      return EmitVectorize(u);
    case Op::kGep:
      return EmitGep(u);
    case Op::kSink:
      return absl::OkStatus();
    default:
      return EmitArithmetic(u);
  }
}

absl::Status Emitter::EmitSpecial(UOp u) {
  const std::optional<Emitted> extent = AsIndex(u.src(0));
  if (!extent || extent->hi < 0) return Broken(u, "its extent has no bounds");
  const int64_t count = std::max<int64_t>(extent->hi, 1);
  BEAMD_ASSIGN_OR_RETURN(Value * index, target_.LaunchIndex(b_, u, count));
  Type* type = IndexType(0, count);
  SetIndex(u, b_.CreateZExtOrTrunc(index, type), 0, count - 1);
  if (extent->lo < extent->hi || extent->hi == 0) {
    FlushStores();
    target_.LeaveUnless(b_, b_.CreateICmpULT(nodes_[u.id()].value, Extended(*extent, type)));
  }
  return absl::OkStatus();
}

absl::Status Emitter::OpenLoop(UOp range) {
  FlushStores();
  const std::optional<Emitted> extent = AsIndex(range.src(0));
  const int64_t max_extent = extent ? extent->hi : MaxInt(range.scalar());
  const bool is_constant = extent && extent->lo == extent->hi;
  Loop& loop = loops_.emplace_back();
  loop.range = range;
  const int64_t last = std::max<int64_t>(max_extent - 1, 0);
  if (is_constant && max_extent == 1 && range != program_.slice_range) {
    SetIndex(range, llvm::ConstantInt::get(IndexType(0, 0), 0), 0, 0);
    return absl::OkStatus();
  }
  Type* const type = IndexType(std::min<int64_t>(extent ? extent->lo : 0, 0), max_extent);
  const auto [begin, end, cut] = target_.BoundsOf(
      b_, range, extent ? Extended(*extent, type) : b_.CreateSExt(Get(range.src(0)), type));
  loop.end = end;
  loop.guarded = cut || !is_constant || max_extent < 1;
  loop.before = b_.GetInsertBlock();
  loop.header = NewBlock();
  loop.after = NewBlock();
  if (loop.guarded) {
    b_.CreateCondBr(b_.CreateICmpSLT(begin, loop.end), loop.header, loop.after);
  } else {
    b_.CreateBr(loop.header);
  }
  b_.SetInsertPoint(loop.header);
  loop.index = b_.CreatePHI(type, 2);
  loop.index->addIncoming(begin, loop.before);
  SetIndex(range, loop.index, 0, last);
  for (size_t i = 0; i < accumulators_.size(); ++i) {
    Accumulator& acc = accumulators_[i];
    if (std::ranges::find(acc.op.src().subspan(1), range) == acc.op.src().end()) continue;
    Value* initial = acc.current;
    PHINode* phi = b_.CreatePHI(initial->getType(), 2);
    phi->addIncoming(initial, loop.before);
    loop.carried.push_back({i, phi, initial});
    acc.current = acc.assigned = phi;
  }
  return absl::OkStatus();
}

absl::Status Emitter::CloseLoop(UOp range) {
  FlushStores();
  if (loops_.empty() || loops_.back().range != range) {
    return Broken(range, "closed while another loop is open inside it");
  }
  const Loop loop = std::move(loops_.back());
  loops_.pop_back();
  if (loop.header == nullptr) {
    for (Accumulator& acc : accumulators_) {
      if (std::ranges::find(acc.op.src().subspan(1), range) != acc.op.src().end()) {
        acc.current = acc.assigned;
      }
    }
    return absl::OkStatus();
  }
  BasicBlock* latch = b_.GetInsertBlock();
  Value* one = llvm::ConstantInt::get(loop.index->getType(), 1);
  Value* next = b_.CreateAdd(loop.index, one, "", /*HasNUW=*/true, /*HasNSW=*/true);
  loop.index->addIncoming(next, latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, loop.end), loop.header, loop.after);
  b_.SetInsertPoint(loop.after);
  for (const Loop::Carried& carried : loop.carried) {
    Accumulator& acc = accumulators_[carried.accumulator];
    carried.phi->addIncoming(acc.assigned, latch);
    Value* final = acc.assigned;
    if (loop.guarded) {
      PHINode* phi = b_.CreatePHI(final->getType(), 2);
      phi->addIncoming(carried.initial, loop.before);
      phi->addIncoming(final, latch);
      final = phi;
    }
    acc.current = acc.assigned = final;
  }
  return absl::OkStatus();
}

absl::Status Emitter::EmitIndex(UOp u) {
  UOp index = u.src(1);
  if (index.lanes() != 1) return Broken(u, "its index is a vector");
  int64_t constant = 0;
  if (traits_.narrow_indices && index.is(Op::kAdd) && index.src(1).is_const() &&
      AsIndex(index.src(0))) {
    constant = index.src(1).int_value();
    index = index.src(0);
  }
  const std::optional<Emitted> known = AsIndex(index);
  Value* offset = known                        ? Extended(*known, b_.getInt64Ty())
                  : IsUnsigned(index.scalar()) ? b_.CreateZExtOrTrunc(Get(index), b_.getInt64Ty())
                                               : b_.CreateSExtOrTrunc(Get(index), b_.getInt64Ty());
  Type* element = MemoryTypeOf(u.src(0).scalar());
  Value* address = Get(u.src(0));
  // Where single lanes may be off, the address of lane 0 may lie outside; so may what a constant is
  // yet added to.
  const bool may_leave = constant != 0 || (u.src_count() > 2 && u.src(2).lanes() > 1);
  address = may_leave ? b_.CreateGEP(element, address, offset)
                      : b_.CreateInBoundsGEP(element, address, offset);
  if (constant != 0) address = b_.CreateConstGEP1_64(element, address, constant);
  Set(u, address);
  return absl::OkStatus();
}

absl::Status Emitter::EmitLoad(UOp u) {
  const UOp index = u.src(0);
  if (!index.is(Op::kIndex)) return Broken(u, "reads from no INDEX");
  const UOp buffer = index.src(0);
  if (std::ranges::find(pending_, buffer, &PendingStore::buffer) != pending_.end()) FlushStores();
  const UOp valid = index.src_count() > 2 ? index.src(2) : UOp();
  const Scalar s = u.scalar();
  Type* type = MemoryTypeOf(u.dtype());
  const llvm::Align align = AlignmentOf(u, s);
  Value* pointer = Get(index);
  Value* memory = nullptr;
  if (valid && valid.lanes() > 1) {
    if (valid.lanes() != u.lanes()) return Broken(u, "valid has another lane count");
    memory = LoadMasked(u, pointer, align, Get(valid));
  } else if (valid && !IsTrue(valid)) {
    memory = GuardedLoad(type, pointer, align, Get(valid), buffer);
  } else {
    memory = LoadFrom(type, pointer, align, buffer);
  }
  nodes_[u.id()] = {FromMemory(b_, traits_.alu, memory, s), memory};
  return absl::OkStatus();
}

Value* Emitter::LoadFrom(Type* type, Value* pointer, llvm::Align align, UOp buffer) {
  llvm::LoadInst* load = b_.CreateAlignedLoad(type, pointer, align);
  Annotate(load, buffer);
  return load;
}

// From its address or from zeroes: no branch. Shared memory has no constant in it, so there a load
// branches.
Value* Emitter::GuardedLoad(Type* type, Value* pointer, llvm::Align align, Value* valid,
                            UOp buffer) {
  if (buffer.is(Op::kDefineGlobal)) {
    return LoadFrom(type, b_.CreateSelect(valid, pointer, Zeroes(type)), align, buffer);
  }
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* taken = NewBlock();
  BasicBlock* after = NewBlock();
  b_.CreateCondBr(valid, taken, after);
  b_.SetInsertPoint(taken);
  Value* loaded = LoadFrom(type, pointer, align, buffer);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  PHINode* either = b_.CreatePHI(type, 2);
  either->addIncoming(loaded, taken);
  either->addIncoming(llvm::Constant::getNullValue(type), before);
  return either;
}

// LLVM 22's code for AVX takes a mask whose lanes turn out to be all off for one whose lanes are all
// on, and an odd width makes it meet more of those. So a width is a power of two, the lanes behind
// the vector being off, and AVX without AVX-512's masks gets its own instructions.
Value* Emitter::LoadMasked(UOp load, Value* pointer, llvm::Align align, Value* valid) {
  if (traits_.masking == Masking::kLanes || SizeBytes(load.scalar()) < 4) {
    return LoadLanes(load, pointer, valid);
  }
  if (traits_.masking == Masking::kAvx) return LoadRegisters(load, pointer, align, valid);
  const int lanes = load.lanes();
  const int wide = static_cast<int>(std::bit_ceil(static_cast<unsigned>(lanes)));
  Type* type = MemoryTypeOf(load.dtype().WithLanes(wide));
  llvm::CallInst* all = b_.CreateMaskedLoad(type, pointer, align, Part(valid, 0, lanes, wide),
                                            llvm::Constant::getNullValue(type));
  Annotate(all, load.src(0).src(0));
  return Part(all, 0, lanes, lanes);
}

void Emitter::StoreMasked(UOp store, Value* value, Value* pointer, llvm::Align align,
                          Value* valid) {
  const UOp buffer = store.src(0).src(0);
  const Scalar s = buffer.scalar();
  if (traits_.masking == Masking::kLanes ||
      (traits_.masking == Masking::kAvx && SizeBytes(s) < 4)) {
    return StoreLanes(store, value, pointer, valid);
  }
  if (traits_.masking == Masking::kAvx) return StoreRegisters(store, value, pointer, valid);
  const int lanes = store.src(1).lanes();
  const int wide = static_cast<int>(std::bit_ceil(static_cast<unsigned>(lanes)));
  if (s == Scalar::kFloat16) {
    value = b_.CreateBitCast(value, MemoryTypeOf(DType(Scalar::kInt16, lanes)));
  }
  Annotate(b_.CreateMaskedStore(Part(value, 0, lanes, wide), pointer, align,
                                Part(valid, 0, lanes, wide)),
           buffer);
}

// Lanes [first, first + count) of a vector, and `wide - count` lanes of zeroes behind them.
Value* Emitter::Part(Value* vector, int first, int count, int wide) {
  auto* type = llvm::cast<llvm::FixedVectorType>(vector->getType());
  const int lanes = static_cast<int>(type->getNumElements());
  if (first == 0 && count == lanes && wide == lanes) return vector;
  std::vector<int> places(wide, lanes);
  std::iota(places.begin(), places.begin() + count, first);
  return b_.CreateShuffleVector(vector, llvm::Constant::getNullValue(type), places);
}

std::vector<MaskedPart> MaskedParts(Scalar s, int lanes) {
  namespace x86 = llvm::Intrinsic;
  const int bits = 8 * SizeBytes(s);
  const bool is_long = bits == 64;
  const int half = 128 / bits;
  std::vector<MaskedPart> parts;
  for (int first = 0; first < lanes; first += 2 * half) {
    const int count = std::min(lanes - first, 2 * half);
    if (count <= half) {
      parts.push_back({first, count, half, bits,
                       is_long ? x86::x86_avx_maskload_pd : x86::x86_avx_maskload_ps,
                       is_long ? x86::x86_avx_maskstore_pd : x86::x86_avx_maskstore_ps});
    } else {
      parts.push_back({first, count, 2 * half, bits,
                       is_long ? x86::x86_avx_maskload_pd_256 : x86::x86_avx_maskload_ps_256,
                       is_long ? x86::x86_avx_maskstore_pd_256 : x86::x86_avx_maskstore_ps_256});
    }
  }
  return parts;
}

// True if a lane of a mask is off, or on, whatever the kernel's arguments.
bool IsAlways(bool on, Value* valid, int lane) {
  if (const auto* constant = llvm::dyn_cast<llvm::Constant>(valid)) {
    const llvm::Constant* element = constant->getAggregateElement(lane);
    return element != nullptr && (on ? element->isOneValue() : element->isNullValue());
  }
  const auto* both = llvm::dyn_cast<llvm::BinaryOperator>(valid);
  if (on || both == nullptr || both->getOpcode() != llvm::Instruction::And) return false;
  return IsAlways(on, both->getOperand(0), lane) || IsAlways(on, both->getOperand(1), lane);
}

bool AreAlways(bool on, Value* valid, const MaskedPart& part) {
  for (int i = 0; i < part.count; ++i) {
    if (!IsAlways(on, valid, part.first + i)) return false;
  }
  return true;
}

// VMASKMOV goes by the signs of a register's lanes.
Value* Emitter::SignMask(Value* valid, const MaskedPart& part) {
  Value* mask = Part(valid, part.first, part.count, part.wide);
  Type* sign = b_.getIntNTy(part.bits);
  return b_.CreateSExt(mask, llvm::FixedVectorType::get(sign, part.wide));
}

Value* Emitter::LoadRegisters(UOp load, Value* pointer, llvm::Align align, Value* valid) {
  const UOp buffer = load.src(0).src(0);
  const Scalar s = load.scalar();
  const int lanes = load.lanes();
  Value* vector = llvm::Constant::getNullValue(MemoryTypeOf(load.dtype()));
  for (const MaskedPart& part : MaskedParts(s, lanes)) {
    if (AreAlways(false, valid, part)) continue;
    Value* address = b_.CreateConstGEP1_64(MemoryTypeOf(s), pointer, part.first);
    Value* loaded = nullptr;
    if (part.count > 1 && AreAlways(true, valid, part)) {
      loaded = LoadFrom(MemoryTypeOf(DType(s, part.count)), address,
                        llvm::commonAlignment(align, int64_t{part.first} * SizeBytes(s)), buffer);
    } else {
      llvm::CallInst* call = b_.CreateIntrinsic(part.load, {address, SignMask(valid, part)});
      Annotate(call, buffer);
      loaded = b_.CreateBitCast(call, MemoryTypeOf(DType(s, part.wide)));
    }
    if (part.first == 0 && part.count == lanes) return Part(loaded, 0, lanes, lanes);
    std::vector<int> merge(lanes);
    std::iota(merge.begin(), merge.end(), 0);
    std::iota(merge.begin() + part.first, merge.begin() + part.first + part.count, lanes);
    vector = b_.CreateShuffleVector(vector, Part(loaded, 0, part.count, lanes), merge);
  }
  return vector;
}

void Emitter::StoreRegisters(UOp store, Value* value, Value* pointer, Value* valid) {
  const UOp buffer = store.src(0).src(0);
  const Scalar s = buffer.scalar();
  Type* element = SizeBytes(s) == 8 ? b_.getDoubleTy() : b_.getFloatTy();
  for (const MaskedPart& part : MaskedParts(s, store.src(1).lanes())) {
    if (AreAlways(false, valid, part)) continue;
    Value* address = b_.CreateConstGEP1_64(MemoryTypeOf(s), pointer, part.first);
    Value* stored = b_.CreateBitCast(Part(value, part.first, part.count, part.wide),
                                     llvm::FixedVectorType::get(element, part.wide));
    Annotate(b_.CreateIntrinsic(part.store, {address, SignMask(valid, part), stored}), buffer);
  }
}

// Lane by lane: LLVM would branch on every lane.
Value* Emitter::LoadLanes(UOp load, Value* pointer, Value* valid) {
  Type* element = MemoryTypeOf(load.scalar());
  const llvm::Align align(SizeBytes(load.scalar()));
  Value* vector = llvm::PoisonValue::get(MemoryTypeOf(load.dtype()));
  for (int i = 0; i < load.lanes(); ++i) {
    Value* address = b_.CreateConstGEP1_64(element, pointer, i);
    Value* lane =
        GuardedLoad(element, address, align, b_.CreateExtractElement(valid, i), load.src(0).src(0));
    vector = b_.CreateInsertElement(vector, lane, i);
  }
  return vector;
}

absl::Status Emitter::EmitStore(UOp u) {
  const UOp index = u.src(0);
  if (!index.is(Op::kIndex)) return Broken(u, "writes to no INDEX");
  const UOp stored = u.src(1);
  const UOp valid = index.src_count() > 2 ? index.src(2) : UOp();
  const Scalar s = index.src(0).scalar();
  if (stored.scalar() != s) return Broken(u, "stores another type than its buffer's");
  Value* value = nodes_[stored.id()].memory;
  if (value == nullptr) value = ToMemory(b_, traits_.alu, Get(stored), s);
  Value* pointer = Get(index);
  const llvm::Align align = AlignmentOf(u, s);
  if (valid && !IsTrue(valid) && valid.lanes() == 1) {
    if (pending_guard_ != valid) FlushStores();
    pending_guard_ = valid;
    pending_.push_back({value, pointer, align, index.src(0)});
    return absl::OkStatus();
  }
  FlushStores();
  if (valid && valid.lanes() > 1) {
    if (valid.lanes() != stored.lanes()) return Broken(u, "valid has another lane count");
    StoreMasked(u, value, pointer, align, Get(valid));
  } else {
    llvm::StoreInst* store = b_.CreateAlignedStore(value, pointer, align);
    Annotate(store, index.src(0));
    if (IsStreamed(u, align)) {
      // LangRef, "nontemporal": a node whose only entry is the i32 1.
      llvm::Metadata* one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
      store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context_, one));
    }
  }
  return absl::OkStatus();
}

void Emitter::StoreLanes(UOp store, Value* value, Value* pointer, Value* valid) {
  const UOp buffer = store.src(0).src(0);
  Type* element = MemoryTypeOf(buffer.scalar());
  for (int i = 0; i < store.src(1).lanes(); ++i) {
    BasicBlock* taken = NewBlock();
    BasicBlock* after = NewBlock();
    b_.CreateCondBr(b_.CreateExtractElement(valid, i), taken, after);
    b_.SetInsertPoint(taken);
    Annotate(b_.CreateAlignedStore(b_.CreateExtractElement(value, i),
                                   b_.CreateConstGEP1_64(element, pointer, i),
                                   llvm::Align(SizeBytes(buffer.scalar()))),
             buffer);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }
}

// Past the caches, where that is worth it and x86 has an instruction for it: whole aligned vectors.
bool Emitter::IsStreamed(UOp store, llvm::Align align) const {
  const int64_t bytes = int64_t{store.src(1).lanes()} * SizeBytes(store.src(1).scalar());
  return store.id() < program_.streamed.size() && program_.streamed[store.id()] && bytes >= 16 &&
         align.value() >= static_cast<uint64_t>(std::min<int64_t>(bytes, 64));
}

void Emitter::FlushStores() {
  if (pending_.empty()) return;
  BasicBlock* store = NewBlock();
  BasicBlock* after = NewBlock();
  b_.CreateCondBr(Get(pending_guard_), store, after);
  b_.SetInsertPoint(store);
  for (const PendingStore& p : pending_) {
    Annotate(b_.CreateAlignedStore(p.value, p.pointer, p.align), p.buffer);
  }
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  pending_.clear();
  pending_guard_ = UOp();
}

absl::Status Emitter::EmitVectorize(UOp u) {
  Type* type = TypeOf(u.dtype());
  const std::span<const UOp> src = u.src();
  if (u.lanes() == 1) {
    Set(u, Get(src[0]));
    return absl::OkStatus();
  }
  int lanes = 0;
  for (const UOp s : src) lanes += s.lanes();
  if (lanes != u.lanes()) return Broken(u, "its sources have another number of lanes");
  if (src[0].lanes() == 1 && std::ranges::all_of(src, [&](UOp s) { return s == src[0]; })) {
    Set(u, b_.CreateVectorSplat(u.lanes(), Get(src[0])));
    return absl::OkStatus();
  }
  Value* vector = llvm::PoisonValue::get(type);
  int lane = 0;
  for (const UOp s : src) {
    Value* part = Get(s);
    if (s.lanes() == 1) {
      vector = b_.CreateInsertElement(vector, part, b_.getInt64(lane));
    } else {
      std::vector<int> widen(u.lanes(), -1);
      std::vector<int> merge(u.lanes());
      for (int i = 0; i < u.lanes(); ++i) {
        const bool inside = i >= lane && i < lane + s.lanes();
        if (inside) widen[i] = i - lane;
        merge[i] = inside ? u.lanes() + i : i;
      }
      vector = b_.CreateShuffleVector(vector, b_.CreateShuffleVector(part, widen), merge);
    }
    lane += s.lanes();
  }
  Set(u, vector);
  return absl::OkStatus();
}

absl::Status Emitter::EmitGep(UOp u) {
  const std::vector<int64_t>& lanes = u.data<LanesArg>().lanes;
  Value* vector = Get(u.src(0));
  if (static_cast<int>(lanes.size()) != u.lanes()) return Broken(u, "wrong number of lanes");
  for (const int64_t lane : lanes) {
    if (lane < 0 || lane >= u.src(0).lanes()) return Broken(u, "takes a lane that isn't there");
  }
  if (u.src(0).lanes() == 1) {
    Set(u, u.lanes() == 1 ? vector : b_.CreateVectorSplat(u.lanes(), vector));
  } else if (u.lanes() == 1) {
    Set(u, b_.CreateExtractElement(vector, b_.getInt64(lanes[0])));
  } else {
    Set(u, b_.CreateShuffleVector(vector, std::vector<int>(lanes.begin(), lanes.end())));
  }
  return absl::OkStatus();
}

// Integer arithmetic on bounded scalars, as indices and with the wrap flags that the bounds prove.
// False where a bound is missing or the result may leave its dtype: it is then computed in its
// dtype.
bool Emitter::EmitIndexArithmetic(UOp u) {
  if (u.lanes() != 1 || !IsInt(u.scalar()) || u.src_count() == 0) return false;
  const Scalar s = u.scalar();
  if (u.is(Op::kCast)) {
    const std::optional<Emitted> x = AsIndex(u.src(0));
    if (!x || !Fits(x->lo, x->hi, s)) return false;
    SetIndex(u, x->value, x->lo, x->hi);
    return true;
  }
  if (u.src_count() < 2) return false;
  const int first = u.is(Op::kWhere) ? 1 : 0;
  const std::optional<Emitted> x = AsIndex(u.src(first)), y = AsIndex(u.src(first + 1));
  if (!x || !y) return false;
  int64_t lo = 0, hi = 0;
  const bool non_negative = x->lo >= 0 && y->lo >= 0;
  // Computed as wide as the widest of operands and result, kept as wide as the result.
  const auto set = [&](auto compute) {
    Type* kept = IndexType(lo, hi);
    const bool narrow = x->value->getType() == kept && y->value->getType() == kept;
    Type* type = narrow ? kept : b_.getInt64Ty();
    Value* r = compute(Extended(*x, type), Extended(*y, type));
    SetIndex(u, b_.CreateTrunc(r, kept), lo, hi);
    return true;
  };
  switch (u.op()) {
    case Op::kWhere:
      if (u.src(0).lanes() != 1) return false;
      lo = std::min(x->lo, y->lo);
      hi = std::max(x->hi, y->hi);
      return set([&](Value* p, Value* q) { return b_.CreateSelect(Get(u.src(0)), p, q); });
    case Op::kAdd:
      if (__builtin_add_overflow(x->lo, y->lo, &lo) || __builtin_add_overflow(x->hi, y->hi, &hi) ||
          !Fits(lo, hi, s)) {
        return false;
      }
      return set([&](Value* p, Value* q) {
        return b_.CreateAdd(p, q, "", non_negative, /*HasNSW=*/true);
      });
    case Op::kSub:
      if (__builtin_sub_overflow(x->lo, y->hi, &lo) || __builtin_sub_overflow(x->hi, y->lo, &hi) ||
          !Fits(lo, hi, s)) {
        return false;
      }
      return set([&](Value* p, Value* q) {
        return b_.CreateSub(p, q, "", /*HasNUW=*/false, /*HasNSW=*/true);
      });
    case Op::kMul: {
      int64_t corners[4];
      if (__builtin_mul_overflow(x->lo, y->lo, &corners[0]) ||
          __builtin_mul_overflow(x->lo, y->hi, &corners[1]) ||
          __builtin_mul_overflow(x->hi, y->lo, &corners[2]) ||
          __builtin_mul_overflow(x->hi, y->hi, &corners[3])) {
        return false;
      }
      lo = *std::ranges::min_element(corners);
      hi = *std::ranges::max_element(corners);
      if (!Fits(lo, hi, s)) return false;
      return set([&](Value* p, Value* q) {
        return b_.CreateMul(p, q, "", non_negative, /*HasNSW=*/true);
      });
    }
    case Op::kMax:
      lo = std::max(x->lo, y->lo);
      hi = std::max(x->hi, y->hi);
      return set([&](Value* p, Value* q) {
        return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, p, q);
      });
    case Op::kIdiv:
    case Op::kMod: {
      const int64_t divisor = y->lo;
      if (divisor != y->hi || divisor <= 0) return false;
      if (u.is(Op::kIdiv)) {
        lo = x->lo / divisor;
        hi = x->hi / divisor;
        return set([&](Value* p, Value* q) {
          return x->lo >= 0 ? b_.CreateUDiv(p, q) : b_.CreateSDiv(p, q);
        });
      }
      if (x->lo >= 0 && x->hi < divisor) {
        SetIndex(u, x->value, x->lo, x->hi);
        return true;
      }
      lo = x->lo >= 0 ? 0 : std::max(x->lo, 1 - divisor);
      hi = std::max<int64_t>(std::min(x->hi, divisor - 1), 0);
      return set([&](Value* p, Value* q) {
        return x->lo >= 0 ? b_.CreateURem(p, q) : b_.CreateSRem(p, q);
      });
    }
    case Op::kAnd:
      if (!non_negative) return false;
      hi = std::min(x->hi, y->hi);
      return set([&](Value* p, Value* q) { return b_.CreateAnd(p, q); });
    case Op::kShr:
      if (y->lo != y->hi || y->lo < 0 || y->lo >= Bits(s)) return false;
      lo = x->lo >> y->lo;
      hi = x->hi >> y->lo;
      return set([&](Value* p, Value* q) { return b_.CreateAShr(p, q); });
    default:
      return false;
  }
}

absl::Status Emitter::EmitArithmetic(UOp u) {
  if (u.is(Op::kCast) || u.is(Op::kBitcast)) {
    const UOp from = u.src(0);
    if (from.lanes() != u.lanes()) return Broken(u, "changes the number of lanes");
    if (u.is(Op::kCast)) {
      if (EmitIndexArithmetic(u)) return absl::OkStatus();
      Set(u, EmitCast(b_, traits_.alu, Get(from), from.scalar(), u.scalar()));
      return absl::OkStatus();
    }
    if (SizeBytes(from.scalar()) != SizeBytes(u.scalar())) return Broken(u, "changes the width");
    Value* memory = nodes_[from.id()].memory;
    if (memory == nullptr) memory = ToMemory(b_, traits_.alu, Get(from), from.scalar());
    memory = b_.CreateBitCast(memory, MemoryTypeOf(u.dtype()));
    nodes_[u.id()] = {FromMemory(b_, traits_.alu, memory, u.scalar()), memory};
    return absl::OkStatus();
  }
  if (!kAlu.Has(u.op())) return Broken(u, "has no place in a linear program");
  if (EmitIndexArithmetic(u)) return absl::OkStatus();
  llvm::SmallVector<Value*, 3> src;
  for (int i = 0; i < u.src_count(); ++i) {
    const UOp s = u.src(i);
    const bool scalar_condition = u.is(Op::kWhere) && i == 0 && s.lanes() == 1;
    if (s.lanes() != u.lanes() && !scalar_condition) {
      return Broken(u, "mixes vectors of several lengths");
    }
    src.push_back(Get(s));
  }
  const Scalar s = u.src(u.is(Op::kWhere) ? 1 : 0).scalar();
  // Bounded scalars compare as they are carried.
  if (kComparison.Has(u.op()) && u.lanes() == 1) {
    const std::optional<Emitted> x = AsIndex(u.src(0)), y = AsIndex(u.src(1));
    if (x && y) {
      Type* type =
          x->value->getType() == y->value->getType() ? x->value->getType() : b_.getInt64Ty();
      Value* p = Extended(*x, type);
      Value* q = Extended(*y, type);
      Set(u, u.is(Op::kCmpLt) ? b_.CreateICmpSLT(p, q) : b_.CreateICmpNE(p, q));
      return absl::OkStatus();
    }
  }
  absl::StatusOr<Value*> value = EmitAlu(b_, traits_.alu, u.op(), s, src);
  if (!value.ok()) return Broken(u, value.status().message());
  Set(u, *value);
  return absl::OkStatus();
}

}  // namespace

absl::Status EmitBody(const LinearProgram& program, EmitTarget& target, llvm::Module& module) {
  return Emitter(program, target, module).Run();
}

}  // namespace beamd

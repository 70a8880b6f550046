#include "engine/llvm/emit_matrix.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"

namespace beamd {
namespace {

using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

constexpr Scalar kF16 = Scalar::kFloat16, kBf16 = Scalar::kBFloat16, kF32 = Scalar::kFloat32;

struct Row {
  absl::string_view archs;  // prefix of their names
  std::array<int32_t, kTileDims> dims;
  Scalar in, out;
  const char* name;  // behind "llvm."
  // Elements of C and D lie in every other half of the registers that hold them.
  bool spread = false;
};

// PTX ISA, "Matrix multiply-accumulate operation using mma instruction"; AMD RDNA3 and RDNA4 ISA,
// "Wave Matrix Multiply Accumulate"; AMD CDNA3 ISA, "Matrix Arithmetic Instructions".
constexpr Row kRows[] = {
    {"sm_", {8, 16, 16}, kF16, kF32, "nvvm.mma.m16n8k16.row.col.f32.f32"},
    {"sm_", {8, 16, 16}, kBf16, kF32, "nvvm.mma.m16n8k16.row.col.bf16"},
    {"sm_", {8, 16, 8}, kF32, kF32, "nvvm.mma.m16n8k8.row.col.tf32"},
    {"sm_", {8, 16, 8}, kF16, kF32, "nvvm.mma.m16n8k8.row.col.f32.f32"},
    {"gfx1", {16, 16, 16}, kF16, kF32, "amdgcn.wmma.f32.16x16x16.f16"},
    {"gfx12", {16, 16, 16}, kBf16, kF32, "amdgcn.wmma.f32.16x16x16.bf16"},
    {"gfx11", {16, 16, 16}, kF16, kF16, "amdgcn.wmma.f16.16x16x16.f16", true},
    {"gfx12", {16, 16, 16}, kF16, kF16, "amdgcn.wmma.f16.16x16x16.f16"},
    {"gfx9", {16, 16, 16}, kF16, kF32, "amdgcn.mfma.f32.16x16x16f16"},
    {"gfx9", {16, 16, 16}, kBf16, kF32, "amdgcn.mfma.f32.16x16x16bf16.1k"},
};

unsigned LanesOf(const Value* v) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return vector == nullptr ? 1 : vector->getNumElements();
}

// Lanes first.. of `v`, as a scalar for one.
Value* Slice(Builder& b, Value* v, unsigned first, unsigned count) {
  if (LanesOf(v) == count) return v;
  if (count == 1) return b.CreateExtractElement(v, first);
  std::vector<int> lanes(count);
  for (unsigned i = 0; i < count; ++i) lanes[i] = static_cast<int>(first + i);
  return b.CreateShuffleVector(v, lanes);
}

// `v` with an element between any two, or every other element of it.
Value* Spread(Builder& b, Value* v) {
  std::vector<int> lanes(2 * size_t{LanesOf(v)}, -1);
  for (size_t i = 0; i < lanes.size(); i += 2) lanes[i] = static_cast<int>(i / 2);
  return b.CreateShuffleVector(v, lanes);
}
Value* Gather(Builder& b, Value* v) {
  std::vector<int> lanes(LanesOf(v) / 2);
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = static_cast<int>(2 * i);
  return b.CreateShuffleVector(v, lanes);
}

}  // namespace

absl::StatusOr<Value*> EmitMatrixProduct(Builder& b, const AluTarget& alu, const TargetCaps& caps,
                                         const TensorCore& core, Value* x, Value* y, Value* z) {
  const Row* row = std::ranges::find_if(kRows, [&](const Row& r) {
    return absl::StartsWith(caps.arch, r.archs) && r.dims == core.dims && r.in == core.in &&
           r.out == core.out;
  });
  if (row == std::end(kRows)) {
    return absl::UnimplementedError(absl::StrCat(
        "no instruction of ", caps.arch, " for tiles of ", core.dims[kTileM], "x",
        core.dims[kTileN], "x", core.dims[kTileK], " ", Name(core.in), " to ", Name(core.out)));
  }
  x = ToMemory(b, alu, x, core.in);
  y = ToMemory(b, alu, y, core.in);
  if (row->spread) z = Spread(b, z);
  llvm::LLVMContext& context = b.getContext();
  const ID id = llvm::Intrinsic::lookupIntrinsicID(absl::StrCat("llvm.", row->name));
  // Those for any vectors are told of the result's and the operands'.
  llvm::SmallVector<Type*, 2> overloads;
  if (llvm::Intrinsic::isOverloaded(id)) overloads = {z->getType(), x->getType()};
  llvm::FunctionType* type = llvm::Intrinsic::getType(context, id, overloads);

  // Each operand's lanes go to as many parameters as hold its bits, in order; what is left are
  // switches that stay off.
  std::vector<Value*> arguments;
  const auto add = [&](Value* operand) {
    const unsigned lanes = LanesOf(operand);
    const unsigned bits = operand->getType()->getScalarSizeInBits();
    for (unsigned lane = 0; lane < lanes;) {
      if (arguments.size() >= type->getNumParams()) return false;
      Type* parameter = type->getParamType(static_cast<unsigned>(arguments.size()));
      const auto wanted = static_cast<unsigned>(parameter->getPrimitiveSizeInBits());
      const unsigned count = wanted / bits;
      if (count == 0 || wanted % bits != 0 || lane + count > lanes) return false;
      Value* part = Slice(b, operand, lane, count);
      // PTX ISA, "mma", .tf32: a float32 is rounded first, to nearest, ties away from zero.
      if (part->getType()->isFloatTy() && parameter->isIntegerTy()) {
        part = b.CreateIntrinsic(llvm::Intrinsic::nvvm_f2tf32_rna, {part});
      }
      arguments.push_back(b.CreateBitCast(part, parameter));
      lane += count;
    }
    return true;
  };
  const bool fits = add(x) && add(y) && add(z);
  for (size_t i = arguments.size(); fits && i < type->getNumParams(); ++i) {
    arguments.push_back(llvm::Constant::getNullValue(type->getParamType(static_cast<unsigned>(i))));
  }
  if (!fits || arguments.size() != type->getNumParams()) {
    return absl::InvalidArgumentError(absl::StrCat("WMMA: operands of ", LanesOf(x), ", ",
                                                   LanesOf(y), " and ", LanesOf(z),
                                                   " elements don't fill ", row->name));
  }
  Value* product = b.CreateIntrinsic(id, overloads, arguments);
  if (!product->getType()->isStructTy()) return row->spread ? Gather(b, product) : product;
  Value* vector = llvm::PoisonValue::get(z->getType());
  unsigned lane = 0;
  for (unsigned i = 0; i < product->getType()->getStructNumElements(); ++i) {
    Value* part = b.CreateExtractValue(product, i);
    for (unsigned j = 0; j < LanesOf(part); ++j) {
      vector = b.CreateInsertElement(vector, Slice(b, part, j, 1), lane++);
    }
  }
  return vector;
}

}  // namespace beamd

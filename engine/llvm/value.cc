#include "engine/llvm/value.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/llvm/math.h"
#include "llvm/ADT/APInt.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"

namespace beamd {
namespace {

using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

Type* WithLanesOf(Type* scalar, Type* like) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like);
  return vector != nullptr ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}
Type* IntsLike(Builder& b, Value* v, unsigned bits) {
  return WithLanesOf(b.getIntNTy(bits), v->getType());
}
Value* Int(Value* like, int64_t value) {
  return llvm::ConstantInt::getSigned(like->getType(), value);
}
Value* Float(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }

// One of LLVM's 16-bit floats, or a vector of them.
bool IsShort(Value* v) { return v->getType()->getScalarType()->is16bitFPTy(); }

// A register value of a float type no wider than float32.
Value* AsFloat32(Builder& b, Value* v) {
  return IsShort(v) ? b.CreateFPExt(v, WithLanesOf(b.getFloatTy(), v->getType())) : v;
}

Value* IsNan(Builder& b, Value* v) { return b.CreateFCmpUNO(v, v); }

// float64 to float32 with the last bit set where anything was lost ("round to odd"): rounding the
// result again, to a type with at least two bits less, rounds as if once.
// Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (2008), theorem 3.
Value* ToFloat32Odd(Builder& b, Value* v) {
  Value* nearest = b.CreateFPTrunc(v, WithLanesOf(b.getFloatTy(), v->getType()));
  Value* back = b.CreateFPExt(nearest, v->getType());
  Value* inexact = b.CreateFCmpONE(back, v);
  Value* away = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v));
  Type* ints = IntsLike(b, v, 32);
  Value* bits = b.CreateBitCast(nearest, ints);
  bits = b.CreateAdd(bits, b.CreateSExt(away, ints));  // toward zero
  bits = b.CreateOr(bits, b.CreateZExt(inexact, ints));
  return b.CreateBitCast(bits, nearest->getType());
}

Value* IntToFloat(Builder& b, const AluTarget& target, Value* v, Scalar from, Scalar to) {
  const bool is_signed = IsSigned(from);
  const auto convert = [&](Value* x, Type* scalar) {
    Type* type = WithLanesOf(scalar, x->getType());
    return is_signed ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type);
  };
  if (to == Scalar::kFloat64) return convert(v, b.getDoubleTy());
  if (to == Scalar::kBFloat16 && Bits(from) >= 32) {
    if (Bits(from) == 64) {
      // float64 has 53 bits: past 2^40 fold the low 16 into one sticky bit, which decides the same
      // ties.
      Value* low = b.CreateICmpNE(b.CreateAnd(v, Int(v, 0xFFFF)), Int(v, 0));
      Value* sticky = b.CreateOr(b.CreateAnd(v, Int(v, ~int64_t{0xFFFF})),
                                 b.CreateShl(b.CreateZExt(low, v->getType()), 16));
      const int64_t bound = int64_t{1} << 40;
      Value* big = is_signed ? b.CreateICmpUGE(b.CreateAdd(v, Int(v, bound)), Int(v, 2 * bound))
                             : b.CreateICmpUGE(v, Int(v, bound));
      v = b.CreateSelect(big, sticky, v);
    }
    return RoundTo(b, target, ToFloat32Odd(b, convert(v, b.getDoubleTy())), to);
  }
  // float16: an integer that float32 rounds is past float16's range either way.
  return RoundTo(b, target, convert(v, b.getFloatTy()), to);
}

Value* FloatToInt(Builder& b, const AluTarget& target, Value* v, Scalar to) {
  const int bits = Bits(to);
  Type* result = IntsLike(b, v, bits);
  if (target.gpu) {
    const ID convert = IsSigned(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b.CreateIntrinsic(convert, {result, v->getType()}, {v});
  }
  Type* wide = IntsLike(b, v, std::max(bits, 32));
  const double end = std::ldexp(1.0, IsSigned(to) ? bits - 1 : bits);  // the first beyond
  const auto constant = [&](int64_t value) { return llvm::ConstantInt::getSigned(result, value); };
  // Out of range the conversion is poison; the selects never let it through.
  Value* r = b.CreateTrunc(
      IsSigned(to) || bits < 32 ? b.CreateFPToSI(v, wide) : b.CreateFPToUI(v, wide), result);
  r = b.CreateSelect(b.CreateFCmpOGE(v, Float(v, end)), constant(MaxInt(to)), r);
  if (!IsSigned(to)) return b.CreateSelect(b.CreateFCmpULT(v, Float(v, 0)), constant(0), r);
  r = b.CreateSelect(b.CreateFCmpOLT(v, Float(v, -end)), constant(MinInt(to)), r);
  return b.CreateSelect(IsNan(b, v), constant(0), r);
}

// max(x, y): NaN if either is, +0 over -0. x86's own instruction gives its second operand for NaN
// and for two zeros: of the two orders, `and` picks +0, and a NaN is all ones afterwards.
Value* FloatMax(Builder& b, const AluTarget& target, Value* x, Value* y) {
  if (target.gpu) return b.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, y);
  if (llvm::isa<llvm::Constant>(x)) std::swap(x, y);
  const auto larger = [&b](Value* p, Value* q) {
    return b.CreateSelect(b.CreateFCmpOGT(p, q), p, q);
  };
  if (const auto* constant = llvm::dyn_cast<llvm::Constant>(y)) {
    if (const auto* splat = llvm::dyn_cast_or_null<llvm::ConstantFP>(
            constant->getType()->isVectorTy() ? constant->getSplatValue() : constant)) {
      const llvm::APFloat& c = splat->getValueAPF();
      // Second operand wins ties and NaN.
      Value* r = larger(y, x);
      if (c.isNaN()) return y;
      if (!c.isZero() || c.isNegative()) return r;
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, r);  // clears the sign of -0
    }
  }
  Type* ints = IntsLike(b, x, x->getType()->getScalarSizeInBits());
  Value* both =
      b.CreateAnd(b.CreateBitCast(larger(x, y), ints), b.CreateBitCast(larger(y, x), ints));
  Value* nan = b.CreateSExt(b.CreateFCmpUNO(x, y), ints);
  return b.CreateBitCast(b.CreateOr(both, nan), x->getType());
}

// x / y or x % y, C's truncation, with x/0 = 0, x%0 = 0, MIN/-1 = MIN, MIN%-1 = 0.
Value* Divide(Builder& b, Value* x, Value* y, bool is_signed, bool want_remainder) {
  const auto divide = [&](Value* p, Value* q) {
    if (want_remainder) return is_signed ? b.CreateSRem(p, q) : b.CreateURem(p, q);
    return is_signed ? b.CreateSDiv(p, q) : b.CreateUDiv(p, q);
  };
  bool plain = false;
  if (const auto* constant = llvm::dyn_cast<llvm::Constant>(y)) {
    plain = true;
    const unsigned lanes = y->getType()->isVectorTy()
                               ? llvm::cast<llvm::FixedVectorType>(y->getType())->getNumElements()
                               : 1;
    for (unsigned i = 0; i < lanes; ++i) {
      const auto* lane = llvm::dyn_cast_or_null<llvm::ConstantInt>(
          y->getType()->isVectorTy() ? constant->getAggregateElement(i) : constant);
      plain = plain && lane != nullptr && !lane->isZero() && !(is_signed && lane->isMinusOne());
    }
  }
  if (plain) return divide(x, y);
  Value* zero = b.CreateICmpEQ(y, Int(y, 0));
  Value* unsafe = zero;
  if (is_signed) {
    const unsigned bits = x->getType()->getScalarSizeInBits();
    Value* least = llvm::ConstantInt::get(x->getType(), llvm::APInt::getSignedMinValue(bits));
    Value* overflow = b.CreateAnd(b.CreateICmpEQ(x, least), b.CreateICmpEQ(y, Int(y, -1)));
    unsafe = b.CreateOr(zero, overflow);
  }
  // By 1: MIN stays, and every remainder is 0.
  Value* r = divide(x, b.CreateSelect(unsafe, Int(y, 1), y));
  return want_remainder ? r : b.CreateSelect(zero, Int(r, 0), r);
}

Value* Shift(Builder& b, Op op, Value* x, Value* amount, bool is_signed) {
  const unsigned bits = x->getType()->getScalarSizeInBits();
  Value* fits = b.CreateICmpULT(amount, Int(amount, bits));
  amount = b.CreateZExtOrTrunc(amount, x->getType());
  if (op == Op::kShr && is_signed) {
    return b.CreateAShr(x, b.CreateSelect(fits, amount, Int(amount, bits - 1)));
  }
  Value* r = op == Op::kShl ? b.CreateShl(x, amount) : b.CreateLShr(x, amount);
  return b.CreateSelect(fits, r, Int(x, 0));
}

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): threefry2x32, 20 rounds.
// The low half of each 64-bit operand is word 0.
Value* Threefry(Builder& b, Value* counter, Value* key) {
  Type* words = IntsLike(b, counter, 32);
  const auto split = [&](Value* v) {
    return std::pair{b.CreateTrunc(v, words), b.CreateTrunc(b.CreateLShr(v, 32), words)};
  };
  auto [x0, x1] = split(counter);
  const auto [k0, k1] = split(key);
  Value* const ks[3] = {k0, k1, b.CreateXor(b.CreateXor(k0, k1), Int(k0, 0x1BD11BDA))};
  static constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x0 = b.CreateAdd(x0, ks[0]);
  x1 = b.CreateAdd(x1, ks[1]);
  for (int group = 0; group < 5; ++group) {
    for (const int rotation : kRotations[group % 2]) {
      x0 = b.CreateAdd(x0, x1);
      x1 = b.CreateXor(
          b.CreateIntrinsic(llvm::Intrinsic::fshl, {words}, {x1, x1, Int(x1, rotation)}), x0);
    }
    x0 = b.CreateAdd(x0, ks[(group + 1) % 3]);
    x1 = b.CreateAdd(b.CreateAdd(x1, ks[(group + 2) % 3]), Int(x1, group + 1));
  }
  return b.CreateOr(b.CreateShl(b.CreateZExt(x1, counter->getType()), 32),
                    b.CreateZExt(x0, counter->getType()));
}

absl::Status NoMeaning(Op op, Scalar s) {
  return absl::InvalidArgumentError(absl::StrCat(Name(op), " has no meaning on ", Name(s)));
}

// As integers of one bit whose sums stay within the type: a + b is a or b.
absl::StatusOr<Value*> BoolAlu(Builder& b, Op op, llvm::ArrayRef<Value*> src) {
  Value* x = src[0];
  Value* y = src[src.size() > 1 ? 1 : 0];
  switch (op) {
    case Op::kNeg:
      return x;
    case Op::kAdd:
    case Op::kOr:
    case Op::kMax:
      return b.CreateOr(x, y);
    case Op::kMul:
    case Op::kAnd:
    case Op::kIdiv:  // x/1 is x, x/0 is 0
      return b.CreateAnd(x, y);
    case Op::kXor:
    case Op::kCmpNe:
    case Op::kSub:
      return b.CreateXor(x, y);
    case Op::kCmpLt:
      return b.CreateAnd(b.CreateNot(x), y);
    case Op::kMod:
      return Int(x, 0);
    case Op::kShl:
    case Op::kShr:  // by 1 or more: nothing is left
      return b.CreateAnd(x, b.CreateNot(y));
    case Op::kMulAcc:
      return b.CreateOr(b.CreateAnd(x, y), src[2]);
    default:
      return NoMeaning(op, Scalar::kBool);
  }
}

absl::StatusOr<Value*> IntAlu(Builder& b, Op op, Scalar s, llvm::ArrayRef<Value*> src) {
  const bool is_signed = IsSigned(s);
  Value* x = src[0];
  Value* y = src[src.size() > 1 ? 1 : 0];
  switch (op) {
    case Op::kNeg:
      return b.CreateNeg(x);
    case Op::kAdd:
      return b.CreateAdd(x, y);
    case Op::kSub:
      return b.CreateSub(x, y);
    case Op::kMul:
      return b.CreateMul(x, y);
    case Op::kIdiv:
      return Divide(b, x, y, is_signed, /*want_remainder=*/false);
    case Op::kMod:
      return Divide(b, x, y, is_signed, /*want_remainder=*/true);
    case Op::kMax:
      return b.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, x,
                                     y);
    case Op::kCmpLt:
      return is_signed ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y);
    case Op::kCmpNe:
      return b.CreateICmpNE(x, y);
    case Op::kXor:
      return b.CreateXor(x, y);
    case Op::kOr:
      return b.CreateOr(x, y);
    case Op::kAnd:
      return b.CreateAnd(x, y);
    case Op::kShl:
    case Op::kShr:
      return Shift(b, op, x, y, is_signed);
    case Op::kThreefry:
      if (Bits(s) != 64) return NoMeaning(op, s);
      return Threefry(b, x, y);
    case Op::kMulAcc:
      return b.CreateAdd(b.CreateMul(x, y), src[2]);
    default:
      return NoMeaning(op, s);
  }
}

// Ops that targets with short floats of their own compute in float32 as well.
constexpr OpSet kThroughFloat32 =
    Op::kFdiv | Op::kRecip | Op::kSqrt | Op::kExp2 | Op::kLog2 | Op::kSin;

absl::StatusOr<Value*> FloatAlu(Builder& b, const AluTarget& target, Op op, Scalar s,
                                llvm::ArrayRef<Value*> src) {
  Value* x = src[0];
  Value* y = src[src.size() > 1 ? 1 : 0];
  if (kThroughFloat32.Has(op)) {
    x = AsFloat32(b, x);
    y = AsFloat32(b, y);
  }
  Value* r = nullptr;
  switch (op) {
    // Exact, or no number at all: nothing to round.
    case Op::kNeg:
      return b.CreateFNeg(x);
    case Op::kMax:
      return FloatMax(b, target, x, y);
    case Op::kCmpLt:
      return b.CreateFCmpOLT(x, y);
    case Op::kCmpNe:
      return b.CreateFCmpUNE(x, y);

    case Op::kAdd:
      r = b.CreateFAdd(x, y);
      break;
    case Op::kSub:
      r = b.CreateFSub(x, y);
      break;
    case Op::kMul:
      r = b.CreateFMul(x, y);
      break;
    case Op::kFdiv:
      r = b.CreateFDiv(x, y);
      break;
    case Op::kRecip:
      r = b.CreateFDiv(Float(x, 1), x);
      break;
    case Op::kSqrt:
      r = b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
      break;
    case Op::kMulAcc:
      r = target.fma ? b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, src[2]})
                     : b.CreateFAdd(b.CreateFMul(x, y), src[2]);
      break;
    case Op::kExp2:
      r = EmitExp2(b, target, x);
      break;
    case Op::kLog2:
      r = EmitLog2(b, target, x);
      break;
    case Op::kSin:
      r = EmitSin(b, target, x);
      break;
    default:
      return NoMeaning(op, s);
  }
  return IsShort(r) ? r : RoundTo(b, target, r, s);
}

}  // namespace

llvm::Type* RegisterType(llvm::LLVMContext& context, const AluTarget& target, DType dtype) {
  Type* scalar = nullptr;
  switch (dtype.scalar) {
    case Scalar::kFloat16:
      scalar = target.half ? Type::getHalfTy(context) : Type::getFloatTy(context);
      break;
    case Scalar::kBFloat16:
      scalar = target.bfloat ? Type::getBFloatTy(context) : Type::getFloatTy(context);
      break;
    case Scalar::kFloat32:
      scalar = Type::getFloatTy(context);
      break;
    case Scalar::kFloat64:
      scalar = Type::getDoubleTy(context);
      break;
    default:
      scalar = Type::getIntNTy(context, Bits(dtype.scalar));
  }
  return dtype.lanes > 1 ? llvm::FixedVectorType::get(scalar, dtype.lanes) : scalar;
}

llvm::Type* MemoryType(llvm::LLVMContext& context, const AluTarget& target, DType dtype) {
  Type* scalar = nullptr;
  switch (dtype.scalar) {
    case Scalar::kBool:
      scalar = Type::getInt8Ty(context);
      break;
    case Scalar::kFloat16:
      scalar = Type::getHalfTy(context);
      break;
    case Scalar::kBFloat16:
      scalar = target.bfloat ? Type::getBFloatTy(context) : Type::getInt16Ty(context);
      break;
    default:
      return RegisterType(context, target, dtype);
  }
  return dtype.lanes > 1 ? llvm::FixedVectorType::get(scalar, dtype.lanes) : scalar;
}

llvm::Value* FromMemory(Builder& b, const AluTarget& target, llvm::Value* v, Scalar s) {
  switch (s) {
    case Scalar::kBool:
      return b.CreateICmpNE(v, Int(v, 0));
    case Scalar::kFloat16:
      return target.half ? v : b.CreateFPExt(v, WithLanesOf(b.getFloatTy(), v->getType()));
    case Scalar::kBFloat16: {
      if (target.bfloat) return v;
      Value* bits = b.CreateShl(b.CreateZExt(v, IntsLike(b, v, 32)), 16);
      return b.CreateBitCast(bits, WithLanesOf(b.getFloatTy(), v->getType()));
    }
    default:
      return v;
  }
}

llvm::Value* ToMemory(Builder& b, const AluTarget& target, llvm::Value* v, Scalar s) {
  switch (s) {
    case Scalar::kBool:
      return b.CreateZExt(v, IntsLike(b, v, 8));
    case Scalar::kFloat16:
      return target.half ? v : b.CreateFPTrunc(v, WithLanesOf(b.getHalfTy(), v->getType()));
    case Scalar::kBFloat16: {
      if (target.bfloat) return v;
      Value* bits = b.CreateBitCast(v, IntsLike(b, v, 32));
      return b.CreateTrunc(b.CreateLShr(bits, 16), IntsLike(b, v, 16));
    }
    default:
      return v;
  }
}

llvm::Value* RoundTo(Builder& b, const AluTarget& target, llvm::Value* v, Scalar s) {
  if (s == Scalar::kFloat16) {
    Value* half = b.CreateFPTrunc(v, WithLanesOf(b.getHalfTy(), v->getType()));
    return target.half ? half : b.CreateFPExt(half, v->getType());
  }
  if (s != Scalar::kBFloat16) return v;
  if (target.bfloat) return b.CreateFPTrunc(v, WithLanesOf(b.getBFloatTy(), v->getType()));
  // The processor's own conversion flushes sub-normals, so this is done on the bits.
  Value* bits = b.CreateBitCast(v, IntsLike(b, v, 32));
  Value* odd = b.CreateAnd(b.CreateLShr(bits, 16), Int(bits, 1));
  Value* nearest = b.CreateAdd(bits, b.CreateAdd(odd, Int(bits, 0x7FFF)));
  Value* quiet = b.CreateOr(bits, Int(bits, 0x400000));
  Value* r = b.CreateAnd(b.CreateSelect(IsNan(b, v), quiet, nearest), Int(bits, ~int64_t{0xFFFF}));
  return b.CreateBitCast(r, v->getType());
}

llvm::Constant* IntConstant(llvm::LLVMContext& context, Scalar s, int64_t value) {
  return llvm::ConstantInt::getSigned(Type::getIntNTy(context, Bits(s)), WrapInt(value, s));
}

llvm::Constant* FloatConstant(llvm::LLVMContext& context, const AluTarget& target, Scalar s,
                              double value) {
  return llvm::ConstantFP::get(RegisterType(context, target, s), value);
}

llvm::Value* EmitCast(Builder& b, const AluTarget& target, llvm::Value* v, Scalar from, Scalar to) {
  if (from == to) return v;
  v = AsFloat32(b, v);
  if (to == Scalar::kBool) {
    return IsFloat(from) ? b.CreateFCmpUNE(v, Float(v, 0)) : b.CreateICmpNE(v, Int(v, 0));
  }
  if (from == Scalar::kBool && IsFloat(to)) {
    return b.CreateUIToFP(v, WithLanesOf(RegisterType(b.getContext(), target, to), v->getType()));
  }
  if (!IsFloat(from) && !IsFloat(to)) {
    Type* type = IntsLike(b, v, Bits(to));
    return IsSigned(from) ? b.CreateSExtOrTrunc(v, type) : b.CreateZExtOrTrunc(v, type);
  }
  if (!IsFloat(from)) return IntToFloat(b, target, v, from, to);
  if (!IsFloat(to)) return FloatToInt(b, target, v, to);
  if (to == Scalar::kFloat64) return b.CreateFPExt(v, WithLanesOf(b.getDoubleTy(), v->getType()));
  if (from == Scalar::kFloat64) {
    if (to == Scalar::kFloat32) {
      return b.CreateFPTrunc(v, WithLanesOf(b.getFloatTy(), v->getType()));
    }
    v = ToFloat32Odd(b, v);
  }
  return RoundTo(b, target, v, to);
}

absl::StatusOr<llvm::Value*> EmitAlu(Builder& b, const AluTarget& target, Op op, Scalar s,
                                     llvm::ArrayRef<llvm::Value*> src) {
  if (op == Op::kWhere) return b.CreateSelect(src[0], src[1], src[2]);
  if (s == Scalar::kBool) return BoolAlu(b, op, src);
  return IsFloat(s) ? FloatAlu(b, target, op, s, src) : IntAlu(b, op, s, src);
}

}  // namespace beamd

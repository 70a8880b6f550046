#include <bit>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "engine/autograd/functions.h"
#include "engine/dtype/promotion.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

// F over the two sides, broadcast and promoted.
template <typename F>
Tensor Both(absl::string_view operation, const Tensor& x, const Operand& y, bool reverse) {
  const auto [a, b] = Broadcasted(operation, x, y, reverse);
  return a.ok() ? Apply<F>({a, b}) : a;
}

// The same where the promoted dtype must be an integer (or bool, if `bools`).
template <typename F>
Tensor BothIntegers(absl::string_view operation, const Tensor& x, const Operand& y, bool reverse,
                    bool bools) {
  const auto [a, b] = Broadcasted(operation, x, y, reverse);
  if (!a.ok()) return a;
  if (!IsInt(a.dtype()) && !(bools && a.dtype() == Scalar::kBool)) {
    return InvalidTensor(operation, absl::StrCat(Name(a.dtype()), " is no integer"));
  }
  return Apply<F>({a, b});
}

Tensor Select(const Tensor& condition, const Tensor& x, const Tensor& y) {
  return Apply<functions::Where>({condition, x, y});
}

Tensor Less(const Tensor& x, const Tensor& y) { return Apply<functions::Less>({x, y}).Detach(); }

// The tensor's value where it is one number of no gradient, which doesn't widen `beside`.
std::optional<ConstValue> ConstantBeside(const Tensor& beside, const Operand& x) {
  if (!x.is_tensor()) return x.constant();
  const Tensor& tensor = x.tensor();
  if (!beside.ok() || !tensor.ok() || !tensor.lazydata().is_unmasked_const() ||
      tensor.requires_grad().value_or(false)) {
    return std::nullopt;
  }
  const absl::StatusOr<Shape> shape =
      BroadcastShape(std::vector<Shape>{beside.shape(), tensor.shape()});
  if (!shape.ok() || *shape != beside.shape()) return std::nullopt;
  return tensor.lazydata().const_value();
}

// base to the power of a whole number >= 0, by squaring.
Tensor WholePower(const Tensor& base, double exponent) {
  // 1 on the tape, with a gradient of 0, also where base is NaN or infinite.
  if (exponent == 0) {
    TensorOptions there;
    there.device = base.device();
    return Tensor::Full(base.context(), {}, true, there).Where(1, base).Cast(base.dtype());
  }
  // Bits of the exponent, highest first.
  std::vector<bool> odd;
  for (double rest = exponent; rest >= 1; rest = std::floor(rest / 2)) {
    odd.push_back(std::fmod(rest, 2) == 1);
  }
  Tensor result = base;
  for (auto bit = odd.rbegin() + 1; bit != odd.rend(); ++bit) {
    result = result.Square();
    if (*bit) result = result.Mul(base);
  }
  return result;
}

// base ** exponent by logarithm, right for negative bases with whole exponents; NaN for others.
Tensor GeneralPower(const Tensor& base, const Tensor& exponent) {
  const Tensor magnitude = base.Abs().Log().Mul(exponent).Exp();
  const Tensor negative = base.Lt(0).Detach();
  // cos(pi e) is 1 for an even exponent and -1 for an odd one.
  const Tensor sign = negative.Where(exponent.Mul(std::numbers::pi).Cos(), 1.0);
  const Tensor not_whole = exponent.Ne(exponent.Trunc()).Detach();
  const Tensor nan = negative.Mul(not_whole).Where(magnitude.FullLike(std::nan("")), 1.0);
  const Tensor empty_product = base.Eq(0).Mul(exponent.Eq(0)).Detach();
  return empty_product.Where(1.0, magnitude.Mul(sign).Mul(nan));
}

Scalar UnsignedOf(int size_bytes) {
  constexpr Scalar kUnsigned[] = {Scalar::kUint8, Scalar::kUint16, Scalar::kUint32,
                                  Scalar::kUint64};
  return kUnsigned[std::countr_zero(static_cast<unsigned>(size_bytes))];
}

// The bits of x, little-endian along the last axis, as elements of another size.
Tensor BitcastResized(const Tensor& x, Scalar dtype) {
  const int from = x.element_size();
  const int to = SizeBytes(dtype);
  const Scalar wide = UnsignedOf(to);
  if (x.ndim() == 0 || !ProvenEq(x.shape().back() * SInt(from) % SInt(to), 0)) {
    return InvalidTensor(
        "bitcast", absl::StrCat("the last axis of ", ToString(x.shape()), " ", Name(x.dtype()),
                                " is no multiple of a ", Name(dtype)));
  }
  const Tensor bits = x.Bitcast(UnsignedOf(from));
  if (to < from) {
    std::vector<Tensor> parts(from / to);
    for (int i = 0; i < from / to; ++i) parts[i] = bits.Rshift(8 * i * to).Cast(wide);
    return parts[0].Stack(std::span(parts).subspan(1), -1).Flatten(-2).Bitcast(dtype);
  }
  const int ratio = to / from;
  Tensor sum;
  for (int i = 0; i < ratio; ++i) {
    Slice every;
    every.begin = SInt(i);
    every.step = ratio;
    const Tensor part = bits.Get({Ellipsis{}, every}).Cast(wide).Lshift(8 * i * from);
    sum = sum.defined() ? sum.Add(part) : part;
  }
  return sum.Bitcast(dtype);
}

}  // namespace

Tensor Tensor::Add(const Operand& x, bool reverse) const {
  return Both<functions::Add>("add", *this, x, reverse);
}

Tensor Tensor::Sub(const Operand& x, bool reverse) const {
  const auto [a, b] = Broadcasted("sub", *this, x, reverse);
  if (!a.ok()) return a;
  return a.dtype() == Scalar::kBool ? a.Add(b.Neg()) : Apply<functions::Sub>({a, b});
}

Tensor Tensor::Mul(const Operand& x, bool reverse) const {
  return Both<functions::Mul>("mul", *this, x, reverse);
}

Tensor Tensor::Idiv(const Operand& x, bool reverse) const {
  return BothIntegers<functions::IDiv>("idiv", *this, x, reverse, /*bools=*/false);
}

Tensor Tensor::Div(const Operand& x, bool reverse) const {
  const auto [a, b] = Broadcasted("div", *this, x, reverse);
  if (!a.ok()) return a;
  return Apply<functions::Mul>({a.Cast(LeastUpperFloat(a.dtype())), b.Reciprocal()});
}

Tensor Tensor::Mod(const Operand& x, bool reverse) const {
  const auto [a, b] = Broadcasted("mod", *this, x, reverse);
  if (!a.ok()) return a;
  if (a.is_floating_point()) return a.Sub(b.Mul(a.Div(b).Floor().Detach()));
  if (!IsInt(a.dtype()))
    return InvalidTensor("mod", absl::StrCat(Name(a.dtype()), " is no number"));
  Tensor rest(a.lazydata().Alu(Op::kMod, b.lazydata()), false);
  if (IsUnsigned(a.dtype())) return rest;
  // MOD has the sign of what is divided.
  const Tensor other_sign = rest.Lt(0).Ne(b.Lt(0)).BitwiseAnd(rest.Ne(0));
  return other_sign.Where(rest.Add(b.Detach()), rest);
}

Tensor Tensor::Pow(const Operand& x, bool reverse) const {
  if (!ok()) return Failed(status());
  if (const std::optional<ConstValue> constant = ConstantBeside(*this, x); constant.has_value()) {
    const double exponent = constant->as_float();
    if (!reverse && std::isfinite(exponent)) {
      if (exponent < 0) return Reciprocal().Pow(-exponent);
      if (exponent == std::floor(exponent)) return WholePower(*this, exponent);
      const double below = exponent - 0.5;
      if (below == std::floor(below)) {
        return below == 0 ? Sqrt() : WholePower(*this, below).Mul(Sqrt());
      }
    }
    if (reverse && exponent > 0) return Mul(std::log(exponent)).Exp();
  }
  const auto [base, exponent] = Broadcasted("pow", *this, x, reverse);
  return base.ok() ? GeneralPower(base, exponent) : base;
}

Tensor Tensor::Maximum(const Operand& x) const {
  const auto [a, b] = Broadcasted("maximum", *this, x);
  if (!a.ok()) return a;
  const Tensor below = Less(a, b);
  if (!a.is_floating_point()) return Select(below, b, a);
  // Equal values share the gradient; a NaN makes NaN of the mean.
  return Select(below, b, Select(Less(b, a), a, a.Mul(0.5).Add(b.Mul(0.5))));
}

Tensor Tensor::Minimum(const Operand& x) const {
  const auto [a, b] = Broadcasted("minimum", *this, x);
  if (!a.ok()) return a;
  const Tensor above = Less(b, a);
  if (!a.is_floating_point()) return Select(above, b, a);
  return Select(above, b, Select(Less(a, b), a, a.Mul(0.5).Add(b.Mul(0.5))));
}

Tensor Tensor::Xor(const Operand& x, bool reverse) const {
  return BothIntegers<functions::Xor>("xor", *this, x, reverse, /*bools=*/true);
}

Tensor Tensor::BitwiseAnd(const Operand& x, bool reverse) const {
  return BothIntegers<functions::BitwiseAnd>("bitwise_and", *this, x, reverse, /*bools=*/true);
}

Tensor Tensor::BitwiseOr(const Operand& x, bool reverse) const {
  return BothIntegers<functions::BitwiseOr>("bitwise_or", *this, x, reverse, /*bools=*/true);
}

Tensor Tensor::BitwiseNot() const {
  if (!ok()) return Failed(status());
  if (dtype() == Scalar::kBool) return LogicalNot();
  return BothIntegers<functions::Xor>("bitwise_not", *this, -1, false, /*bools=*/false);
}

Tensor Tensor::Lshift(int amount) const {
  if (!ok()) return Failed(status());
  if (!IsUnsigned(dtype())) {
    return InvalidTensor("lshift", absl::StrCat(Name(dtype()), " is not unsigned"));
  }
  if (amount < 0) return InvalidTensor("lshift", absl::StrCat("by ", amount));
  return Mul(amount < Bits(dtype()) ? ConstValue(uint64_t{1} << amount) : ConstValue(0));
}

Tensor Tensor::Rshift(int amount) const {
  if (!ok()) return Failed(status());
  if (!IsUnsigned(dtype())) {
    return InvalidTensor("rshift", absl::StrCat(Name(dtype()), " is not unsigned"));
  }
  if (amount < 0) return InvalidTensor("rshift", absl::StrCat("by ", amount));
  if (amount >= Bits(dtype())) return BitwiseAnd(0);
  return Idiv(ConstValue(uint64_t{1} << amount));
}

Tensor Tensor::Lt(const Operand& x) const { return Both<functions::Less>("lt", *this, x, false); }

Tensor Tensor::Gt(const Operand& x) const { return Both<functions::Less>("gt", *this, x, true); }

// As in 0.10.0 the negations: true beside a NaN.
Tensor Tensor::Le(const Operand& x) const {
  return Both<functions::Less>("le", *this, x, true).LogicalNot();
}

Tensor Tensor::Ge(const Operand& x) const {
  return Both<functions::Less>("ge", *this, x, false).LogicalNot();
}

Tensor Tensor::Eq(const Operand& x) const { return Both<functions::Eq>("eq", *this, x, false); }

Tensor Tensor::Ne(const Operand& x) const { return Both<functions::Neq>("ne", *this, x, false); }

Tensor Tensor::Where(const Operand& x, const Operand& y) const {
  if (!ok()) return Failed(status());
  // The arms take their dtype from each other; from the condition only where both are numbers.
  Operand arm = x;
  Operand other = y;
  if (x.is_tensor()) {
    auto [a, b] = Broadcasted("where", x.tensor(), y);
    arm = a;
    other = b;
  } else if (y.is_tensor()) {
    auto [a, b] = Broadcasted("where", y.tensor(), x);
    arm = b;
    other = a;
  }
  const auto [wide, a] = Broadcasted("where", *this, arm, false, /*match_dtype=*/false);
  const auto [condition, b] = Broadcasted("where", wide, other, false, /*match_dtype=*/false);
  if (!condition.ok()) return condition;
  const auto [on_true, on_false] = Broadcasted("where", a, b);
  if (!on_true.ok()) return on_true;
  return Select(condition.Cast(Scalar::kBool), on_true, on_false);
}

Tensor Tensor::Lerp(const Tensor& end, const Operand& weight) const {
  if (!ok()) return Failed(status());
  if (dtype() == Scalar::kUint8 && weight.is_tensor()) {
    // In parts of 128: a difference times that fits 16 bits, and its sign wraps away.
    constexpr int kPrecision = 7;
    const Tensor part = weight.tensor().Mul(1 << kPrecision).Add(0.5).Cast(Scalar::kInt16);
    const Tensor difference = end.Cast(Scalar::kInt16).Sub(Cast(Scalar::kInt16));
    const Tensor step = difference.Mul(part).Add(1 << (kPrecision - 1)).Cast(Scalar::kUint16);
    return Add(step.Rshift(kPrecision)).Cast(Scalar::kUint8);
  }
  return Add(end.Sub(*this).Mul(weight));
}

Tensor Tensor::Cast(Scalar dtype) const {
  if (!ok()) return Failed(status());
  if (dtype == this->dtype()) return *this;
  if (dtype == Scalar::kVoid) return InvalidTensor("cast", "void is no dtype of a tensor");
  return Apply<functions::Cast>({*this}, dtype);
}

Tensor Tensor::Bitcast(Scalar dtype) const {
  if (!ok()) return Failed(status());
  if (requires_grad().value_or(false)) {
    return Failed(absl::UnimplementedError("bitcast: a bitcast has no gradient"));
  }
  if (dtype == this->dtype()) return *this;
  if (dtype == Scalar::kVoid) return InvalidTensor("bitcast", "void is no dtype of a tensor");
  // A byte that is no bool would be one.
  if (dtype == Scalar::kBool || this->dtype() == Scalar::kBool) {
    return InvalidTensor("bitcast", "a bool has no bits to share");
  }
  if (SizeBytes(dtype) != element_size()) return BitcastResized(*this, dtype);
  return Apply<functions::Cast>({*this}, dtype, /*bitcast=*/true);
}

}  // namespace beamd

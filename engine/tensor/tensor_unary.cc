#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "engine/autograd/functions.h"
#include "engine/dtype/promotion.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

// F of x in floats.
template <typename F>
Tensor OfFloat(const Tensor& x) {
  return x.ok() ? Apply<F>({x.Cast(LeastUpperFloat(x.dtype()))}) : Tensor::Failed(x.status());
}

// Coefficients from the highest power down. (0.10.0: polyN)
Tensor Polynomial(const Tensor& x, std::span<const double> coefficients) {
  Tensor sum = x.FullLike(coefficients[0]);
  for (double coefficient : coefficients.subspan(1)) sum = sum.Mul(x).Add(coefficient);
  return sum;
}

}  // namespace

Tensor Tensor::LogicalNot() const { return Bool().Ne(true); }

Tensor Tensor::Neg() const {
  if (!ok()) return Failed(status());
  return dtype() == Scalar::kBool ? LogicalNot() : Apply<functions::Neg>({*this});
}

Tensor Tensor::Reciprocal() const { return OfFloat<functions::Reciprocal>(*this); }
Tensor Tensor::Sin() const { return OfFloat<functions::Sin>(*this); }
Tensor Tensor::Cos() const { return Sub(std::numbers::pi / 2, true).Sin(); }
Tensor Tensor::Tan() const { return Sin().Div(Cos()); }

// Abramowitz and Stegun 4.4.46: arccos(x) = sqrt(1 - x) p(x) on [0, 1], error below 2e-8.
Tensor Tensor::Asin() const {
  if (!ok()) return Failed(status());
  const Tensor x = Cast(LeastUpperFloat(dtype()));
  constexpr double kCoefficients[] = {-0.0012624911, 0.0066700901, -0.0170881256, 0.0308918810,
                                      -0.0501743046, 0.0889789874, -0.2145988016, 1.5707963050};
  const Tensor p = Polynomial(x.Abs(), kCoefficients);
  return x.Sign().Mul(x.Abs().Sub(1, true).Sqrt().Mul(p).Sub(std::numbers::pi / 2, true));
}

Tensor Tensor::Acos() const { return Asin().Sub(std::numbers::pi / 2, true); }
Tensor Tensor::Atan() const { return Div(Square().Add(1).Sqrt()).Asin(); }
Tensor Tensor::Log() const { return OfFloat<functions::Log>(*this); }
Tensor Tensor::Log2() const { return Log().Div(std::numbers::ln2); }
Tensor Tensor::Exp() const { return OfFloat<functions::Exp>(*this); }
Tensor Tensor::Exp2() const { return OfFloat<functions::Exp>(Mul(std::numbers::ln2)); }
Tensor Tensor::Sqrt() const { return OfFloat<functions::Sqrt>(*this); }
Tensor Tensor::Rsqrt() const { return Reciprocal().Sqrt(); }
Tensor Tensor::Square() const { return Mul(*this); }
Tensor Tensor::Abs() const { return Mul(Sign()); }

Tensor Tensor::Sign() const { return ok() ? Apply<functions::Sign>({*this}) : Failed(status()); }

Tensor Tensor::Trunc() const {
  if (!ok()) return Failed(status());
  if (!is_floating_point()) return *this;
  // A float too large for the integer is whole already; so is infinity, and NaN stays NaN.
  const bool is_double = dtype() == Scalar::kFloat64;
  const Tensor whole = Cast(is_double ? Scalar::kInt64 : Scalar::kInt32).Cast(dtype());
  return Abs().Lt(is_double ? 0x1p62 : 0x1p30).Detach().Where(whole, Detach());
}

Tensor Tensor::Ceil() const {
  const Tensor whole = Trunc();
  return Gt(whole).Detach().Where(whole.Add(1), whole);
}

Tensor Tensor::Floor() const {
  const Tensor whole = Trunc();
  return Lt(whole).Detach().Where(whole.Sub(1), whole);
}

Tensor Tensor::Round() const {
  if (!ok()) return Failed(status());
  if (!is_floating_point()) return *this;
  // What is cut off is exact, so no sum of x and a half can round the wrong way.
  const Tensor whole = Trunc();
  const Tensor rest = Sub(whole).Detach().Abs();
  const Tensor half = whole.Detach().Mul(0.5);
  const Tensor odd = half.Ne(half.Trunc());
  const Tensor away = rest.Gt(0.5).BitwiseOr(rest.Eq(0.5).BitwiseAnd(odd));
  return away.Where(whole.Add(Sign()), whole);
}

Tensor Tensor::Isinf(bool detect_positive, bool detect_negative) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return Eq(kInfinity).Mul(detect_positive).Add(Eq(-kInfinity).Mul(detect_negative));
}

Tensor Tensor::Isnan() const { return Ne(*this); }

Tensor Tensor::Clamp(std::optional<ConstValue> min, std::optional<ConstValue> max) const {
  if (!ok()) return Failed(status());
  if (!min.has_value() && !max.has_value()) return InvalidTensor("clamp", "there are no bounds");
  const Tensor above = min.has_value() ? Maximum(*min) : *this;
  return max.has_value() ? above.Minimum(*max) : above;
}

Tensor Tensor::Relu() const { return ok() ? Apply<functions::Relu>({*this}) : Failed(status()); }

Tensor Tensor::Sigmoid() const { return OfFloat<functions::Sigmoid>(*this); }

Tensor Tensor::Hardsigmoid(double alpha, double beta) const {
  return Mul(alpha).Add(beta).Relu().Sub(Mul(alpha).Add(beta - 1).Relu());
}

Tensor Tensor::Elu(double alpha) const {
  return Relu().Sub(Exp().Sub(1, true).Relu().Mul(alpha, true));
}

Tensor Tensor::Celu(double alpha) const {
  return Maximum(0).Add(Div(alpha).Exp().Sub(1).Mul(alpha, true).Minimum(0));
}

Tensor Tensor::Selu(double alpha, double gamma) const {
  return Ge(0).Detach().Where(*this, Exp().Sub(1).Mul(alpha, true)).Mul(gamma, true);
}

Tensor Tensor::Swish() const { return Mul(Sigmoid()); }
Tensor Tensor::Relu6() const { return Relu().Sub(Sub(6).Relu()); }
Tensor Tensor::Hardswish() const { return Mul(Add(3).Relu6()).Mul(1.0 / 6); }
Tensor Tensor::Tanh() const { return Mul(2.0, true).Sigmoid().Mul(2.0, true).Sub(1.0); }
Tensor Tensor::Sinh() const { return Exp().Sub(Neg().Exp()).Div(2); }
Tensor Tensor::Cosh() const { return Exp().Add(Neg().Exp()).Div(2); }
Tensor Tensor::Atanh() const { return Add(1, true).Div(Sub(1, true)).Log().Div(2); }
Tensor Tensor::Asinh() const { return Add(Square().Add(1).Sqrt()).Log(); }
Tensor Tensor::Acosh() const { return Add(Square().Sub(1).Sqrt()).Log(); }
Tensor Tensor::Hardtanh(double min, double max) const { return Clamp(min, max); }

// Abramowitz and Stegun 7.1.26, error below 1.5e-7.
Tensor Tensor::Erf() const {
  if (!ok()) return Failed(status());
  const Tensor t = Abs().Mul(0.3275911, true).Add(1.0, true).Reciprocal();
  constexpr double kCoefficients[] = {1.061405429, -1.453152027, 1.421413741, -0.284496736,
                                      0.254829592};
  const Tensor p = Polynomial(t, kCoefficients);
  return Sign().Mul(t.Mul(p).Mul(Square().Neg().Exp()).Sub(1.0, true));
}

Tensor Tensor::Gelu() const {
  const Tensor inner = Add(Pow(3).Mul(0.044715, true)).Mul(std::sqrt(2 / std::numbers::pi), true);
  return Mul(0.5, true).Mul(inner.Tanh().Add(1, true));
}

Tensor Tensor::QuickGelu() const { return Mul(Mul(1.702).Sigmoid()); }
Tensor Tensor::LeakyRelu(double slope) const { return Relu().Sub(Mul(-slope, true).Relu()); }
Tensor Tensor::Mish() const { return Mul(Softplus().Tanh()); }

Tensor Tensor::Softplus(double beta) const {
  return Mul(beta).Exp().Add(1, true).Log().Mul(1 / beta, true);
}

Tensor Tensor::Softsign() const { return Div(Abs().Add(1, true)); }

}  // namespace beamd

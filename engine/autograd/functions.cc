#include "engine/autograd/functions.h"

#include <numbers>

#include "absl/status/status.h"
#include "engine/dtype/const_value.h"
#include "engine/dtype/promotion.h"
#include "engine/uop/op.h"

namespace beamd::functions {
namespace {

std::vector<LazyBuffer> One(LazyBuffer gradient) { return {std::move(gradient)}; }

LazyBuffer Zeros(const LazyBuffer& like) { return like.ConstLike(0); }

LazyBuffer NotEqual(const LazyBuffer& x, const LazyBuffer& y) { return x.Alu(Op::kCmpNe, y); }

LazyBuffer Equal(const LazyBuffer& x, const LazyBuffer& y) {
  const LazyBuffer differs = NotEqual(x, y);
  return NotEqual(differs, differs.ConstLike(true));
}

LazyBuffer Select(const LazyBuffer& condition, const LazyBuffer& x, const LazyBuffer& y) {
  return condition.Alu(Op::kWhere, x, y);
}

}  // namespace

LazyBuffer Contiguous::Forward(const LazyBuffer& x) { return x.Contiguous(); }

Gradients Contiguous::Backward(const LazyBuffer& grad) const { return One(grad); }

LazyBuffer ContiguousBackward::Forward(const LazyBuffer& x) { return x; }

Gradients ContiguousBackward::Backward(const LazyBuffer& grad) const {
  return One(grad.Contiguous());
}

LazyBuffer Cast::Forward(const LazyBuffer& x, Scalar dtype, bool bitcast) {
  from_ = x.dtype();
  bitcast_ = bitcast;
  return bitcast ? x.Bitcast(dtype) : x.Cast(dtype);
}

Gradients Cast::Backward(const LazyBuffer& grad) const {
  if (bitcast_) return absl::UnimplementedError("Cast: a bitcast has no gradient");
  return One(grad.Cast(from_));
}

LazyBuffer CastImage::Forward(const LazyBuffer& x, DType image) {
  from_ = x.image();
  return x.CastImage(image);
}

Gradients CastImage::Backward(const LazyBuffer& grad) const { return One(grad.CastImage(from_)); }

LazyBuffer Neg::Forward(const LazyBuffer& x) { return -x; }

Gradients Neg::Backward(const LazyBuffer& grad) const { return One(-grad); }

LazyBuffer Reciprocal::Forward(const LazyBuffer& x) {
  result_ = x.Alu(Op::kRecip);
  return result_;
}

Gradients Reciprocal::Backward(const LazyBuffer& grad) const {
  return One(-grad * result_ * result_);
}

LazyBuffer Sin::Forward(const LazyBuffer& x) {
  x_ = x;
  return x.Alu(Op::kSin);
}

Gradients Sin::Backward(const LazyBuffer& grad) const {
  // cos(x)
  return One((x_.ConstLike(std::numbers::pi / 2) - x_).Alu(Op::kSin) * grad);
}

LazyBuffer Relu::Forward(const LazyBuffer& x) {
  result_ = x.Alu(Op::kMax, Zeros(x));
  return result_;
}

Gradients Relu::Backward(const LazyBuffer& grad) const {
  return One(Zeros(result_).Alu(Op::kCmpLt, result_).Cast(grad.dtype()) * grad);
}

LazyBuffer Log::Forward(const LazyBuffer& x) {
  x_ = x;
  return x.Alu(Op::kLog2) * ConstValue(std::numbers::ln2);
}

Gradients Log::Backward(const LazyBuffer& grad) const { return One(grad / x_); }

LazyBuffer Exp::Forward(const LazyBuffer& x) {
  result_ = (x * ConstValue(1 / std::numbers::ln2)).Alu(Op::kExp2);
  return result_;
}

Gradients Exp::Backward(const LazyBuffer& grad) const { return One(result_ * grad); }

LazyBuffer Sqrt::Forward(const LazyBuffer& x) {
  result_ = x.Alu(Op::kSqrt);
  return result_;
}

Gradients Sqrt::Backward(const LazyBuffer& grad) const {
  return One(grad / (result_ * ConstValue(2)));
}

LazyBuffer Sigmoid::Forward(const LazyBuffer& x) {
  const LazyBuffer power = (x * ConstValue(-1 / std::numbers::ln2)).Alu(Op::kExp2);
  result_ = (power.ConstLike(1) + power).Alu(Op::kRecip);
  return result_;
}

Gradients Sigmoid::Backward(const LazyBuffer& grad) const {
  return One(result_ * (result_.ConstLike(1) - result_) * grad);
}

LazyBuffer Sign::Forward(const LazyBuffer& x) {
  const LazyBuffer zero = Zeros(x);
  const LazyBuffer sign = Select(x.Alu(Op::kCmpLt, zero), x.ConstLike(-1), x.ConstLike(1));
  return Select(NotEqual(x, zero), sign, zero);
}

Gradients Sign::Backward(const LazyBuffer& grad) const { return One(Zeros(grad)); }

LazyBuffer Less::Forward(const LazyBuffer& x, const LazyBuffer& y) { return x.Alu(Op::kCmpLt, y); }

Gradients Less::Backward(const LazyBuffer&) const { return std::vector<LazyBuffer>(2); }

LazyBuffer Eq::Forward(const LazyBuffer& x, const LazyBuffer& y) { return Equal(x, y); }

Gradients Eq::Backward(const LazyBuffer&) const { return std::vector<LazyBuffer>(2); }

LazyBuffer Neq::Forward(const LazyBuffer& x, const LazyBuffer& y) { return NotEqual(x, y); }

Gradients Neq::Backward(const LazyBuffer&) const { return std::vector<LazyBuffer>(2); }

LazyBuffer Xor::Forward(const LazyBuffer& x, const LazyBuffer& y) { return x.Alu(Op::kXor, y); }

LazyBuffer BitwiseAnd::Forward(const LazyBuffer& x, const LazyBuffer& y) {
  return x.Alu(Op::kAnd, y);
}

LazyBuffer BitwiseOr::Forward(const LazyBuffer& x, const LazyBuffer& y) {
  return x.Alu(Op::kOr, y);
}

LazyBuffer Threefry::Forward(const LazyBuffer& x, const LazyBuffer& seed) {
  return x.Alu(Op::kThreefry, seed);
}

LazyBuffer Add::Forward(const LazyBuffer& x, const LazyBuffer& y) { return x + y; }

Gradients Add::Backward(const LazyBuffer& grad) const {
  std::vector<LazyBuffer> gradients(2);
  if (Needs(0)) gradients[0] = grad;
  if (Needs(1)) gradients[1] = grad;
  return gradients;
}

LazyBuffer Sub::Forward(const LazyBuffer& x, const LazyBuffer& y) { return x - y; }

Gradients Sub::Backward(const LazyBuffer& grad) const {
  std::vector<LazyBuffer> gradients(2);
  if (Needs(0)) gradients[0] = grad;
  if (Needs(1)) gradients[1] = -grad;
  return gradients;
}

LazyBuffer Mul::Forward(const LazyBuffer& x, const LazyBuffer& y) {
  x_ = x;
  y_ = y;
  return x * y;
}

Gradients Mul::Backward(const LazyBuffer& grad) const {
  std::vector<LazyBuffer> gradients(2);
  if (Needs(0)) gradients[0] = y_ * grad;
  if (Needs(1)) gradients[1] = x_ * grad;
  return gradients;
}

LazyBuffer Div::Forward(const LazyBuffer& x, const LazyBuffer& y) {
  x_ = x;
  y_ = y;
  return IsFloat(x.dtype()) ? x / y : x.Alu(Op::kIdiv, y);
}

Gradients Div::Backward(const LazyBuffer& grad) const {
  if (!IsFloat(grad.dtype())) return absl::UnimplementedError("Div: integers have no gradient");
  std::vector<LazyBuffer> gradients(2);
  if (Needs(0)) gradients[0] = grad / y_;
  if (Needs(1)) gradients[1] = -grad * x_ / (y_ * y_);
  return gradients;
}

LazyBuffer IDiv::Forward(const LazyBuffer& x, const LazyBuffer& y) { return x.Alu(Op::kIdiv, y); }

LazyBuffer Where::Forward(const LazyBuffer& condition, const LazyBuffer& x, const LazyBuffer& y) {
  condition_ = condition;
  return Select(condition, x, y);
}

Gradients Where::Backward(const LazyBuffer& grad) const {
  std::vector<LazyBuffer> gradients(3);
  if (Needs(1)) gradients[1] = Select(condition_, grad, Zeros(grad));
  if (Needs(2)) gradients[2] = Select(condition_, Zeros(grad), grad);
  return gradients;
}

LazyBuffer Sum::Forward(const LazyBuffer& x, std::span<const int> axes) {
  input_shape_ = x.shape();
  return x.Reduce(Op::kAdd, axes);
}

Gradients Sum::Backward(const LazyBuffer& grad) const { return One(grad.Expand(input_shape_)); }

LazyBuffer Prod::Forward(const LazyBuffer& x, std::span<const int> axes) {
  x_ = x;
  result_ = x.Reduce(Op::kMul, axes);
  return result_;
}

Gradients Prod::Backward(const LazyBuffer& grad) const {
  return One((grad * result_).Expand(x_.shape()) / x_);
}

LazyBuffer Max::Forward(const LazyBuffer& x, std::span<const int> axes) {
  x_ = x;
  result_ = x.Reduce(Op::kMax, axes);
  axes_.assign(axes.begin(), axes.end());
  return result_;
}

Gradients Max::Backward(const LazyBuffer& grad) const {
  const LazyBuffer chosen = Equal(x_, result_.Expand(x_.shape())).Cast(grad.dtype());
  const LazyBuffer ties = chosen.Reduce(Op::kAdd, axes_).Expand(x_.shape());
  return One(chosen / ties * grad.Expand(x_.shape()));
}

LazyBuffer Expand::Forward(const LazyBuffer& x, const Shape& shape) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!ProvenEq(x.shape()[i], shape[i])) expanded_axes_.push_back(static_cast<int>(i));
  }
  return x.Expand(shape);
}

Gradients Expand::Backward(const LazyBuffer& grad) const {
  return One(
      grad.Cast(SumAccDType(grad.dtype())).Reduce(Op::kAdd, expanded_axes_).Cast(grad.dtype()));
}

LazyBuffer Reshape::Forward(const LazyBuffer& x, const Shape& shape) {
  input_shape_ = x.shape();
  return x.Reshape(shape);
}

Gradients Reshape::Backward(const LazyBuffer& grad) const {
  return One(grad.Reshape(input_shape_));
}

LazyBuffer Permute::Forward(const LazyBuffer& x, std::span<const int> order) {
  order_.assign(order.begin(), order.end());
  return x.Permute(order);
}

Gradients Permute::Backward(const LazyBuffer& grad) const {
  std::vector<int> inverse(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) inverse[order_[i]] = static_cast<int>(i);
  return One(grad.Permute(inverse));
}

LazyBuffer Pad::Forward(const LazyBuffer& x, std::span<const std::pair<SInt, SInt>> amounts) {
  for (size_t i = 0; i < amounts.size(); ++i) {
    kept_.emplace_back(amounts[i].first, x.shape()[i] + amounts[i].first);
  }
  return x.Pad(amounts);
}

Gradients Pad::Backward(const LazyBuffer& grad) const { return One(grad.Shrink(kept_)); }

LazyBuffer Shrink::Forward(const LazyBuffer& x, std::span<const std::pair<SInt, SInt>> ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    cut_.emplace_back(ranges[i].first, x.shape()[i] - ranges[i].second);
  }
  return x.Shrink(ranges);
}

Gradients Shrink::Backward(const LazyBuffer& grad) const { return One(grad.Pad(cut_)); }

LazyBuffer Flip::Forward(const LazyBuffer& x, std::span<const int> axes) {
  axes_.assign(axes.begin(), axes.end());
  return x.Flip(axes);
}

Gradients Flip::Backward(const LazyBuffer& grad) const { return One(grad.Flip(axes_)); }

}  // namespace beamd::functions

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/autograd/functions.h"
#include "engine/dtype/promotion.h"
#include "engine/tensor/movement.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

Tensor WithoutAxes(const Tensor& x, const std::vector<int>& axes) {
  Shape left;
  for (int i = 0; i < x.ndim(); ++i) {
    if (!std::ranges::binary_search(axes, i)) left.push_back(x.shape()[i]);
  }
  return x.Reshape(left);
}

template <typename F>
Tensor Fold(absl::string_view operation, const Tensor& x, const Axes& axes, bool keepdim) {
  if (!x.ok()) return x;
  const absl::StatusOr<std::vector<int>> folded = ResolveAxes(axes, x.ndim());
  if (!folded.ok()) return InvalidTensor(operation, folded.status().message());
  const Tensor kept = Apply<F>({x}, *folded);
  return keepdim ? kept : WithoutAxes(kept, *folded);
}

// How many elements of `x` go into one of the result; the axes fit.
SInt FoldedCount(const Tensor& x, const Axes& axes) {
  SInt count = 1;
  const std::vector<int> folded = *ResolveAxes(axes, x.ndim());
  for (int axis : folded) count = count * x.shape()[axis];
  return count;
}

Tensor DividedBy(const Tensor& x, const SInt& count) {
  if (count.is_number()) return x.Div(count.number());
  return x.Div(Tensor::FromUop(x.context(), count.expr(), {.device = x.device()}));
}

// Turns the order of all values round, without overflow.
Tensor Inverse(const Tensor& x) { return !x.ok() || IsFloat(x.dtype()) ? x.Neg() : x.BitwiseNot(); }

// x - max, exp of it, and the sum of that.
struct SoftmaxParts {
  Tensor shifted, exps, sum;
};

SoftmaxParts MakeSoftmax(const Tensor& self, int axis, std::optional<Scalar> dtype) {
  const Tensor x = dtype ? self.Cast(*dtype) : self;
  SoftmaxParts parts;
  parts.shifted = x.Sub(x.Max(axis, /*keepdim=*/true).Detach());
  parts.exps = parts.shifted.Exp();
  parts.sum = parts.exps.Sum(axis, /*keepdim=*/true);
  return parts;
}

// --- running sums and maxima ---

enum class Running : uint8_t { kSum, kMax };

// What changes nothing.
ConstValue Neutral(Running kind, Scalar dtype) {
  if (kind == Running::kSum) return ConstValue(0).As(dtype);
  if (IsFloat(dtype)) return -std::numeric_limits<double>::infinity();
  return ConstValue(MinInt(dtype)).As(dtype);
}

// Windows that end at each element; `before` instead of it, one earlier.
Tensor RunOnce(const Tensor& x, int axis, Running kind, bool before = false) {
  const SInt size = x.shape()[axis];
  const std::vector<int> one{1};
  const Tensor padded = x.Transpose(axis, -1).PadFlat({before ? size : size - 1, before ? -1 : 0},
                                                      PadMode::kConstant, Neutral(kind, x.dtype()));
  const Tensor windows = PoolWindows(padded, std::span(&size, 1), one, one);
  return (kind == Running::kSum ? windows.Sum(-1) : windows.Max(-1)).Transpose(axis, -1);
}

// The work grows with the square of the length: a long axis goes in pieces of kPiece, to which the
// result of all pieces before is joined.
Tensor Run(absl::string_view operation, const Tensor& x, int axis, Running kind) {
  if (!x.ok()) return x;
  constexpr int64_t kPiece = 256;
  const std::optional<int> resolved = ResolveAxis(axis, x.ndim());
  if (!resolved) {
    return InvalidTensor(operation, absl::StrCat("axis ", axis, " is none of ", x.ndim()));
  }
  if (x.ndim() == 0 || x.numel() == 0) return x;
  const SInt& size = x.shape()[*resolved];
  if (!size.is_number() || size.number() <= 2 * kPiece) return RunOnce(x, *resolved, kind);

  const int64_t length = size.number(), pieces = (length + kPiece - 1) / kPiece;
  const Tensor within = RunOnce(
      x.Transpose(*resolved, -1)
          .PadFlat({pieces * kPiece - length, 0}, PadMode::kConstant, Neutral(kind, x.dtype()))
          .Unflatten(-1, {pieces, kPiece}),
      x.ndim(), kind);
  const Tensor before = RunOnce(within.Get({Ellipsis(), -1}), x.ndim() - 1, kind, /*before=*/true)
                            .Unsqueeze(-1)
                            .Expand(within.shape());
  const auto joined = [&](const Tensor& t) {
    return t.Flatten(-2).Get({Ellipsis(), Slice{-length, std::nullopt}}).Transpose(*resolved, -1);
  };
  return kind == Running::kSum ? joined(within).Add(joined(before))
                               : joined(within).Maximum(joined(before));
}

}  // namespace

Tensor Tensor::Sum(const Axes& axes, bool keepdim, std::optional<Scalar> acc_dtype) const {
  if (!ok()) return *this;
  const Tensor sum =
      Fold<functions::Sum>("sum", Cast(acc_dtype.value_or(SumAccDType(dtype()))), axes, keepdim);
  const bool narrow = dtype() == Scalar::kFloat16 || dtype() == Scalar::kBFloat16;
  return narrow && !acc_dtype ? sum.Cast(dtype()) : sum;
}

Tensor Tensor::Prod(const Axes& axes, bool keepdim, std::optional<Scalar> acc_dtype) const {
  if (!ok()) return *this;
  return Fold<functions::Prod>("prod", Cast(acc_dtype.value_or(dtype())), axes, keepdim);
}

Tensor Tensor::Max(const Axes& axes, bool keepdim) const {
  return Fold<functions::Max>("max", *this, axes, keepdim);
}

Tensor Tensor::Min(const Axes& axes, bool keepdim) const {
  if (!ok()) return *this;
  return Inverse(Fold<functions::Max>("min", Inverse(*this), axes, keepdim));
}

Tensor Tensor::Any(const Axes& axes, bool keepdim) const {
  if (!ok()) return *this;
  return Fold<functions::Max>("any", Bool(), axes, keepdim);
}

Tensor Tensor::All(const Axes& axes, bool keepdim) const {
  if (!ok()) return *this;
  return Fold<functions::Max>("all", LogicalNot(), axes, keepdim).LogicalNot();
}

Tensor Tensor::Mean(const Axes& axes, bool keepdim) const {
  if (!ok()) return *this;
  Tensor sum = Fold<functions::Sum>("mean", Cast(SumAccDType(dtype())), axes, keepdim);
  if (!sum.ok()) return sum;
  return DividedBy(sum, FoldedCount(*this, axes))
      .Cast(IsFloat(dtype()) ? dtype() : Scalar::kFloat32);
}

Tensor Tensor::Var(const Axes& axes, bool keepdim, int correction) const {
  if (!ok()) return *this;
  const Tensor mean = Mean(axes, /*keepdim=*/true);
  if (!mean.ok()) return InvalidTensor("var", ResolveAxes(axes, ndim()).status().message());
  const SInt count = FoldedCount(*this, axes);
  return DividedBy(Sub(mean).Square().Sum(axes, keepdim), beamd::Max(0, count - correction));
}

Tensor Tensor::Std(const Axes& axes, bool keepdim, int correction) const {
  if (!ok()) return *this;
  return Named("std", Var(axes, keepdim, correction).Sqrt());
}

std::pair<Tensor, Tensor> Tensor::StdMean(const Axes& axes, bool keepdim, int correction) const {
  return {Std(axes, keepdim, correction), Mean(axes, keepdim)};
}

Tensor Tensor::Softmax(int axis, std::optional<Scalar> dtype) const {
  if (!ok()) return *this;
  const SoftmaxParts parts = MakeSoftmax(*this, axis, dtype);
  return Named("softmax", parts.exps.Div(parts.sum));
}

Tensor Tensor::LogSoftmax(int axis, std::optional<Scalar> dtype) const {
  if (!ok()) return *this;
  const SoftmaxParts parts = MakeSoftmax(*this, axis, dtype);
  return Named("log_softmax", parts.shifted.Sub(parts.sum.Log()));
}

Tensor Tensor::Logsumexp(const Axes& axes, bool keepdim) const {
  if (!ok()) return *this;
  const Tensor greatest = Max(axes, /*keepdim=*/true);
  if (!greatest.ok()) return Named("logsumexp", greatest);
  return Sub(greatest)
      .Exp()
      .Sum(axes, keepdim)
      .Log()
      .Add(keepdim ? greatest : WithoutAxes(greatest, *ResolveAxes(axes, ndim())));
}

Tensor Tensor::Logcumsumexp(int axis) const {
  if (!ok()) return *this;
  const Tensor greatest = Max(axis, /*keepdim=*/true);
  return Named("logcumsumexp", Sub(greatest).Exp().Cumsum(axis).Log().Add(greatest));
}

Tensor Tensor::Argmax(std::optional<int> axis, bool keepdim) const {
  if (!ok()) return *this;
  if (!axis) return Flatten().Argmax(0);
  const std::optional<int> resolved = ResolveAxis(*axis, ndim());
  if (!resolved) {
    return InvalidTensor("argmax", absl::StrCat("axis ", *axis, " is none of ", ndim()));
  }
  if (ndim() == 0) return Flatten().Argmax(0);
  const SInt& size = shape()[*resolved];
  if (!size.is_number() || size.number() == 0) {
    return InvalidTensor("argmax",
                         absl::StrCat("axis ", *axis, " has ", ToString(size), " elements"));
  }
  // The first of those that tie counts down from the highest number.
  Shape along(ndim() - *resolved, 1);
  along[0] = size;
  const Tensor from_end =
      Tensor::Arange(context(), size.number(), 0, -1, {.requires_grad = false, .device = device()})
          .Reshape(along);
  return Eq(Max(*resolved, /*keepdim=*/true))
      .Mul(from_end)
      .Max(*resolved, keepdim)
      .Sub(size.number(), /*reverse=*/true)
      .Cast(Scalar::kInt32);
}

Tensor Tensor::Argmin(std::optional<int> axis, bool keepdim) const {
  if (!ok()) return *this;
  return Named("argmin", Inverse(*this).Argmax(axis, keepdim));
}

Tensor Tensor::Cumsum(int axis) const { return Run("cumsum", *this, axis, Running::kSum); }
Tensor Tensor::Cummax(int axis) const { return Run("cummax", *this, axis, Running::kMax); }

}  // namespace beamd

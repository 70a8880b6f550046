#include "engine/tensor/tensor_impl.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_join.h"
#include "engine/dtype/promotion.h"

namespace beamd {
namespace {

// What a number becomes beside a tensor of `dtype`.
Scalar DTypeBeside(Scalar dtype, ConstValue value, const LazyContext& context) {
  if (IsFloat(dtype) || (IsInt(dtype) && !value.is_float())) return dtype;
  switch (value.kind()) {
    case ConstValue::Kind::kBool:
      return Scalar::kBool;
    case ConstValue::Kind::kInt:
      return context.default_int;
    case ConstValue::Kind::kFloat:
      return context.default_float;
  }
  return dtype;
}

std::pair<Tensor, Tensor> Both(const Tensor& tensor) { return {tensor, tensor}; }

}  // namespace

Tensor::Impl::~Impl() {
  std::vector<Tensor> doomed;
  const auto strip = [&doomed](Impl& impl) {
    if (impl.grad) doomed.emplace_back(std::move(impl.grad));
    if (!impl.recorded) return;
    std::move(impl.recorded->parents.begin(), impl.recorded->parents.end(),
              std::back_inserter(doomed));
    impl.recorded.reset();
  };
  strip(*this);
  while (!doomed.empty()) {
    const Tensor last = std::move(doomed.back());
    doomed.pop_back();
    if (last.impl().use_count() == 1) strip(*last.impl());
  }
}

Tensor InvalidTensor(absl::string_view operation, absl::string_view why) {
  return Tensor::Failed(absl::InvalidArgumentError(absl::StrCat(operation, ": ", why)));
}

Tensor FirstFailed(std::span<const Tensor> inputs) {
  for (const Tensor& input : inputs) {
    if (!input.ok()) return Tensor::Failed(input.status());
  }
  return Tensor();
}

Tensor Record(std::unique_ptr<Function> function, std::vector<Tensor> inputs, LazyBuffer result) {
  bool any = false;
  bool undecided = false;
  function->needs_input_grad.clear();
  for (const Tensor& input : inputs) {
    const std::optional<bool> requires_grad = input.requires_grad();
    any = any || requires_grad.value_or(false);
    undecided = undecided || !requires_grad.has_value();
    function->needs_input_grad.push_back(requires_grad.value_or(false));
  }
  std::optional<bool> requires_grad;
  if (any || !undecided) requires_grad = any;
  Tensor tensor(std::move(result), requires_grad);
  if (any && !tensor.context().no_grad) {
    tensor.impl()->recorded =
        std::make_unique<Recorded>(Recorded{std::move(function), std::move(inputs)});
  }
  return tensor;
}

std::optional<int> ResolveAxis(int axis, int ndim) {
  const int limit = std::max(ndim, 1);
  if (axis < -limit || axis >= limit) return std::nullopt;
  return axis < 0 ? axis + limit : axis;
}

absl::StatusOr<std::vector<int>> ResolveAxes(const Axes& axes, int ndim) {
  std::vector<int> resolved;
  if (axes.all()) {
    for (int i = 0; i < ndim; ++i) resolved.push_back(i);
    return resolved;
  }
  for (int axis : axes.list()) {
    const std::optional<int> at = ResolveAxis(axis, ndim);
    if (!at.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis ", axis, " is none of the ", ndim, " there are"));
    }
    // A scalar has none, and may be told to reduce over the one that it would have.
    if (ndim > 0) resolved.push_back(*at);
  }
  std::sort(resolved.begin(), resolved.end());
  const auto twice = std::adjacent_find(resolved.begin(), resolved.end());
  if (twice != resolved.end()) {
    return absl::InvalidArgumentError(absl::StrCat("axis ", *twice, " is named twice"));
  }
  return resolved;
}

absl::StatusOr<Shape> BroadcastShape(std::span<const Shape> shapes) {
  Shape result;
  for (const Shape& shape : shapes) {
    if (shape.size() > result.size()) {
      result.insert(result.begin(), shape.size() - result.size(), SInt(1));
    }
    const size_t skipped = result.size() - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      SInt& size = result[skipped + i];
      if (size == SInt(1)) {
        size = shape[i];
      } else if (shape[i] != SInt(1) && !ProvenEq(shape[i], size)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "shapes ",
            absl::StrJoin(shapes, " and ",
                          [](std::string* out, const Shape& s) { out->append(ToString(s)); }),
            " do not broadcast"));
      }
    }
  }
  return result;
}

bool IsCountable(const Shape& shape, int element_size) {
  int64_t bytes = element_size;
  bool fits = true;
  for (const SInt& size : shape) {
    if (size == 0) return true;
    fits = fits && size.max() >= 0 && !__builtin_mul_overflow(bytes, size.max(), &bytes);
  }
  return fits;
}

std::string ToString(const Shape& shape) {
  return absl::StrCat(
      "(",
      absl::StrJoin(shape, ", ",
                    [](std::string* out, const SInt& size) { out->append(ToString(size)); }),
      ")");
}

std::pair<Tensor, Tensor> Broadcasted(absl::string_view operation, const Tensor& like,
                                      const Operand& other, bool reverse, bool match_dtype) {
  if (!like.ok()) return Both(Tensor::Failed(like.status()));
  Tensor x = like;
  Tensor y;
  if (other.is_tensor()) {
    y = other.tensor();
    if (!y.ok()) return Both(Tensor::Failed(y.status()));
    if (&x.context() != &y.context()) {
      return Both(InvalidTensor(operation, "the tensors are of different contexts"));
    }
    if (x.device() != y.device()) {
      return Both(InvalidTensor(
          operation, absl::StrCat("one tensor is on ", x.device(), ", one on ", y.device())));
    }
  } else {
    const Scalar dtype = DTypeBeside(x.dtype(), other.constant(), x.context());
    y = Tensor(
        LazyBuffer::Const(x.context(), other.constant().As(dtype), x.shape(), dtype, x.device()),
        false);
  }
  if (match_dtype && x.dtype() != y.dtype()) {
    const Scalar dtype = LeastUpperDType({x.dtype(), y.dtype()});
    x = x.Cast(dtype);
    y = y.Cast(dtype);
  }
  if (x.shape() != y.shape()) {
    const absl::StatusOr<Shape> shape = BroadcastShape(std::vector<Shape>{x.shape(), y.shape()});
    if (!shape.ok()) return Both(InvalidTensor(operation, shape.status().message()));
    x = x.BroadcastTo(*shape);
    y = y.BroadcastTo(*shape);
  }
  if (reverse) std::swap(x, y);
  return {x, y};
}

}  // namespace beamd

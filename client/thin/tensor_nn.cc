// What networks are made of.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/thin/node.h"
#include "client/thin/tensor.h"

namespace beamd::thin {

using internal::Failed;

Tensor Tensor::Matmul(const Tensor& other) const {
  if (!ok()) return *this;
  if (!other.ok()) return other;
  if (ndim() == 0 || other.ndim() == 0) return Failed("matmul", "of a value without axes");
  if (ndim() == 1) {
    const Tensor product = Unsqueeze(0).Matmul(other);
    return product.ok() ? product.Squeeze(other.ndim() == 1 ? 0 : -2) : product;
  }
  if (other.ndim() == 1) {
    const Tensor product = Matmul(other.Unsqueeze(1));
    return product.ok() ? product.Squeeze(-1) : product;
  }
  if (!(shape().back() == other.shape()[other.ndim() - 2])) {
    return Failed("matmul", absl::StrCat(ToString(shape()), " by ", ToString(other.shape())));
  }
  // (.., m, 1, k) * (.., 1, n, k), added over k.
  return (Unsqueeze(-2) * other.Transpose().Unsqueeze(-3)).Sum({-1});
}

Tensor Tensor::Conv2d(const Tensor& weight, const WindowOptions& options) const {
  if (!ok()) return *this;
  if (!weight.ok()) return weight;
  const int64_t groups = options.groups;
  const auto fault = [&] {
    return Failed("conv2d", absl::StrCat(ToString(shape()), " by ", ToString(weight.shape()),
                                         " in ", groups, " groups"));
  };
  if (ndim() != 4 || weight.ndim() != 4 || !AllNumbers(weight.shape()) || !shape()[1].is_number() ||
      groups < 1) {
    return fault();
  }
  const std::vector<int64_t> w = Numbers(weight.shape());
  if (shape()[1].number() != w[1] * groups || w[0] % groups != 0) return fault();
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (w[2] < 1 || w[3] < 1 || w[2] > kMost || w[3] > kMost) return fault();
  Tensor windows = Windows({static_cast<int>(w[2]), static_cast<int>(w[3])}, options);
  if (!windows.ok()) return windows;
  // (n, group, 1, channel, y, x, ky, kx) beside (group, out, channel, 1, 1, ky, kx).
  const Size n = shape()[0], y = windows.shape()[2], x = windows.shape()[3];
  const int64_t out = w[0] / groups;
  const Tensor places = windows.Reshape({n, groups, 1, w[1], y, x, w[2], w[3]})
                            .Expand({n, groups, out, w[1], y, x, w[2], w[3]})
                            .Permute({0, 1, 2, 4, 5, 3, 6, 7});
  const Tensor filters = weight.Reshape({groups, out, 1, 1, w[1], w[2], w[3]});
  return (places * filters).Sum({-3, -2, -1}).Reshape({n, w[0], y, x});
}

Tensor Tensor::MaxPool2d(int kernel, const WindowOptions& options) const {
  if (!ok()) return *this;
  const double least = -std::numeric_limits<double>::infinity();
  return Windows({kernel, kernel}, options, least).Max({-2, -1});
}

Tensor Tensor::AvgPool2d(int kernel, const WindowOptions& options) const {
  return Windows({kernel, kernel}, options).Mean({-2, -1});
}

Tensor Tensor::Softmax(int axis) const {
  if (!ok()) return *this;
  const Tensor x = Cast(FloatOf(dtype()));
  const Tensor e = (x - x.Max({axis}, true).Detach()).Exp();
  return e / e.Sum({axis}, true);
}

Tensor Tensor::LogSoftmax(int axis) const {
  if (!ok()) return *this;
  const Tensor x = Cast(FloatOf(dtype()));
  const Tensor below = x - x.Max({axis}, true).Detach();
  return below - below.Exp().Sum({axis}, true).Log();
}

Tensor Tensor::Layernorm(double eps) const {
  const Tensor centred = *this - Mean({-1}, true);
  return centred * (centred.Square().Mean({-1}, true) + eps).Rsqrt();
}

Tensor Tensor::OneHot(int64_t classes) const {
  if (!ok()) return *this;
  if (!IsInt(dtype())) return Failed("one_hot", absl::StrCat("takes no ", Name(dtype())));
  return Unsqueeze(-1).Equal(Arange(classes, 0, 1, dtype()));
}

Tensor Tensor::Embedding(const Tensor& ids) const {
  if (!ok()) return *this;
  if (!ids.ok()) return ids;
  if (ndim() != 2 || !shape()[0].is_number()) {
    return Failed("embedding", absl::StrCat("a table of shape ", ToString(shape())));
  }
  return Where(ids.OneHot(shape()[0].number()).Unsqueeze(-1), *this, 0).Sum({-2});
}

Tensor Tensor::CrossEntropy(const Tensor& labels) const {
  if (!ok()) return *this;
  if (!labels.ok()) return labels;
  if (ndim() != 2 || labels.ndim() != 1 || !(labels.shape()[0] == shape()[0]) ||
      !shape()[1].is_number()) {
    return Failed("cross_entropy", absl::StrCat("logits of ", ToString(shape()), ", labels of ",
                                                ToString(labels.shape())));
  }
  const Tensor chosen = Where(labels.OneHot(shape()[1].number()), LogSoftmax(), 0);
  return chosen.Sum({1}).Mean().Neg();
}

}  // namespace beamd::thin

// Normalisations.
#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {

Tensor Tensor::Layernorm(const Axes& axes, double eps) const {
  const Tensor y = *this - Mean(axes, /*keepdim=*/true);
  return y * ((y * y).Mean(axes, /*keepdim=*/true) + eps).Rsqrt();
}

Tensor Tensor::Batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                         const Tensor& invstd, const Axes& axes) const {
  constexpr char kName[] = "batchnorm";
  if (Tensor failed = FirstFailed({*this, mean, invstd}); failed.defined()) return failed;
  const absl::StatusOr<std::vector<int>> channels = ResolveAxes(axes, ndim());
  if (!channels.ok()) return InvalidTensor(kName, channels.status().message());
  // The sizes of the channels' axes, 1 elsewhere.
  Shape along(ndim(), 1);
  for (int axis : *channels) along[axis] = shape()[axis];
  Tensor x = *this - mean.Reshape(along);
  if (weight.defined()) x = x * weight.Reshape(along);
  const bool is_a_value_a_channel = invstd.shape().size() == channels->size();
  x = x * (is_a_value_a_channel ? invstd.Reshape(along) : invstd);
  return bias.defined() ? x + bias.Reshape(along) : x;
}

}  // namespace beamd

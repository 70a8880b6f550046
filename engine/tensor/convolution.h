// What the ways to convolve share: arguments that are checked, padding.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/dtype/const_value.h"
#include "engine/dtype/dtype.h"
#include "engine/tensor/tensor.h"

namespace beamd {

// A convolution over `axes()` spatial axes whose input, weight and bias fit.
struct Convolution {
  int groups = 1;
  std::vector<int> kernel, stride, dilation;
  std::vector<int> padding;  // (left, right) of the last axis first

  int axes() const { return static_cast<int>(kernel.size()); }
};

absl::StatusOr<Convolution> CheckConvolution(const Tensor& x, const Tensor& weight,
                                             const Tensor& bias, int groups, const PerAxis& stride,
                                             const PerAxis& dilation, const PerAxis& padding);

// By (left, right) of the last axis first.
Tensor PadFlatBy(const Tensor& x, const std::vector<int>& flat, ConstValue value = 0.0);

// `y` and a value a channel, which is axis 1; an undefined bias is none.
Tensor WithBias(const Tensor& y, const Tensor& bias);

// Whether image_conv2d takes operands like these: floats of at most 32 bits, sizes that are numbers
// above 0. What it computes in float32 would not be the others' values.
bool TakesImages(const Tensor& x, const Tensor& w);

// The convolution with channels in groups of four, each operand rearranged so in memory of its own:
// with IMAGE 2 images. Two axes, TakesImages.
Tensor ImageConvolution(const Tensor& x, const Tensor& weight, const Convolution& convolution,
                        std::optional<Scalar> acc_dtype);

}  // namespace beamd

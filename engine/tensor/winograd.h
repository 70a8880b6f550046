// Convolution by Winograd's minimal filtering.
#pragma once

#include <optional>
#include <vector>

#include "engine/tensor/tensor.h"

namespace beamd {

// x (batch, groups * cin, spatial...) with weight (groups * rcout, cin, 3...), stride and dilation 1,
// without a bias, in tiles of 4 outputs an axis: F(4x4, 3x3) of Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2015 (arXiv 1509.09308). Equal to Conv2d but for rounding.
//
// `padding` is flat (left, right) pairs from the last axis on. Arguments fit each other; spatial
// sizes are numbers, dtypes floats.
//
// Spec: tinygrad 0.10.0 tensor.py, conv2d. Differs: an axis is rounded up to whole tiles by its own
// size, not by that of the axis at the other end; half floats are transformed in float32 and the
// result has the dtype that it would have without.
Tensor WinogradConv2d(const Tensor& x, const Tensor& weight, int groups,
                      const std::vector<int>& padding, std::optional<Scalar> acc_dtype);

}  // namespace beamd

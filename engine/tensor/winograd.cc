#include "engine/tensor/winograd.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/dtype/promotion.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {

namespace {

using Matrix = std::vector<std::vector<double>>;

constexpr int kTileOutputs = 4;
constexpr int kTileInputs = 6;

// The paper's G, B transposed and A transposed.
const Matrix& FilterTransform() {
  static const auto* matrix = new Matrix{{1.0 / 4, 0, 0},
                                         {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                         {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                         {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                         {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                         {0, 0, 1}};
  return *matrix;
}
const Matrix& DataTransform() {
  static const auto* matrix =
      new Matrix{{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
                 {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
  return *matrix;
}
const Matrix& OutputTransform() {
  static const auto* matrix = new Matrix{
      {1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}};
  return *matrix;
}

// Column `k` of `matrix` along `axis` of something of `shape`, size 1 there before: constants side
// by side, which fold into the kernel that uses them.
Tensor Column(const Matrix& matrix, int k, int axis, Shape shape, const Tensor& like) {
  shape[axis] = 1;
  const TensorOptions options = {.dtype = like.dtype(), .device = like.device()};
  std::vector<Tensor> rows;
  for (const std::vector<double>& row : matrix) {
    rows.push_back(Tensor::Full(like.context(), shape, row[k], options));
  }
  return rows[0].Cat(std::span<const Tensor>(rows).subspan(1), axis);
}

// `matrix` times `t` along each of the first `dims` axes. The products are written out: reshaped,
// expanded, then multiplied, so that each element of t is read through one view.
Tensor ApplyMatrix(const Matrix& matrix, const Tensor& t, int dims) {
  const Shape& shape = t.shape();
  const auto rest = shape.begin() + dims;
  Shape with_outputs(shape.begin(), rest);
  with_outputs.insert(with_outputs.end(), dims, 1);
  with_outputs.insert(with_outputs.end(), rest, shape.end());
  Shape expanded = with_outputs;
  std::fill_n(expanded.begin() + dims, dims, SInt(static_cast<int64_t>(matrix.size())));
  const Tensor inputs = t.Reshape(with_outputs).Expand(expanded);
  const Shape output_shape(expanded.begin() + dims, expanded.end());

  const int columns = static_cast<int>(matrix[0].size());
  std::vector<std::vector<Tensor>> column(dims);
  for (int axis = 0; axis < dims; ++axis) {
    for (int k = 0; k < columns; ++k) {
      column[axis].push_back(Column(matrix, k, axis, output_shape, t));
    }
  }

  Tensor sum;
  std::vector<int> at(dims, 0);
  for (bool more = true; more;) {
    Tensor factor = column[0][at[0]];
    for (int axis = 1; axis < dims; ++axis) factor = factor * column[axis][at[axis]];
    const Tensor term = factor * inputs.Get(std::vector<Index>(at.begin(), at.end()));
    sum = sum.defined() ? sum + term : term;
    more = false;
    for (int axis = dims - 1; axis >= 0 && !more; --axis) {
      more = ++at[axis] < columns;
      if (!more) at[axis] = 0;
    }
  }
  return sum;
}

// The last `count` axes first.
Tensor LastAxesFirst(const Tensor& t, int count) {
  std::vector<int> order(t.ndim());
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.end() - count, order.end());
  return t.Permute(order);
}

}  // namespace

Tensor WinogradConv2d(const Tensor& x, const Tensor& weight, int groups,
                      const std::vector<int>& padding, std::optional<Scalar> acc_dtype) {
  const int dims = weight.ndim() - 2;
  const SInt& batch = x.shape()[0];
  const SInt& cout = weight.shape()[0];
  const SInt& cin = weight.shape()[1];
  const SInt rcout = cout / groups;
  const Scalar result_dtype = acc_dtype.value_or(LeastUpperDType({x.dtype(), weight.dtype()}));
  const auto transformed = [](const Tensor& t) {
    return t.Cast(LeastUpperDType({t.dtype(), Scalar::kFloat32}));
  };

  // Pad to whole tiles.
  std::vector<SInt> tile_padding;
  Shape output = {batch, cout};
  output.resize(2 + dims);
  for (int i = 0; i < dims; ++i) {  // from the last axis on
    const int left = padding[2 * i];
    const int right = padding[2 * i + 1];
    const int64_t outputs = x.shape()[x.ndim() - 1 - i].number() + left + right - 2;
    output[2 + dims - 1 - i] = outputs;
    tile_padding.emplace_back(left);
    tile_padding.emplace_back(right + (kTileOutputs - outputs % kTileOutputs) % kTileOutputs);
  }
  // (tile inputs..., batch, groups * cin, tiles...)
  Tensor data = LastAxesFirst(
      transformed(x).PadFlat(tile_padding).Pool(std::vector<int>(dims, kTileInputs), kTileOutputs),
      dims);
  if (!data.ok()) return data;
  const Shape tiles(data.shape().end() - dims, data.shape().end());
  const Tensor filter = LastAxesFirst(transformed(weight), dims);  // (3..., cout, cin)

  // (tile inputs..., 1, groups, rcout, cin, 1...) times (tile inputs..., batch, groups, 1, cin, tiles...)
  const Shape tile_inputs(dims, kTileInputs);
  Shape filter_shape = tile_inputs;
  filter_shape.insert(filter_shape.end(), {1, groups, rcout, cin});
  filter_shape.insert(filter_shape.end(), dims, 1);
  Shape data_shape = tile_inputs;
  data_shape.insert(data_shape.end(), {batch, groups, 1, cin});
  data_shape.insert(data_shape.end(), tiles.begin(), tiles.end());
  const Tensor product = ApplyMatrix(FilterTransform(), filter, dims).Reshape(filter_shape) *
                         ApplyMatrix(DataTransform(), data, dims).Reshape(data_shape);
  // (tile outputs..., batch, groups, rcout, tiles...)
  const Tensor tiled =
      ApplyMatrix(OutputTransform(), product.Sum(-1 - dims, /*keepdim=*/false, acc_dtype), dims);

  // Each axis' tiles beside their outputs, merged, cut to size.
  std::vector<int> order = {dims, dims + 1, dims + 2};
  Shape merged = {batch, cout};
  std::vector<std::optional<std::pair<SInt, SInt>>> ranges(2);
  for (int i = 0; i < dims; ++i) {
    order.push_back(dims + 3 + i);
    order.push_back(i);
    merged.push_back(tiles[i] * kTileOutputs);
    ranges.emplace_back(std::pair<SInt, SInt>(0, output[2 + i]));
  }
  return tiled.Permute(order).Reshape(merged).Shrink(ranges).Cast(result_dtype);
}

}  // namespace beamd

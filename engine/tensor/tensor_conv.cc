// Convolutions and pooling of any number of spatial axes: sums and maxima over windows (Pool).
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/option.h"
#include "engine/base/status.h"
#include "engine/dtype/promotion.h"
#include "engine/tensor/convolution.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"
#include "engine/tensor/winograd.h"

namespace beamd {

namespace {

// Of a stride, a padding, ...: so that sums of a few stay in an int.
constexpr int kMostPerAxis = 1 << 28;

// One value an axis, each at least `least`.
absl::StatusOr<std::vector<int>> ForAxes(absl::string_view what, const PerAxis& values, int axes,
                                         int least) {
  std::vector<int> result =
      values.is_uniform() ? std::vector<int>(axes, values.values()[0]) : values.values();
  if (static_cast<int>(result.size()) != axes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", result.size(), " values for ", axes, " axes"));
  }
  for (int value : result) {
    if (value < least) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " (", absl::StrJoin(result, ", "), ") is below ", least));
    }
    if (value > kMostPerAxis) {
      return absl::InvalidArgumentError(absl::StrCat(what, " of ", value, " is too large"));
    }
  }
  return result;
}

// Flat (left, right) pairs from the last axis on.
absl::StatusOr<std::vector<int>> FlatPadding(const PerAxis& padding, int axes) {
  const std::vector<int>& values = padding.values();
  for (int value : values) {
    if (value > kMostPerAxis || value < -kMostPerAxis) {
      return absl::InvalidArgumentError(absl::StrCat("padding of ", value, " is too large"));
    }
  }
  if (padding.is_uniform()) return std::vector<int>(2 * axes, values[0]);
  if (static_cast<int>(values.size()) == 2 * axes) return values;
  if (static_cast<int>(values.size()) != axes) {
    return absl::InvalidArgumentError(absl::StrCat("padding has ", values.size(), " values for ",
                                                   axes, " axes: one or two an axis are needed"));
  }
  std::vector<int> flat;
  for (int axis = axes - 1; axis >= 0; --axis) flat.insert(flat.end(), 2, values[axis]);
  return flat;
}

// (-axes, ..., -1).
std::vector<int> LastAxes(int axes) {
  std::vector<int> result(axes);
  std::iota(result.begin(), result.end(), -axes);
  return result;
}

bool AllOnes(const std::vector<int>& values) {
  return std::all_of(values.begin(), values.end(), [](int v) { return v == 1; });
}

// What a pooling does at each place, all counts checked.
struct Windows {
  std::vector<int> kernel;
  std::vector<int> stride;
  std::vector<int> dilation;
  std::vector<int> padding;  // flat
  // Flat: what ceil_mode pads at the right beside that.
  std::vector<int> ceil_padding;
  int axes() const { return static_cast<int>(kernel.size()); }

  Tensor Of(const Tensor& padded) const {
    return padded.Pool(kernel, PerAxis(stride), PerAxis(dilation));
  }
  std::vector<int> whole_padding() const {
    std::vector<int> sum = padding;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += ceil_padding[i];
    return sum;
  }
  bool is_padded_by_ceil() const {
    return std::any_of(ceil_padding.begin(), ceil_padding.end(), [](int v) { return v != 0; });
  }
};

absl::StatusOr<Windows> PoolingWindows(const Tensor& x, const PerAxis& kernel,
                                       const std::optional<PerAxis>& stride,
                                       const PerAxis& dilation, const PerAxis& padding,
                                       bool ceil_mode) {
  const int axes = kernel.is_uniform() ? 2 : static_cast<int>(kernel.values().size());
  Windows windows;
  BEAMD_ASSIGN_OR_RETURN(windows.kernel, ForAxes("kernel", kernel, axes, 1));
  BEAMD_ASSIGN_OR_RETURN(windows.stride, ForAxes("stride", stride.value_or(kernel), axes, 1));
  BEAMD_ASSIGN_OR_RETURN(windows.dilation, ForAxes("dilation", dilation, axes, 1));
  BEAMD_ASSIGN_OR_RETURN(windows.padding, FlatPadding(padding, axes));
  if (axes == 0 || x.ndim() < axes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a kernel of ", axes, " axes over shape ", ToString(x.shape())));
  }
  windows.ceil_padding.assign(2 * axes, 0);
  if (!ceil_mode) return windows;
  for (int axis = 0; axis < axes; ++axis) {
    const SInt& size = x.shape()[x.ndim() - axes + axis];
    if (!size.is_number()) {
      return absl::InvalidArgumentError("ceil_mode over an axis of symbolic size");
    }
    const int64_t flat = 2 * (axes - 1 - axis);
    const int64_t left = windows.padding[flat];
    const int64_t padded = size.number() + left + windows.padding[flat + 1];
    const int64_t span = int64_t{windows.dilation[axis]} * (windows.kernel[axis] - 1) + 1;
    const int64_t step = windows.stride[axis];
    if (padded < span) continue;  // Pool refuses it
    // The start of the last window, which must begin on an element or on the left padding.
    // Dumoulin and Visin, "A guide to convolution arithmetic", relationship 15.
    int64_t last = (padded - span + step - 1) / step * step;
    if (last >= size.number() + left) last -= step;
    windows.ceil_padding[flat + 1] = static_cast<int>(std::max<int64_t>(last + span - padded, 0));
  }
  return windows;
}

}  // namespace

absl::StatusOr<Convolution> CheckConvolution(const Tensor& x, const Tensor& weight,
                                             const Tensor& bias, int groups, const PerAxis& stride,
                                             const PerAxis& dilation, const PerAxis& padding) {
  const int axes = weight.ndim() - 2;
  const auto mismatch = [&] {
    return absl::InvalidArgumentError(absl::StrCat("input ", ToString(x.shape()),
                                                   " doesn't fit weight ", ToString(weight.shape()),
                                                   " in ", groups, " groups"));
  };
  if (axes < 1 || x.ndim() != weight.ndim() || groups < 1) return mismatch();
  const SInt& cout = weight.shape()[0];
  const SInt& cin = weight.shape()[1];
  if (!cout.is_number() || cout.number() % groups != 0 || x.shape()[1] != cin * groups) {
    return mismatch();
  }
  if (bias.defined() && bias.ok() && bias.shape() != Shape{cout}) {
    return absl::InvalidArgumentError(
        absl::StrCat("bias ", ToString(bias.shape()), " for ", ToString(cout), " output channels"));
  }
  Convolution convolution;
  convolution.groups = groups;
  for (int i = 0; i < axes; ++i) {
    const SInt& size = weight.shape()[2 + i];
    if (!size.is_number() || size.number() < 1 || size.number() > std::numeric_limits<int>::max()) {
      return mismatch();
    }
    convolution.kernel.push_back(static_cast<int>(size.number()));
  }
  BEAMD_ASSIGN_OR_RETURN(convolution.stride, ForAxes("stride", stride, axes, 1));
  BEAMD_ASSIGN_OR_RETURN(convolution.dilation, ForAxes("dilation", dilation, axes, 1));
  BEAMD_ASSIGN_OR_RETURN(convolution.padding, FlatPadding(padding, axes));
  return convolution;
}

Tensor PadFlatBy(const Tensor& x, const std::vector<int>& flat, ConstValue value) {
  if (std::all_of(flat.begin(), flat.end(), [](int v) { return v == 0; })) return x;
  return x.PadFlat(std::vector<SInt>(flat.begin(), flat.end()), PadMode::kConstant, value);
}

Tensor WithBias(const Tensor& y, const Tensor& bias) {
  if (!bias.defined() || !y.ok()) return y;
  Shape shape = {1, -1};
  shape.insert(shape.end(), y.ndim() - 2, 1);
  return y.Add(bias.Reshape(shape));
}

Tensor Tensor::Conv2d(const Tensor& weight, const Tensor& bias, int groups, const PerAxis& stride,
                      const PerAxis& dilation, const PerAxis& padding,
                      std::optional<Scalar> acc_dtype) const {
  constexpr char kName[] = "conv2d";
  if (Tensor failed = FirstFailed({*this, weight}); failed.defined()) return failed;
  const absl::StatusOr<Convolution> checked =
      CheckConvolution(*this, weight, bias, groups, stride, dilation, padding);
  if (!checked.ok()) return InvalidTensor(kName, checked.status().message());
  const int axes = checked->axes();
  if (options::kImage != 0 && axes == 2 && TakesImages(*this, weight)) {
    return WithBias(ImageConvolution(*this, weight, *checked, acc_dtype), bias);
  }
  const std::vector<int>& kernel = checked->kernel;
  const SInt& batch = shape()[0];
  const SInt& cout = weight.shape()[0];
  const SInt& cin = weight.shape()[1];

  // (batch, groups * cin, outputs..., kernel...)
  Tensor windows = PadFlatBy(*this, checked->padding)
                       .Pool(kernel, PerAxis(checked->stride), PerAxis(checked->dilation));
  if (!windows.ok()) return windows;
  const Shape outputs(windows.shape().begin() + 2, windows.shape().end() - axes);

  const bool is_winograd =
      options::kWino != 0 && AllOnes(checked->stride) && AllOnes(checked->dilation) &&
      std::all_of(kernel.begin(), kernel.end(), [](int k) { return k == 3; }) && IsFloat(dtype()) &&
      IsFloat(weight.dtype()) && AllNumbers(outputs);
  if (is_winograd) {
    return WithBias(WinogradConv2d(*this, weight, groups, checked->padding, acc_dtype), bias)
        .Contiguous()
        .ContiguousBackward();
  }

  const SInt rcout = cout / groups;
  // (batch, groups, rcout, outputs..., cin, kernel...)
  Shape split = {batch, groups, cin, 1};
  Shape expanded = {batch, groups, cin, rcout};
  std::vector<int> order = {0, 1, 3};
  Shape weight_shape = {1, groups, rcout};
  for (int i = 0; i < axes; ++i) order.push_back(4 + i);
  order.push_back(2);
  for (int i = 0; i < axes; ++i) order.push_back(4 + axes + i);
  for (Shape* to : {&split, &expanded}) {
    to->insert(to->end(), windows.shape().begin() + 2, windows.shape().end());
  }
  weight_shape.insert(weight_shape.end(), axes, 1);
  weight_shape.insert(weight_shape.end(), weight.shape().begin() + 1, weight.shape().end());
  Shape result_shape = {batch, cout};
  result_shape.insert(result_shape.end(), outputs.begin(), outputs.end());
  return WithBias(
      (windows.Reshape(split).Expand(expanded).Permute(order) * weight.Reshape(weight_shape))
          .Sum(LastAxes(1 + axes), /*keepdim=*/true, acc_dtype)
          .Reshape(result_shape),
      bias);
}

Tensor Tensor::ConvTranspose2d(const Tensor& weight, const Tensor& bias, int groups,
                               const PerAxis& stride, const PerAxis& dilation,
                               const PerAxis& padding, const PerAxis& output_padding) const {
  constexpr char kName[] = "conv_transpose2d";
  if (Tensor failed = FirstFailed({*this, weight}); failed.defined()) return failed;
  const int axes = weight.ndim() - 2;
  if (axes < 1 || ndim() != weight.ndim() || groups < 1 || shape()[1] != weight.shape()[0] ||
      !AllNumbers(weight.shape()) || weight.shape()[0].number() % groups != 0) {
    return InvalidTensor(kName, absl::StrCat("input ", ToString(shape()), " doesn't fit weight ",
                                             ToString(weight.shape()), " in ", groups, " groups"));
  }
  const absl::StatusOr<std::vector<int>> steps = ForAxes("stride", stride, axes, 1);
  if (!steps.ok()) return InvalidTensor(kName, steps.status().message());
  const absl::StatusOr<std::vector<int>> gaps = ForAxes("dilation", dilation, axes, 1);
  if (!gaps.ok()) return InvalidTensor(kName, gaps.status().message());
  const absl::StatusOr<std::vector<int>> pads = ForAxes("padding", padding, axes, 0);
  if (!pads.ok()) return InvalidTensor(kName, pads.status().message());
  const absl::StatusOr<std::vector<int>> extra = ForAxes("output_padding", output_padding, axes, 0);
  if (!extra.ok()) return InvalidTensor(kName, extra.status().message());

  // The weight flipped, inputs and outputs of each group exchanged.
  std::vector<int> flipped(axes);
  std::iota(flipped.begin(), flipped.end(), 3);
  const Tensor w = weight.Unflatten(0, {groups, -1}).Transpose(1, 2).Flip(flipped).Flatten(0, 1);

  // stride - 1 zeros between neighbours: (n) to (n, 1) to (n, stride) to (n * stride), the last
  // zeros cut.
  Tensor x = *this;
  if (!AllOnes(*steps)) {
    Shape apart = {shape()[0], shape()[1]};
    Shape merged = apart;
    PadAmounts zeros(2);
    PadAmounts cut(2);
    for (int i = 0; i < axes; ++i) {
      const SInt& size = shape()[2 + i];
      const int step = (*steps)[i];
      apart.insert(apart.end(), {size, 1});
      zeros.emplace_back(std::nullopt);
      zeros.emplace_back(std::pair<SInt, SInt>(0, step - 1));
      merged.push_back(size * step);
      cut.emplace_back(std::pair<SInt, SInt>(0, size * step - (step - 1)));
    }
    x = Reshape(apart).Pad(zeros).Reshape(merged).Shrink(cut);
  }
  std::vector<int> conv_padding;
  for (int i = axes - 1; i >= 0; --i) {
    // How far a kernel reaches beyond an output.
    const int64_t taps = weight.shape()[2 + i].number();
    if (taps < 1 || taps > kMostPerAxis || (taps - 1) * (*gaps)[i] > kMostPerAxis) {
      return InvalidTensor(kName,
                           absl::StrCat("a kernel of ", taps, " with dilation ", (*gaps)[i]));
    }
    const int reach = static_cast<int>(taps - 1) * (*gaps)[i];
    conv_padding.push_back(reach - (*pads)[i]);
    conv_padding.push_back(reach - (*pads)[i] + (*extra)[i]);
  }
  return x.Conv2d(w, bias, groups, 1, PerAxis(*gaps), PerAxis(conv_padding));
}

Tensor Tensor::AvgPool2d(const PerAxis& kernel, const std::optional<PerAxis>& stride,
                         const PerAxis& dilation, const PerAxis& padding, bool ceil_mode,
                         bool count_include_pad) const {
  if (Tensor failed = FirstFailed({*this}); failed.defined()) return failed;
  const absl::StatusOr<Windows> windows =
      PoolingWindows(*this, kernel, stride, dilation, padding, ceil_mode);
  if (!windows.ok()) return InvalidTensor("avg_pool2d", windows.status().message());
  const std::vector<int> axes = LastAxes(windows->axes());
  const std::vector<int> whole = windows->whole_padding();
  const Tensor pooled = windows->Of(PadFlatBy(*this, whole));
  if (!count_include_pad) {
    return pooled.Sum(axes) / windows->Of(PadFlatBy(OnesLike(), whole)).Sum(axes);
  }
  if (!windows->is_padded_by_ceil()) return pooled.Mean(axes);
  // What ceil_mode adds counts for nothing.
  const Tensor counted = PadFlatBy(*this, windows->padding).OnesLike();
  return pooled.Sum(axes) / windows->Of(PadFlatBy(counted, windows->ceil_padding)).Sum(axes);
}

Tensor Tensor::MaxPool2d(const PerAxis& kernel, const std::optional<PerAxis>& stride,
                         const PerAxis& dilation, const PerAxis& padding, bool ceil_mode) const {
  if (Tensor failed = FirstFailed({*this}); failed.defined()) return failed;
  const absl::StatusOr<Windows> windows =
      PoolingWindows(*this, kernel, stride, dilation, padding, ceil_mode);
  if (!windows.ok()) return InvalidTensor("max_pool2d", windows.status().message());
  const ConstValue least = IsFloat(dtype()) ? ConstValue(-std::numeric_limits<double>::infinity())
                                            : ConstValue(MinInt(dtype()));
  return windows->Of(PadFlatBy(*this, windows->whole_padding(), least))
      .Max(LastAxes(windows->axes()));
}

Tensor Tensor::Interpolate(const std::vector<int>& size, InterpolateMode mode,
                           bool align_corners) const {
  constexpr char kName[] = "interpolate";
  if (Tensor failed = FirstFailed({*this}); failed.defined()) return failed;
  const int axes = static_cast<int>(size.size());
  if (axes < 1 || axes > ndim()) {
    return InvalidTensor(kName, absl::StrCat(axes, " sizes for shape ", ToString(shape())));
  }
  if (align_corners && mode != InterpolateMode::kLinear) {
    return InvalidTensor(kName, "align_corners without the linear mode");
  }
  for (int i = 0; i < axes; ++i) {
    const SInt& from = shape()[ndim() - axes + i];
    if (!from.is_number() || from.number() < 1 || size[i] < 1) {
      return InvalidTensor(
          kName, absl::StrCat("from ", ToString(shape()), " to (", absl::StrJoin(size, ", "), ")"));
    }
  }

  Tensor x = *this;
  Shape expanded = shape();
  for (int i = 1; i <= axes; ++i) {
    const int axis = ndim() - i;
    const int64_t from = shape()[axis].number();
    const int to = size[axes - i];
    Shape along(ndim(), 1);
    along[axis] = to;
    expanded[axis] = to;
    const auto everywhere = [&](const Tensor& line) {
      return line.Reshape(along).Expand(expanded);
    };
    const Tensor at = Arange(context(), to, {.dtype = Scalar::kFloat32, .device = device()});
    // Of one output, align_corners takes the first element.
    const double scale = !align_corners ? static_cast<double>(from) / to
                         : to == 1      ? 0.0
                                        : static_cast<double>(from - 1) / (to - 1);
    if (mode == InterpolateMode::kLinear) {
      const Tensor place = (align_corners ? at * scale : (at + 0.5) * scale - 0.5)
                               .Clamp(0.0, static_cast<double>(from - 1));
      const Tensor low = place.Floor();
      x = x.Gather(axis, everywhere(low.Int()))
              .Lerp(x.Gather(axis, everywhere(place.Ceil().Int())), everywhere(place - low));
    } else {
      const Tensor place = mode == InterpolateMode::kNearestExact ? (at + 0.5) * scale : at * scale;
      x = x.Gather(axis, everywhere(place.Int()));
    }
  }
  return x.Cast(dtype());
}

}  // namespace beamd

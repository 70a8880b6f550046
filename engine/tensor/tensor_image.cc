// Convolutions and products over groups of four channels, as hardware with images wants them: each
// operand is rearranged and stored, four elements a texel (option IMAGE).
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/autograd/functions.h"
#include "engine/base/option.h"
#include "engine/dtype/image.h"
#include "engine/dtype/promotion.h"
#include "engine/tensor/convolution.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

constexpr int64_t kTexel = 4;

// With IMAGE 2: `x` stored as an image of so many texels; as a plain buffer where there is no image
// of that size.
Tensor AsTexels(const Tensor& x, int64_t height, int64_t width) {
  if (!x.ok() || options::kImage < 2) return x;
  const Scalar texel = options::kFloat16 != 0 ? Scalar::kFloat16 : Scalar::kFloat32;
  return Apply<functions::CastImage>({x.Cast(Scalar::kFloat32)},
                                     ImageOf(texel, height, width).value_or(DType()));
}

// `amount` zeros behind one axis.
Tensor PadBehind(const Tensor& x, int axis, int64_t amount) {
  if (amount == 0) return x;
  PadAmounts amounts(x.ndim());
  amounts[axis] = std::pair<SInt, SInt>(0, amount);
  return x.Pad(amounts);
}

// How many channels to add for whole texels. Depthwise, the groups are what fills them.
int64_t MissingChannels(int64_t channels, int64_t groups) {
  if (channels == 1 && groups % kTexel == 0) return 0;
  return (kTexel - channels % kTexel) % kTexel;
}

// The axes before the last two.
Shape BatchOf(const Tensor& x) { return Shape(x.shape().begin(), x.shape().end() - 2); }

Tensor ExpandBatch(const Tensor& x, Shape batch) {
  batch.insert(batch.end(), x.shape().end() - 2, x.shape().end());
  return x.BroadcastTo(batch);
}

bool EndsWith(const Shape& whole, const Shape& end) {
  return whole.size() >= end.size() && std::equal(end.rbegin(), end.rend(), whole.rbegin());
}

}  // namespace

bool TakesImages(const Tensor& x, const Tensor& w) {
  const auto counted = [](const Tensor& t) {
    return AllNumbers(t.shape()) && t.numel() != SInt(0);
  };
  const Scalar s = LeastUpperDType({x.dtype(), w.dtype()});
  return IsFloat(s) && SizeBytes(s) <= 4 && counted(x) && counted(w);
}

// 0.10.0: image_conv2d, whose order of axes decides what is read side by side.
Tensor ImageConvolution(const Tensor& input, const Tensor& weight, const Convolution& convolution,
                        std::optional<Scalar> acc_dtype) {
  const int64_t groups = convolution.groups;
  const int64_t batch = input.shape()[0].number();
  const int64_t iy = input.shape()[2].number(), ix = input.shape()[3].number();
  const int64_t kh = convolution.kernel[0], kw = convolution.kernel[1];
  int64_t cin = weight.shape()[1].number();
  int64_t rcout = weight.shape()[0].number() / groups;  // output channels of a group

  Tensor x = input;
  Tensor w = weight.Reshape({groups, rcout, cin, kh, kw});
  if (const int64_t missing = MissingChannels(cin, groups); missing != 0) {
    x = PadBehind(x.Reshape({batch, groups, cin, iy, ix}), 2, missing);
    w = PadBehind(w, 2, missing);
    cin += missing;
    x = x.Reshape({batch, groups * cin, iy, ix});
  }
  const int64_t missing_outputs = MissingChannels(rcout, groups);
  w = PadBehind(w, 1, missing_outputs);
  rcout += missing_outputs;
  const int64_t cout = groups * rcout;

  // Texels of an input are four of its channels; of a weight, four outputs for one input channel,
  // or, where there is nothing beside channels, four input channels.
  const bool channels_only = iy == 1 && ix == 1;
  x = x.Permute({0, 2, 3, 1});
  if (cin == 1) {
    w = w.Reshape({cout / kTexel, kTexel, kh, kw}).Permute({0, 2, 3, 1});
  } else {
    w = w.Reshape({cout / kTexel, kTexel, cin / kTexel, kTexel, kh, kw});
    w = channels_only ? w.Permute({0, 4, 2, 5, 1, 3}) : w.Permute({0, 4, 2, 5, 3, 1});
  }
  x = AsTexels(x, batch * iy, ix * groups * cin / kTexel).Contiguous();
  w = AsTexels(w, cout / kTexel, kh * kw * cin).Contiguous();

  const int64_t cin_hi = cin == 1 ? 1 : cin / kTexel;
  const int64_t cin_lo = cin == 1 ? 1 : kTexel;
  const std::array<int64_t, 4> outputs = {
      cin == 1 ? groups / kTexel : groups, cin == 1 ? kTexel : 1,
      rcout >= kTexel ? rcout / kTexel : 1, rcout >= kTexel ? kTexel : 1};
  if (channels_only) {
    w = w.Reshape({cout / kTexel, kh, cin_hi, kw, kTexel, cin_lo});
  } else {
    w = w.Reshape({cout / kTexel, kh, cin_hi, kw, cin_lo, kTexel}).Permute({0, 1, 2, 3, 5, 4});
  }
  w = w.Permute({0, 4, 2, 5, 1, 3})
          .Reshape(
              {1, 1, 1, outputs[0], outputs[1], outputs[2], outputs[3], cin_hi, cin_lo, kh, kw});

  // (batch, groups, cin_hi, cin_lo, oy, ox, kh, kw)
  x = x.Reshape({batch, iy, ix, groups, cin_hi, cin_lo}).Permute({0, 3, 4, 5, 1, 2});
  x = PadFlatBy(x, convolution.padding)
          .Pool(convolution.kernel, PerAxis(convolution.stride), PerAxis(convolution.dilation));
  if (!x.ok()) return x;
  const int64_t oy = x.shape()[4].number(), ox = x.shape()[5].number();
  x = x.Permute({0, 4, 5, 1, 2, 3, 6, 7})
          .Reshape({batch, oy, ox, outputs[0], outputs[1], 1, 1, cin_hi, cin_lo, kh, kw});

  Tensor y = AsTexels((x * w).Cast(Scalar::kFloat32), batch * oy, ox * cout / kTexel)
                 .Sum({-4, -3, -2, -1}, /*keepdim=*/false, acc_dtype)
                 .Reshape({batch, oy, ox, groups, rcout});
  if (missing_outputs != 0) {
    PadAmounts kept(5);
    kept[4] = std::pair<SInt, SInt>(0, rcout - missing_outputs);
    y = y.Shrink(kept);
  }
  return y.Reshape({batch, oy, ox, groups * (rcout - missing_outputs)})
      .Permute({0, 3, 1, 2})
      .Cast(acc_dtype.value_or(LeastUpperDType({input.dtype(), weight.dtype()})));
}

Tensor Tensor::CastImage(Scalar texel, int64_t height, int64_t width) const {
  if (!ok()) return Failed(status());
  const std::optional<DType> image = ImageOf(texel, height, width);
  if (!image || (texel != Scalar::kFloat16 && texel != Scalar::kFloat32)) {
    return InvalidTensor("cast_image", absl::StrCat("no image has ", height, " x ", width,
                                                    " texels of ", Name(texel)));
  }
  return Apply<functions::CastImage>({Cast(Scalar::kFloat32)}, *image);
}

Tensor Tensor::ImageConv2d(const Tensor& weight, const Tensor& bias, int groups,
                           const PerAxis& stride, const PerAxis& dilation, const PerAxis& padding,
                           std::optional<Scalar> acc_dtype) const {
  constexpr char kName[] = "image_conv2d";
  if (Tensor failed = FirstFailed({*this, weight}); failed.defined()) return failed;
  const absl::StatusOr<Convolution> convolution =
      CheckConvolution(*this, weight, bias, groups, stride, dilation, padding);
  if (!convolution.ok()) return InvalidTensor(kName, convolution.status().message());
  if (convolution->axes() != 2 || !TakesImages(*this, weight)) {
    return InvalidTensor(
        kName, absl::StrCat("takes two spatial axes of fixed sizes and floats of at most 32 bits, "
                            "not ",
                            Name(dtype()), " ", ToString(shape()), " and ", Name(weight.dtype()),
                            " ", ToString(weight.shape())));
  }
  return WithBias(ImageConvolution(*this, weight, *convolution, acc_dtype), bias);
}

Tensor Tensor::ImageDot(const Tensor& w, std::optional<Scalar> acc_dtype) const {
  constexpr char kName[] = "image_dot";
  if (Tensor failed = FirstFailed({*this, w}); failed.defined()) return failed;
  const auto mismatch = [&](absl::string_view why) {
    return InvalidTensor(kName,
                         absl::StrCat(why, " ", ToString(shape()), " by ", ToString(w.shape())));
  };
  if (ndim() == 0 || w.ndim() == 0) return mismatch("both tensors need an axis:");
  if (shape().back() != w.shape()[w.ndim() - std::min(w.ndim(), 2)]) {
    return mismatch("can't multiply");
  }
  if (!TakesImages(*this, w)) {
    return mismatch("takes fixed sizes and floats of at most 32 bits, not");
  }
  // Rows and columns, alone where there is one.
  Tensor a = ndim() == 1 ? Unsqueeze(0) : *this;
  Tensor b = w.ndim() == 1 ? w.Unsqueeze(-1) : w;
  const absl::StatusOr<Shape> batch = BroadcastShape(std::array<Shape, 2>{BatchOf(a), BatchOf(b)});
  if (!batch.ok()) return mismatch("can't multiply");
  const SInt k = a.shape().back(), m = a.shape()[a.ndim() - 2], n = b.shape().back();

  // The batch of `b` is the groups of a convolution with 1 x 1 kernels: it repeats along that of
  // `a`, or both are made to.
  if (beamd::Prod(BatchOf(b)) == SInt(1)) {
    b = b.Reshape({k, n});
  } else if (!EndsWith(BatchOf(a), BatchOf(b))) {
    b = ExpandBatch(b, *batch);
  }
  a = ExpandBatch(a, *batch);
  const SInt groups = beamd::Prod(BatchOf(b)), repeats = beamd::Prod(*batch) / groups;
  if (groups.number() > std::numeric_limits<int>::max()) return mismatch("too many products:");
  const Convolution convolution = {
      static_cast<int>(groups.number()), {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}};
  Shape result = *batch;
  result.insert(result.end(), {n, m});
  Tensor product =
      ImageConvolution(a.Transpose(-1, -2).Reshape({repeats, groups * k, m, 1}),
                       b.Transpose(-1, -2).Reshape({groups * n, k, 1, 1}), convolution, acc_dtype)
          .Reshape(result)
          .Transpose(-1, -2);
  if (w.ndim() == 1) product = product.Squeeze(-1);
  return ndim() == 1 ? product.Squeeze(w.ndim() == 1 ? -1 : -2) : product;
}

}  // namespace beamd

#include "engine/tensor/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace beamd::nn {

namespace {

Tensor Invalid(absl::string_view layer, absl::string_view why) {
  return Tensor::Failed(absl::InvalidArgumentError(absl::StrCat(layer, ": ", why)));
}

// In [-1, 1] / sqrt(fan_in).
Tensor UniformByFanIn(LazyContext& context, const Shape& shape, double fan_in) {
  const double bound = 1 / std::sqrt(fan_in);
  return Tensor::Uniform(context, shape, -bound, bound);
}

std::vector<int> KernelSizes(const PerAxis& kernel) {
  return kernel.is_uniform() ? std::vector<int>(2, kernel.values()[0]) : kernel.values();
}

// (first, second, kernel...).
Shape WeightShape(int first, int second, const std::vector<int>& kernel) {
  Shape shape = {first, second};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  return shape;
}

double FanIn(int channels, const std::vector<int>& kernel) {
  double fan_in = channels;
  for (int size : kernel) fan_in *= size;
  return fan_in;
}

// Why these can't be, or an empty text.
std::string ConvMistake(int in_channels, int out_channels, const std::vector<int>& kernel,
                        int groups) {
  const bool is_positive = in_channels > 0 && out_channels > 0 && groups > 0 && !kernel.empty() &&
                           std::all_of(kernel.begin(), kernel.end(), [](int k) { return k > 0; });
  if (!is_positive) return "channels, kernel sizes and groups must be positive";
  if (in_channels % groups != 0 || out_channels % groups != 0) {
    return absl::StrCat(in_channels, " and ", out_channels, " channels don't divide into ", groups,
                        " groups");
  }
  return "";
}

// Flat pairs from the last axis on that keep the size. 0.10.0 takes the first axis' dilation beside
// the last one's kernel size; here each axis has its own.
std::vector<int> SamePadding(const std::vector<int>& kernel, const PerAxis& dilation) {
  std::vector<int> padding;
  const int axes = static_cast<int>(kernel.size());
  for (int axis = axes - 1; axis >= 0; --axis) {
    const std::vector<int>& gaps = dilation.values();
    const int gap = dilation.is_uniform() ? gaps[0] : gaps[axis];
    const int whole = gap * (kernel[axis] - 1);
    padding.push_back(whole / 2);
    padding.push_back(whole - whole / 2);
  }
  return padding;
}

// A value a channel (axis 1) of `ndim` axes.
Tensor OnChannels(const Tensor& values, int ndim) {
  Shape shape(std::max(ndim, 2), 1);
  shape[1] = -1;
  return values.Reshape(shape);
}

// x normalised over `groups` parts of its channels, then scaled a channel.
Tensor NormalizedInGroups(const Tensor& x, int groups, double eps, const Tensor& weight,
                          const Tensor& bias, absl::string_view layer) {
  if (!x.ok()) return x;
  if (x.ndim() < 2) return Invalid(layer, "the input has no axis of channels");
  Tensor y = x.Reshape({x.shape()[0], groups, -1}).Layernorm(-1, eps).Reshape(x.shape());
  if (!weight.defined() || !bias.defined()) return y;
  return y * OnChannels(weight, x.ndim()) + OnChannels(bias, x.ndim());
}

}  // namespace

Linear::Linear(LazyContext& context, int in_features, int out_features, bool has_bias) {
  if (in_features < 1 || out_features < 1) {
    weight = Invalid("Linear", "features must be positive");
  } else {
    weight = UniformByFanIn(context, {out_features, in_features}, in_features);
    if (has_bias) bias = UniformByFanIn(context, {out_features}, in_features);
  }
  Register("weight", weight);
  Register("bias", bias);
}

Tensor Linear::operator()(const Tensor& x) const { return x.Linear(weight.Transpose(), bias); }

Conv2d::Conv2d(LazyContext& context, int in_channels, int out_channels, const PerAxis& kernel_size,
               const ConvOptions& options)
    : options_(options) {
  const std::vector<int> kernel = KernelSizes(kernel_size);
  std::string mistake = ConvMistake(in_channels, out_channels, kernel, options.groups);
  if (mistake.empty() && options.same_padding) {
    const std::vector<int>& strides = options.stride.values();
    const bool is_strided =
        std::any_of(strides.begin(), strides.end(), [](int s) { return s != 1; });
    const bool is_mismatched =
        !options.dilation.is_uniform() && options.dilation.values().size() != kernel.size();
    if (is_strided || is_mismatched) {
      mistake = is_strided ? "same padding of a strided convolution"
                           : "dilations and kernel sizes differ in number";
    } else {
      options_.padding = SamePadding(kernel, options.dilation);
    }
  }
  if (!mistake.empty()) {
    weight = Invalid("Conv2d", mistake);
  } else {
    const double fan_in = FanIn(in_channels, kernel);
    weight = UniformByFanIn(
        context, WeightShape(out_channels, in_channels / options.groups, kernel), fan_in);
    if (options.bias) bias = UniformByFanIn(context, {out_channels}, fan_in);
  }
  Register("weight", weight);
  Register("bias", bias);
}

Tensor Conv2d::operator()(const Tensor& x) const {
  return x.Conv2d(weight, bias, options_.groups, options_.stride, options_.dilation,
                  options_.padding);
}

ConvTranspose2d::ConvTranspose2d(LazyContext& context, int in_channels, int out_channels,
                                 const PerAxis& kernel_size, const ConvTransposeOptions& options)
    : options_(options) {
  const std::vector<int> kernel = KernelSizes(kernel_size);
  const std::string mistake = ConvMistake(in_channels, out_channels, kernel, options.groups);
  if (!mistake.empty()) {
    weight = Invalid("ConvTranspose2d", mistake);
  } else {
    const double fan_in = FanIn(in_channels, kernel);
    weight = UniformByFanIn(
        context, WeightShape(in_channels, out_channels / options.groups, kernel), fan_in);
    if (options.bias) bias = UniformByFanIn(context, {out_channels}, fan_in);
  }
  Register("weight", weight);
  Register("bias", bias);
}

Tensor ConvTranspose2d::operator()(const Tensor& x) const {
  return x.ConvTranspose2d(weight, bias, options_.groups, options_.stride, options_.dilation,
                           options_.padding, options_.output_padding);
}

BatchNorm::BatchNorm(LazyContext& context, int size, const BatchNormOptions& options)
    : size_(size), options_(options) {
  if (options.affine) {
    weight = Tensor::Ones(context, {size});
    bias = Tensor::Zeros(context, {size});
  }
  num_batches_tracked =
      Tensor::Zeros(context, {1}, {.dtype = Scalar::kInt64, .requires_grad = false});
  if (options.track_running_stats) {
    running_mean = Tensor::Zeros(context, {size}, {.requires_grad = false});
    running_var = Tensor::Ones(context, {size}, {.requires_grad = false});
  }
  Register("weight", weight);
  Register("bias", bias);
  Register("num_batches_tracked", num_batches_tracked);
  Register("running_mean", running_mean);
  Register("running_var", running_var);
}

std::pair<Tensor, Tensor> BatchNorm::Statistics(const Tensor& x) const {
  if (options_.track_running_stats && !x.context().training) {
    return {running_mean, OnChannels(running_var, x.ndim()).Expand(x.shape())};
  }
  std::vector<int> others = {0};
  for (int axis = 2; axis < x.ndim(); ++axis) others.push_back(axis);
  const Tensor mean = x.Mean(others);
  // Detached: the variance's derivative by the mean is 0.
  const Tensor y = x - OnChannels(mean.Detach(), x.ndim());
  return {mean, (y * y).Mean(others)};
}

Tensor BatchNorm::operator()(const Tensor& x) {
  if (!x.ok()) return x;
  if (x.ndim() < 2 || x.shape()[1] != size_) {
    return Invalid("BatchNorm", absl::StrCat("the input's second axis isn't ", size_, " channels"));
  }
  const bool moves_statistics = options_.track_running_stats && x.context().training;
  if (moves_statistics && (!AllNumbers(x.shape()) || x.numel().number() <= size_)) {
    return Invalid("BatchNorm", "training needs several values a channel, of a size in numbers");
  }
  const auto [mean, var] = Statistics(x);
  if (moves_statistics) {
    const double count = static_cast<double>(x.numel().number());
    const double unbiased = count / (count - size_);
    const double momentum = options_.momentum;
    running_mean.Assign((1 - momentum) * running_mean + momentum * mean.Detach());
    running_var.Assign((1 - momentum) * running_var + momentum * unbiased * var.Detach());
    num_batches_tracked.Assign(num_batches_tracked + 1);
  }
  return x.Batchnorm(weight, bias, mean, (var + options_.eps).Rsqrt());
}

GroupNorm::GroupNorm(LazyContext& context, int num_groups, int num_channels, double eps,
                     bool affine)
    : num_groups_(num_groups), eps_(eps) {
  if (affine) {
    weight = Tensor::Ones(context, {num_channels});
    bias = Tensor::Zeros(context, {num_channels});
  }
  Register("weight", weight);
  Register("bias", bias);
}

Tensor GroupNorm::operator()(const Tensor& x) const {
  return NormalizedInGroups(x, num_groups_, eps_, weight, bias, "GroupNorm");
}

InstanceNorm::InstanceNorm(LazyContext& context, int num_features, double eps, bool affine)
    : num_features_(num_features), eps_(eps) {
  if (affine) {
    weight = Tensor::Ones(context, {num_features});
    bias = Tensor::Zeros(context, {num_features});
  }
  Register("weight", weight);
  Register("bias", bias);
}

Tensor InstanceNorm::operator()(const Tensor& x) const {
  return NormalizedInGroups(x, num_features_, eps_, weight, bias, "InstanceNorm");
}

LayerNorm::LayerNorm(LazyContext& context, const std::vector<int>& normalized_shape, double eps,
                     bool elementwise_affine)
    : normalized_shape_(normalized_shape.begin(), normalized_shape.end()), eps_(eps) {
  if (elementwise_affine) {
    weight = Tensor::Ones(context, normalized_shape_);
    bias = Tensor::Zeros(context, normalized_shape_);
  }
  Register("weight", weight);
  Register("bias", bias);
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  if (!x.ok()) return x;
  const int axes = static_cast<int>(normalized_shape_.size());
  if (x.ndim() < axes ||
      !std::equal(normalized_shape_.begin(), normalized_shape_.end(), x.shape().end() - axes)) {
    return Invalid("LayerNorm", "the input's last axes aren't those of the layer");
  }
  std::vector<int> normalized;
  for (int axis = -axes; axis < 0; ++axis) normalized.push_back(axis);
  Tensor y = x.Layernorm(normalized, eps_);
  return weight.defined() ? y * weight + bias : y;
}

Tensor LayerNorm2d::operator()(const Tensor& x) const {
  return LayerNorm::operator()(x.Permute({0, 2, 3, 1})).Permute({0, 3, 1, 2});
}

RMSNorm::RMSNorm(LazyContext& context, int dim, double eps)
    : weight(Tensor::Ones(context, {dim})), eps_(eps) {
  Register("weight", weight);
}

Tensor RMSNorm::operator()(const Tensor& x) const {
  if (!x.ok()) return x;
  const Tensor y = x.Float();
  return (y * (y.Square().Mean(-1, /*keepdim=*/true) + eps_).Rsqrt()).Cast(x.dtype()) * weight;
}

Embedding::Embedding(LazyContext& context, int vocab_size, int embed_size)
    : weight(vocab_size < 1 || embed_size < 1
                 ? Invalid("Embedding", "sizes must be positive")
                 : Tensor::GlorotUniform(context, {vocab_size, embed_size})) {
  Register("weight", weight);
}

Tensor Embedding::operator()(const Tensor& index) const {
  if (!index.ok()) return index;
  if (!weight.ok()) return weight;
  if (IsFloat(index.dtype())) return Invalid("Embedding", "an index must be an integer");
  const SInt& vocab = weight.shape()[0];
  const SInt& embed = weight.shape()[1];
  Shape result_shape = index.shape();
  result_shape.push_back(embed);
  if (index.numel() == 0) {
    return Tensor::Empty(weight.context(), result_shape,
                         {.dtype = weight.dtype(), .device = weight.device()});
  }
  Shape product_shape = index.shape();
  product_shape.insert(product_shape.end(), {vocab, embed});
  Shape index_shape = index.shape();
  index_shape.insert(index_shape.end(), 2, 1);
  const Tensor row = Tensor::Arange(weight.context(), vocab.number(),
                                    {.requires_grad = false, .device = weight.device()})
                         .Reshape({vocab, 1})
                         .Expand(product_shape);
  const Tensor hot = row.Eq(index.Reshape(index_shape).Expand(product_shape));
  // Selected, not multiplied by 0 or 1: an inf in another row stays there.
  return hot.Where(weight.Expand(product_shape), 0).Sum(-2, /*keepdim=*/false, weight.dtype());
}

LSTMCell::LSTMCell(LazyContext& context, int input_size, int hidden_size, bool has_bias) {
  if (input_size < 1 || hidden_size < 1) {
    weight_ih = weight_hh = Invalid("LSTMCell", "sizes must be positive");
  } else {
    weight_ih = UniformByFanIn(context, {hidden_size * 4, input_size}, hidden_size);
    weight_hh = UniformByFanIn(context, {hidden_size * 4, hidden_size}, hidden_size);
    if (has_bias) {
      bias_ih = Tensor::Zeros(context, {hidden_size * 4});
      bias_hh = Tensor::Zeros(context, {hidden_size * 4});
    }
  }
  Register("weight_ih", weight_ih);
  Register("weight_hh", weight_hh);
  Register("bias_ih", bias_ih);
  Register("bias_hh", bias_hh);
}

LSTMCell::State LSTMCell::operator()(const Tensor& x, const std::optional<State>& state) const {
  const auto failed = [](const Tensor& why) { return State{why, why}; };
  if (!x.ok()) return failed(x);
  if (!weight_hh.ok()) return failed(weight_hh);
  if (x.ndim() != 2) return failed(Invalid("LSTMCell", "the input isn't (batch, features)"));
  State before;
  if (state.has_value()) {
    before = *state;
  } else {
    before.h = Tensor::Zeros(x.context(), {x.shape()[0], weight_hh.shape()[1]},
                             {.dtype = x.dtype(), .device = x.device()});
    before.c = before.h;
  }
  const Tensor all =
      x.Linear(weight_ih.Transpose(), bias_ih) + before.h.Linear(weight_hh.Transpose(), bias_hh);
  const std::vector<Tensor> gates = all.Chunk(4, 1);
  if (gates.size() != 4) return failed(gates[0]);
  const Tensor c = gates[1].Sigmoid() * before.c + gates[0].Sigmoid() * gates[2].Tanh();
  const Tensor h = gates[3].Sigmoid() * c.Tanh();
  return {h.Contiguous(), c.Contiguous()};
}

}  // namespace beamd::nn

// Tensor's methods against NumPy: values, and gradients by central differences. make_goldens.py says
// what each case computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/option.h"
#include "engine/tensor/nn/layers.h"
#include "engine/tensor/nn/optim.h"
#include "engine/tensor/nn/safetensors.h"
#include "engine/tensor/tensor.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd {
namespace {

using Tensors = std::vector<Tensor>;
using Values = std::vector<double>;

constexpr std::nullopt_t kUnset = std::nullopt;
constexpr char kGoldens[] = "tests/golden/tensor/";

// By name.
using Golden = std::map<std::string, Tensor>;

Golden LoadGolden(LazyContext& context, const std::string& file) {
  absl::StatusOr<nn::Safetensors> loaded =
      nn::LoadSafetensorsFile(context, absl::StrCat(kGoldens, file));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return {};
  return Golden(loaded->tensors.begin(), loaded->tensors.end());
}

// The elements of `tensor`; the test fails where they can't be read.
template <typename T>
Values ReadAs(const Tensor& tensor) {
  const absl::StatusOr<std::vector<T>> values = tensor.ToVector<T>();
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? Values(values->begin(), values->end()) : Values();
}
Values Read(const Tensor& tensor) {
  if (!tensor.ok()) {
    ADD_FAILURE() << tensor.status();
    return {};
  }
  switch (tensor.dtype()) {
    case Scalar::kBool:
      return ReadAs<bool>(tensor);
    case Scalar::kInt32:
      return ReadAs<int32_t>(tensor);
    case Scalar::kInt64:
      return ReadAs<int64_t>(tensor);
    default:
      return ReadAs<float>(tensor.Float());
  }
}

// Equal within `tolerance` of each value and of the root of their mean square.
void ExpectNear(const std::string& what, const Tensor& got_tensor, const Tensor& want_tensor,
                double tolerance) {
  const Values got = Read(got_tensor);
  const Values want = Read(want_tensor);
  if (!got_tensor.ok() || !want_tensor.ok()) return;
  ASSERT_EQ(got_tensor.shape(), want_tensor.shape()) << what;
  ASSERT_EQ(got.size(), want.size()) << what;
  double squares = 0;
  for (double v : want) squares += v * v;
  const double rms = want.empty() ? 0 : std::sqrt(squares / static_cast<double>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    EXPECT_LE(std::abs(got[i] - want[i]), tolerance * (std::abs(want[i]) + rms))
        << what << ", element " << i << ": got " << got[i] << ", want " << want[i];
  }
}

// make_goldens.py: weights().
Tensor LossWeights(const Tensor& like) {
  const int64_t count = like.numel().number();
  std::vector<float> weights;
  for (int64_t i = 0; i < count; ++i) {
    weights.push_back(static_cast<float>(static_cast<double>((i * 37 + 11) % 101) / 101 - 0.5));
  }
  return Tensor::From(like.context(), weights, like.shape());
}

struct Case {
  std::string name;
  std::function<Tensor(const Tensors& x)> run;
  double tolerance = 1e-5;
};
void PrintTo(const Case& golden_case, std::ostream* out) { *out << golden_case.name; }

// `layer` with these parameters in place of its own.
template <typename Layer>
Layer With(Layer layer, const Tensor& weight, const Tensor& bias = Tensor()) {
  layer.weight = weight;
  if constexpr (requires { layer.bias; }) layer.bias = bias;
  return layer;
}

const std::vector<Case>& Cases() {
  using In = const Tensors&;
  static const auto* cases = new std::vector<Case>{
      // Element-wise.
      {"neg", [](In x) { return x[0].Neg(); }},
      {"reciprocal", [](In x) { return x[0].Reciprocal(); }},
      {"sin", [](In x) { return x[0].Sin(); }},
      {"cos", [](In x) { return x[0].Cos(); }},
      {"tan", [](In x) { return x[0].Tan(); }},
      {"asin", [](In x) { return x[0].Asin(); }},
      {"acos", [](In x) { return x[0].Acos(); }},
      {"atan", [](In x) { return x[0].Atan(); }},
      {"log", [](In x) { return x[0].Log(); }},
      {"log2", [](In x) { return x[0].Log2(); }},
      {"exp", [](In x) { return x[0].Exp(); }},
      {"exp2", [](In x) { return x[0].Exp2(); }},
      {"sqrt", [](In x) { return x[0].Sqrt(); }},
      {"rsqrt", [](In x) { return x[0].Rsqrt(); }},
      {"square", [](In x) { return x[0].Square(); }},
      {"abs", [](In x) { return x[0].Abs(); }},
      {"sign", [](In x) { return x[0].Sign(); }},
      {"clamp", [](In x) { return x[0].Clamp(-1.0, 2.0); }},
      {"relu", [](In x) { return x[0].Relu(); }},
      {"sigmoid", [](In x) { return x[0].Sigmoid(); }},
      {"hardsigmoid", [](In x) { return x[0].Hardsigmoid(); }},
      {"elu", [](In x) { return x[0].Elu(1.5); }},
      {"celu", [](In x) { return x[0].Celu(2); }},
      {"selu", [](In x) { return x[0].Selu(); }},
      {"swish", [](In x) { return x[0].Silu(); }},
      {"relu6", [](In x) { return x[0].Relu6(); }},
      {"hardswish", [](In x) { return x[0].Hardswish(); }},
      {"tanh", [](In x) { return x[0].Tanh(); }},
      {"sinh", [](In x) { return x[0].Sinh(); }},
      {"cosh", [](In x) { return x[0].Cosh(); }},
      {"atanh", [](In x) { return x[0].Atanh(); }},
      {"asinh", [](In x) { return x[0].Asinh(); }},
      {"acosh", [](In x) { return x[0].Acosh(); }},
      {"hardtanh", [](In x) { return x[0].Hardtanh(); }},
      {"erf", [](In x) { return x[0].Erf(); }},
      {"gelu", [](In x) { return x[0].Gelu(); }},
      {"quick_gelu", [](In x) { return x[0].QuickGelu(); }},
      {"leaky_relu", [](In x) { return x[0].LeakyRelu(); }},
      {"mish", [](In x) { return x[0].Mish(); }},
      {"softplus", [](In x) { return x[0].Softplus(2); }},
      {"softsign", [](In x) { return x[0].Softsign(); }},
      {"trunc", [](In x) { return x[0].Trunc(); }},
      {"ceil", [](In x) { return x[0].Ceil(); }},
      {"floor", [](In x) { return x[0].Floor(); }},
      {"round", [](In x) { return x[0].Round(); }},
      {"isinf", [](In x) { return x[0].Isinf(); }},
      {"isnan", [](In x) { return x[0].Isnan(); }},
      {"logical_not", [](In x) { return x[0].LogicalNot(); }},

      // Several operands.
      {"add", [](In x) { return x[0] + x[1]; }},
      {"sub", [](In x) { return x[0] - x[1]; }},
      {"mul", [](In x) { return x[0] * x[1]; }},
      {"div", [](In x) { return x[0] / x[1]; }},
      {"maximum", [](In x) { return x[0].Maximum(x[1]); }},
      {"minimum", [](In x) { return x[0].Minimum(x[1]); }},
      {"pow", [](In x) { return x[0].Pow(x[1]); }},
      {"pow_int", [](In x) { return x[0].Pow(3); }},
      {"pow_negative", [](In x) { return x[0].Pow(-2.0); }},
      {"pow_reverse", [](In x) { return x[0].Pow(2.5, /*reverse=*/true); }},
      {"lerp", [](In x) { return x[0].Lerp(x[1], x[2]); }},
      {"where", [](In x) { return x[0].Where(x[1], x[2]); }},
      {"masked_fill", [](In x) { return x[0].MaskedFill(x[1], -1.5); }},
      {"idiv", [](In x) { return x[0].Idiv(x[1]); }},
      {"mod", [](In x) { return x[0].Mod(x[1]); }},
      {"mod_float", [](In x) { return x[0].Mod(x[1]); }},
      {"xor", [](In x) { return x[0].Xor(x[1]); }},
      {"bitwise_and", [](In x) { return x[0].BitwiseAnd(x[1]); }},
      {"bitwise_or", [](In x) { return x[0].BitwiseOr(x[1]); }},
      {"bitwise_not", [](In x) { return x[0].BitwiseNot(); }},
      {"lshift", [](In x) { return x[0].Cast(Scalar::kUint32).Lshift(3).Int(); }},
      {"rshift", [](In x) { return x[0].Cast(Scalar::kUint32).Rshift(3).Int(); }},
      {"lt", [](In x) { return x[0].Lt(x[1]); }},
      {"gt", [](In x) { return x[0].Gt(x[1]); }},
      {"le", [](In x) { return x[0].Le(x[1]); }},
      {"ge", [](In x) { return x[0].Ge(x[1]); }},
      {"eq", [](In x) { return x[0].Eq(x[1]); }},
      {"ne", [](In x) { return x[0].Ne(x[1]); }},

      // Movement.
      {"reshape", [](In x) { return x[0].Reshape({4, -1}); }},
      {"permute", [](In x) { return x[0].Permute({2, 0, 1}); }},
      {"expand", [](In x) { return x[0].Expand({3, -1, 5}); }},
      {"flip", [](In x) { return x[0].Flip({0, -1}); }},
      {"shrink",
       [](In x) {
         return x[0].Shrink({{{1, 3}}, {{0, 2}}, {{2, 5}}});
       }},
      {"pad_constant",
       [](In x) {
         return x[0].Pad({{{1, 2}}, {{0, 1}}, {{2, 0}}}, PadMode::kConstant, 1.5);
       }},
      {"pad_negative", [](In x) { return x[0].PadFlat({3, -2, 2, 0, -1, 1}); }},
      {"pad_reflect", [](In x) { return x[0].PadFlat({4, 1, 2, 3}, PadMode::kReflect); }},
      {"pad_replicate", [](In x) { return x[0].PadFlat({4, 1, 2, 3}, PadMode::kReplicate); }},
      {"pad_circular", [](In x) { return x[0].PadFlat({4, 1, 2, 3}, PadMode::kCircular); }},
      {"cat", [](In x) { return x[0].Cat({x[1]}, 1); }},
      {"stack", [](In x) { return x[0].Stack({x[1]}, 1); }},
      {"repeat", [](In x) { return x[0].Repeat({2, 1, 3}); }},
      {"repeat_interleave", [](In x) { return x[0].RepeatInterleave(3, 1); }},
      {"roll", [](In x) { return x[0].Roll({1, -2}, {0, 1}); }},
      {"unfold", [](In x) { return x[0].Unfold(1, 3, 2); }},
      {"tril", [](In x) { return x[0].Tril(1); }},
      {"triu", [](In x) { return x[0].Triu(-1); }},
      {"diagonal", [](In x) { return x[0].Diagonal(); }},
      {"slice_step",
       [](In x) {
         return x[0].Get({Slice{kUnset, kUnset, 2}, Slice{3, 0, -1}});
       }},
      {"slice_negative",
       [](In x) {
         return x[0].Get({Ellipsis{}, Slice{-3, kUnset}, NewAxis{}});
       }},
      {"fancy", [](In x) { return x[0].Get({x[1], Slice{}, x[2]}); }},
      {"gather", [](In x) { return x[0].Gather(1, x[1]); }},
      {"one_hot", [](In x) { return x[0].OneHot(6); }},
      {"scatter", [](In x) { return x[0].Scatter(1, x[1], x[2]); }},
      {"scatter_add", [](In x) { return x[0].Scatter(1, x[1], x[2], /*add=*/true); }},

      // Reductions.
      {"sum", [](In x) { return x[0].Sum({0, 2}); }},
      {"sum_all_keepdim", [](In x) { return x[0].Sum({}, /*keepdim=*/true); }},
      {"prod", [](In x) { return x[0].Prod(1); }},
      {"max", [](In x) { return x[0].Max(1); }},
      {"min", [](In x) { return x[0].Min({0, 1}); }},
      {"mean", [](In x) { return x[0].Mean({0, 2}); }},
      {"var", [](In x) { return x[0].Var({0, 2}); }},
      {"var_biased", [](In x) { return x[0].Var(1, /*keepdim=*/false, 0); }},
      {"std", [](In x) { return x[0].Std(1); }},
      {"softmax", [](In x) { return x[0].Softmax(1); }},
      {"log_softmax", [](In x) { return x[0].LogSoftmax(); }},
      {"logsumexp", [](In x) { return x[0].Logsumexp(1); }},
      {"logcumsumexp", [](In x) { return x[0].Logcumsumexp(1); }},
      {"cumsum", [](In x) { return x[0].Cumsum(1); }},
      {"cumsum_long", [](In x) { return x[0].Cumsum(); }},
      {"cummax", [](In x) { return x[0].Cummax(1); }},
      {"argmax", [](In x) { return x[0].Argmax(1); }},
      {"argmin", [](In x) { return x[0].Argmin(0); }},
      {"argmax_all", [](In x) { return x[0].Argmax(); }},
      {"any", [](In x) { return x[0].Any(1); }},
      {"all", [](In x) { return x[0].All(0); }},

      // Products.
      {"dot_vectors", [](In x) { return x[0].Dot(x[1]); }},
      {"dot_matrix_vector", [](In x) { return x[0].Dot(x[1]); }},
      {"dot_vector_matrix", [](In x) { return x[0].Dot(x[1]); }},
      {"matmul", [](In x) { return x[1].Matmul(x[0], /*reverse=*/true); }},
      {"matmul_batches", [](In x) { return x[0].Matmul(x[1]); }},
      {"linear", [](In x) { return x[0].Linear(x[1], x[2]); }},
      {"linear_vector", [](In x) { return x[0].Linear(x[1], x[2]); }},
      {"einsum_matmul", [](In x) { return Tensor::Einsum("ij,jk->ik", x); }},
      {"einsum_transpose", [](In x) { return Tensor::Einsum("ij->ji", x); }},
      {"einsum_sum", [](In x) { return Tensor::Einsum("ijk -> j", x); }},
      {"einsum_all", [](In x) { return Tensor::Einsum("ij,ij->", x); }},
      {"einsum_outer", [](In x) { return Tensor::Einsum("i,j", x); }},
      {"einsum_implicit", [](In x) { return Tensor::Einsum("ba,cb", x); }},
      {"einsum_three", [](In x) { return Tensor::Einsum("bn,anm,bm->ba", x); }},
      {"einsum_ellipsis", [](In x) { return Tensor::Einsum("...ij,...jk->...ik", x); }},
      {"einsum_ellipsis_front", [](In x) { return Tensor::Einsum("i...,i->...", x); }},
      {"einsum_ellipsis_implicit", [](In x) { return Tensor::Einsum("...a,...a", x); }},
      {"attention", [](In x) { return x[0].ScaledDotProductAttention(x[1], x[2]); }},
      {"attention_bool_mask",
       [](In x) { return x[0].ScaledDotProductAttention(x[1], x[2], x[3]); }},
      {"attention_float_mask",
       [](In x) { return x[0].ScaledDotProductAttention(x[1], x[2], x[3]); }},
      {"attention_causal",
       [](In x) {
         return x[0].ScaledDotProductAttention(x[1], x[2], Tensor(), 0, /*is_causal=*/true);
       }},
      {"attention_grouped",
       [](In x) {
         return x[0].ScaledDotProductAttention(x[1], x[2], Tensor(), 0, /*is_causal=*/false,
                                               /*enable_gqa=*/true);
       }},

      // Convolution and pooling.
      {"conv2d", [](In x) { return x[0].Conv2d(x[1]); }},
      {"conv2d_bias_pad", [](In x) { return x[0].Conv2d(x[1], x[2], 1, 1, 1, 1); }},
      {"conv2d_stride", [](In x) { return x[0].Conv2d(x[1], Tensor(), 1, {2, 3}, 1, {2, 1}); }},
      {"conv2d_dilation", [](In x) { return x[0].Conv2d(x[1], Tensor(), 1, {1, 2}, {2, 1}); }},
      {"conv2d_groups", [](In x) { return x[0].Conv2d(x[1], x[2], 2, 1, 1, 1); }},
      {"conv2d_depthwise", [](In x) { return x[0].Conv2d(x[1], Tensor(), 4); }},
      {"conv2d_asymmetric",
       [](In x) {
         return x[0].Conv2d(x[1], Tensor(), 1, 1, 1, {1, 2, 3, 0});
       }},
      {"conv1d", [](In x) { return x[0].Conv2d(x[1], x[2], 1, 2, 1, 1); }},
      {"conv3d", [](In x) { return x[0].Conv2d(x[1], Tensor(), 1, {1, 2, 1}, 1, 1); }},
      {"winograd",
       [](In x) {
         const ScopedOption wino(options::kWino, 1);
         return x[0].Conv2d(x[1], x[2], 1, 1, 1, 1);
       }},
      {"winograd_groups",
       [](In x) {
         const ScopedOption wino(options::kWino, 1);
         return x[0].Conv2d(x[1], Tensor(), 2, 1, 1, {1, 0, 0, 2});
       }},
      {"winograd_1d",
       [](In x) {
         const ScopedOption wino(options::kWino, 1);
         return x[0].Conv2d(x[1]);
       }},
      {"conv_transpose2d", [](In x) { return x[0].ConvTranspose2d(x[1]); }},
      {"conv_transpose2d_stride",
       [](In x) {
         return x[0].ConvTranspose2d(x[1], x[2], 1, {2, 3}, 1, {1, 0}, {1, 2});
       }},
      {"conv_transpose2d_groups",
       [](In x) {
         return x[0].ConvTranspose2d(x[1], Tensor(), 2, {2, 1}, {2, 1});
       }},
      {"conv_transpose1d", [](In x) { return x[0].ConvTranspose2d(x[1], Tensor(), 1, 2); }},
      {"max_pool", [](In x) { return x[0].MaxPool2d(); }},
      {"max_pool_overlap", [](In x) { return x[0].MaxPool2d({3, 2}, PerAxis{2, 1}, 1, 1); }},
      {"max_pool_dilated", [](In x) { return x[0].MaxPool2d(2, 1, {2, 3}); }},
      {"max_pool_ceil", [](In x) { return x[0].MaxPool2d(3, 2, 1, 1, /*ceil_mode=*/true); }},
      {"avg_pool", [](In x) { return x[0].AvgPool2d(); }},
      {"avg_pool_pad", [](In x) { return x[0].AvgPool2d({3, 2}, PerAxis{2, 1}, 1, 1); }},
      {"avg_pool_exclude_pad",
       [](In x) {
         return x[0].AvgPool2d({3, 2}, PerAxis{2, 1}, 1, 1, /*ceil_mode=*/false,
                               /*count_include_pad=*/false);
       }},
      {"avg_pool_ceil", [](In x) { return x[0].AvgPool2d(3, 2, 1, 1, /*ceil_mode=*/true); }},
      {"avg_pool_ceil_exclude",
       [](In x) {
         return x[0].AvgPool2d({2, 3}, 2, 1, 0, /*ceil_mode=*/true, /*count_include_pad=*/false);
       }},
      {"interpolate_linear", [](In x) { return x[0].Interpolate({8}); }},
      {"interpolate_bilinear", [](In x) { return x[0].Interpolate({3, 9}); }},
      {"interpolate_align_corners",
       [](In x) {
         return x[0].Interpolate({7, 3}, InterpolateMode::kLinear, /*align_corners=*/true);
       }},
      {"interpolate_nearest",
       [](In x) {
         return x[0].Interpolate({7, 3}, InterpolateMode::kNearest);
       }},
      {"interpolate_nearest_exact",
       [](In x) {
         return x[0].Interpolate({7, 3}, InterpolateMode::kNearestExact);
       }},

      // Normalisation, layers.
      {"layernorm", [](In x) { return x[0].Layernorm(); }},
      {"layernorm_two_axes", [](In x) { return x[0].Layernorm({1, 2}, 1e-3); }},
      {"batchnorm", [](In x) { return x[0].Batchnorm(x[1], x[2], x[3], x[4]); }},
      {"nn_batchnorm_eval",
       [](In x) {
         nn::BatchNorm layer = With(nn::BatchNorm(x[0].context(), 4), x[1], x[2]);
         layer.running_mean = x[3];
         layer.running_var = x[4];
         return layer(x[0]);
       }},
      {"nn_groupnorm",
       [](In x) { return With(nn::GroupNorm(x[0].context(), 2, 4), x[1], x[2])(x[0]); }},
      {"nn_instancenorm",
       [](In x) { return With(nn::InstanceNorm(x[0].context(), 4), x[1], x[2])(x[0]); }},
      {"nn_layernorm",
       [](In x) { return With(nn::LayerNorm(x[0].context(), {4, 5}), x[1], x[2])(x[0]); }},
      {"nn_layernorm2d",
       [](In x) { return With(nn::LayerNorm2d(x[0].context(), 4), x[1], x[2])(x[0]); }},
      {"nn_rmsnorm", [](In x) { return With(nn::RMSNorm(x[0].context(), 5), x[1])(x[0]); }},
      {"nn_embedding",
       [](In x) { return With(nn::Embedding(x[0].context(), 6, 3), x[0])(x[1]); }},
      {"nn_lstm",
       [](In x) {
         nn::LSTMCell cell(x[0].context(), 3, 4);
         cell.weight_ih = x[3];
         cell.weight_hh = x[4];
         cell.bias_ih = x[5];
         cell.bias_hh = x[6];
         return cell(x[0], nn::LSTMCell::State{x[1], x[2]}).h;
       }},
      {"nn_linear",
       [](In x) { return With(nn::Linear(x[0].context(), 4, 5), x[1], x[2])(x[0]); }},
      {"nn_conv2d_same",
       [](In x) {
         const nn::ConvOptions options = {.dilation = {2, 1}, .same_padding = true};
         return With(nn::Conv2d(x[0].context(), 2, 3, {3, 2}, options), x[1], x[2])(x[0]);
       }},
      {"nn_conv_transpose1d",
       [](In x) {
         const nn::ConvTransposeOptions options = {.stride = 2, .padding = 1};
         return With(nn::ConvTranspose1d(x[0].context(), 2, 3, 3, options), x[1], x[2])(x[0]);
       }},

      // Losses.
      {"bce", [](In x) { return x[0].BinaryCrossentropy(x[1]); }},
      {"bce_logits", [](In x) { return x[0].BinaryCrossentropyLogits(x[1], Reduction::kSum); }},
      {"sparse", [](In x) { return x[0].SparseCategoricalCrossentropy(x[1]); }},
      {"sparse_ignore", [](In x) { return x[0].SparseCategoricalCrossentropy(x[1], 2); }},
      {"sparse_smooth_none",
       [](In x) {
         return x[0].SparseCategoricalCrossentropy(x[1], -1, 0.3, Reduction::kNone);
       }},
      {"cross_entropy", [](In x) { return x[0].CrossEntropy(x[1]); }},
      {"cross_entropy_smooth",
       [](In x) { return x[0].CrossEntropy(x[1], Reduction::kSum, 0.2); }},
      {"cross_entropy_shares", [](In x) { return x[0].CrossEntropy(x[1]); }},
      {"nll", [](In x) { return x[0].NllLoss(x[1], x[2]); }},
      {"nll_ignore_none",
       [](In x) { return x[0].NllLoss(x[1], x[2], 4, Reduction::kNone); }},
  };
  return *cases;
}

class GoldenTest : public ::testing::TestWithParam<Case> {};

void CheckCase(const Case& golden_case) {
  testing::LazyRuntime lazy;
  const Golden golden = LoadGolden(lazy.context, "operations.safetensors");
  const auto find = [&](const std::string& part) {
    const auto found = golden.find(absl::StrCat(golden_case.name, ".", part));
    return found == golden.end() ? Tensor() : found->second;
  };
  Tensors inputs;
  for (Tensor x; (x = find(absl::StrCat("x", inputs.size()))).defined();) {
    x.set_requires_grad(find(absl::StrCat("d", inputs.size())).defined());
    inputs.push_back(x);
  }
  ASSERT_FALSE(inputs.empty()) << "no golden of that name";

  const Tensor y = golden_case.run(inputs);
  ExpectNear("value", y, find("y"), golden_case.tolerance);
  ASSERT_TRUE(y.ok()) << y.status();
  if (!y.requires_grad().value_or(false)) return;
  const absl::Status backward = (y * LossWeights(y)).Sum().Backward();
  ASSERT_TRUE(backward.ok()) << backward;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor want = find(absl::StrCat("d", i));
    if (!want.defined()) continue;
    ASSERT_TRUE(inputs[i].grad().defined()) << "no gradient of input " << i;
    ExpectNear(absl::StrCat("gradient of input ", i), inputs[i].grad(), want,
               golden_case.tolerance);
  }
}

TEST_P(GoldenTest, ValuesAndGradientsAreNumPys) { CheckCase(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Operations, GoldenTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Of products and convolutions, and what is made of them.
class ImageGoldenTest : public ::testing::TestWithParam<Case> {};

std::vector<Case> ProductCases() {
  std::vector<Case> cases = Cases();
  std::erase_if(cases, [](const Case& c) {
    return std::ranges::none_of(
        std::array{"dot", "matmul", "linear", "attention", "conv", "nn_lstm", "nn_linear",
                   "nn_conv"},
        [&](const char* prefix) { return absl::StartsWith(c.name, prefix); });
  });
  return cases;
}

TEST_P(ImageGoldenTest, ValuesAndGradientsAreNumPys) {
  const ScopedOption image(options::kImage, 2);
  CheckCase(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Operations, ImageGoldenTest, ::testing::ValuesIn(ProductCases()),
                         [](const auto& info) { return info.param.name; });

TEST(Goldens, EachHasACase) {
  testing::LazyRuntime lazy;
  std::set<std::string> tested = {"nn_batchnorm_train"};  // below
  for (const Case& golden_case : Cases()) tested.insert(golden_case.name);
  std::set<std::string> stored;
  for (const auto& [name, tensor] : LoadGolden(lazy.context, "operations.safetensors")) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    stored.insert(parts[0]);
  }
  EXPECT_EQ(tested, stored);
}

TEST(Goldens, BatchNormTrains) {
  testing::LazyRuntime lazy;
  lazy.context.training = true;
  Golden golden = LoadGolden(lazy.context, "operations.safetensors");
  const auto part = [&](const char* name) {
    return golden[absl::StrCat("nn_batchnorm_train.", name)];
  };
  nn::BatchNorm layer = With(nn::BatchNorm(lazy.context, 4), part("x1"), part("x2"));
  ExpectNear("value", layer(part("x0")), part("y"), 1e-5);
  ExpectNear("mean", layer.running_mean, part("running_mean"), 1e-5);
  ExpectNear("variance", layer.running_var, part("running_var"), 1e-5);
  EXPECT_THAT(Read(layer.num_batches_tracked), ::testing::ElementsAre(1));
}

using MakeOptimizer = std::function<std::unique_ptr<nn::Optimizer>(const Tensors&)>;

TEST(Goldens, OptimizersStep) {
  const std::vector<std::pair<std::string, MakeOptimizer>> optimizers = {
      {"sgd", [](const Tensors& p) { return nn::SGD(p, {.lr = 0.1}); }},
      {"sgd_momentum",
       [](const Tensors& p) {
         return nn::SGD(p, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
       }},
      {"sgd_nesterov",
       [](const Tensors& p) {
         return nn::SGD(p, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
       }},
      {"sgd_classic",
       [](const Tensors& p) { return nn::SGD(p, {.lr = 0.1, .momentum = 0.9, .classic = true}); }},
      {"lars",
       [](const Tensors& p) {
         return std::make_unique<nn::LARS>(p, nn::LARSOptions{.lr = 0.5, .tcoef = 0.1});
       }},
      {"adam", [](const Tensors& p) { return nn::Adam(p, {.lr = 0.1}); }},
      {"adamw", [](const Tensors& p) { return nn::AdamW(p, {.lr = 0.1, .weight_decay = 0.05}); }},
      {"lamb",
       [](const Tensors& p) {
         return std::make_unique<nn::LAMB>(p, nn::LAMBOptions{.lr = 0.1, .weight_decay = 0.05});
       }},
  };
  for (const auto& [name, make] : optimizers) {
    SCOPED_TRACE(name);
    testing::LazyRuntime lazy;
    lazy.context.training = true;
    Golden golden = LoadGolden(lazy.context, "optimizers.safetensors");
    Tensor param = golden["x"];
    const std::unique_ptr<nn::Optimizer> optimizer = make({param});
    for (int step = 0; step < 4; ++step) {
      optimizer->ZeroGrad();
      param.set_grad(golden[absl::StrCat("g", step)]);
      const absl::Status status = optimizer->Step();
      ASSERT_TRUE(status.ok()) << status;
    }
    ExpectNear("parameter", param, golden[name], 1e-5);
  }
}

}  // namespace
}  // namespace beamd

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/autograd/functions.h"
#include "engine/base/sha256.h"
#include "engine/tensor/movement.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

struct DeviceRandom {
  Tensor key;  // uint32 [2]
  // Where the draws since it was last computed begin: uint32 [1], on the device, so that a captured
  // program draws new numbers each time it runs.
  Tensor origin;
  int64_t offset = 0;  // from there to the last draw
};

struct RandomState final : ContextExtension {
  explicit RandomState(uint64_t s) : seed(s) {}
  uint64_t seed;
  std::map<std::string, DeviceRandom> devices;
};

RandomState& StateOf(LazyContext& context) {
  std::unique_ptr<ContextExtension>& extension = context.extension();
  if (extension == nullptr) extension = std::make_unique<RandomState>(0);
  return static_cast<RandomState&>(*extension);
}

// Devices differ in the first word of their keys, by the order of their first use.
uint32_t DeviceWord(uint32_t order) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(order >> shift));
  const std::array<uint8_t, 32> digest = Sha256(bytes);
  uint32_t word = 0;
  for (int i = 28; i < 32; ++i) word = word << 8 | digest[i];
  return word;
}

// Key, and the place of the next draw, of `words` words, in the key's stream. As in 0.10.0 a draw
// begins where the last one did, moved on by its own length.
std::pair<Tensor, Tensor> Draw(LazyContext& context, const std::string& device, int64_t words) {
  RandomState& state = StateOf(context);
  const auto found = state.devices.find(device);
  if (found == state.devices.end()) {
    const TensorOptions options{.dtype = Scalar::kUint32, .requires_grad = false, .device = device};
    const std::vector<uint32_t> key = {DeviceWord(static_cast<uint32_t>(state.devices.size())),
                                       static_cast<uint32_t>(state.seed)};
    DeviceRandom made{Tensor::From<uint32_t>(context, key, {2}, options),
                      Tensor::Zeros(context, {1}, options).Contiguous()};
    const DeviceRandom& random = state.devices.emplace(device, std::move(made)).first->second;
    return {random.key, random.origin};
  }
  DeviceRandom& random = found->second;
  random.offset += words;
  // All draws of one realisation count from one origin, which moves once: a captured program moves
  // it by what it draws in all, however many draws those are.
  if (random.origin.lazydata().is_realized()) {
    // In place, unless a draw that isn't computed yet still reads it.
    const bool is_read = random.origin.lazydata().use_count() > 1;
    const Tensor moved = random.origin.Add(random.offset);
    if (is_read) {
      random.origin = moved;
    } else {
      random.origin.Assign(moved);
    }
    random.origin.lazydata().base().set_forced_realize();
    random.offset = 0;
  }
  return {random.key, random.origin.Add(random.offset)};
}

// Both words of uint64 elements: all low ones, then all high ones.
Tensor ThreefryWords(const Tensor& key, const Tensor& low, const Tensor& high) {
  const auto join = [](const Tensor& h, const Tensor& l) {
    return h.Cast(Scalar::kUint64).Lshift(32).BitwiseOr(l.Cast(Scalar::kUint64));
  };
  const Shape& shape = low.shape();
  const Tensor seed = join(key.Get({1}).BroadcastTo(shape), key.Get({0}).BroadcastTo(shape));
  const Tensor bits = Apply<functions::Threefry>({join(high, low), seed});
  constexpr int64_t kLowWord = 0xffffffff;
  return bits.BitwiseAnd(kLowWord)
      .Cast(Scalar::kUint32)
      .Cat({bits.Rshift(32).BitwiseAnd(kLowWord).Cast(Scalar::kUint32)});
}

struct FloatLayout {
  Scalar word;  // the unsigned integer of its size
  int mantissa_bits;
  int64_t one;  // the bits of 1
};

FloatLayout LayoutOf(Scalar dtype) {
  switch (dtype) {
    case Scalar::kFloat16:
      return {Scalar::kUint16, 10, 0x3c00};
    case Scalar::kBFloat16:
      return {Scalar::kUint16, 7, 0x3f80};
    case Scalar::kFloat64:
      return {Scalar::kUint64, 52, 0x3ff0000000000000};
    default:
      return {Scalar::kUint32, 23, 0x3f800000};
  }
}

// Whatever x is made of (counters, which have no gradient).
Tensor WithGrad(Tensor x, const TensorOptions& options) {
  if (x.ok()) x.set_requires_grad(options.requires_grad);
  return x;
}

// Options for the steps before the result, which alone is what a gradient may be asked for.
TensorOptions StepOptions(const TensorOptions& options, std::optional<Scalar> dtype = {}) {
  return {.dtype = dtype, .device = options.device};
}

Tensor UniformBetween(LazyContext& context, const Shape& shape, ConstValue low, ConstValue width,
                      Scalar dtype, const TensorOptions& options) {
  const Tensor unit = Tensor::Rand(context, shape, StepOptions(options));
  Tensor x = unit.Mul(width).Cast(dtype);
  return WithGrad(low.Is(0) ? x : x.Add(low), options);
}

// [-bound, bound) times `scale`.
Tensor Symmetric(LazyContext& context, const Shape& shape, double scale,
                 const TensorOptions& options) {
  return WithGrad(
      Tensor::Uniform(context, shape, -1, 1, StepOptions(options, options.dtype)).Mul(scale),
      options);
}

// The product of the sizes from `first` on as a number; a failed tensor through `error` if a shape
// of no axes, or a symbolic one, has none.
std::optional<double> CountFrom(absl::string_view operation, const Shape& shape, size_t first,
                                Tensor& error) {
  if (shape.size() < first || !AllNumbers(shape)) {
    error = InvalidTensor(operation, absl::StrCat("takes a shape of numbers with at least ", first,
                                                  " axes, got ", ToString(shape)));
    return std::nullopt;
  }
  return static_cast<double>(Prod(std::span(shape).subspan(first)).number());
}

}  // namespace

void Tensor::ManualSeed(LazyContext& context, uint64_t seed) {
  context.extension() = std::make_unique<RandomState>(seed);
}

Tensor Tensor::Rand(LazyContext& context, const Shape& shape, const TensorOptions& options,
                    bool contiguous) {
  const Scalar dtype = options.dtype.value_or(context.default_float);
  if (!IsFloat(dtype)) {
    return InvalidTensor("rand", absl::StrCat("gives floats, not ", Name(dtype)));
  }
  for (const SInt& size : shape) {
    if (!size.is_number() || size.number() < 0) {
      return InvalidTensor("rand", absl::StrCat("can't fill the shape ", ToString(shape)));
    }
  }
  constexpr int64_t kMostWords = (int64_t{1} << 32) - 2;  // two halves, each an Arange
  if (!IsCountable(shape) || beamd::Prod(shape).number() > kMostWords * 4 / SizeBytes(dtype)) {
    return InvalidTensor("rand", absl::StrCat("the shape ", ToString(shape), " is too large"));
  }
  const std::string& device = options.device.empty() ? context.device() : options.device;
  const int64_t count = beamd::Prod(shape).number();
  const int64_t words = (count * SizeBytes(dtype) + 3) / 4, half = (words + 1) / 2;
  const auto [key, origin] = Draw(context, device, words);
  if (count == 0) {
    return Zeros(context, shape,
                 {.dtype = dtype, .requires_grad = options.requires_grad, .device = device});
  }
  const Tensor low =
      Arange(context, half, {.dtype = Scalar::kUint32, .requires_grad = false, .device = device})
          .Add(origin);
  const Tensor drawn = ThreefryWords(key, low, low.Add(half)).Get({Slice{std::nullopt, words}});
  // Random mantissas of numbers in [1, 2).
  const FloatLayout layout = LayoutOf(dtype);
  const Tensor bits =
      drawn.Bitcast(layout.word).Rshift(Bits(dtype) - layout.mantissa_bits).BitwiseOr(layout.one);
  const Tensor x = bits.Bitcast(dtype).Get({Slice{std::nullopt, count}}).Sub(1).Reshape(shape);
  return WithGrad(contiguous ? x.Contiguous() : x, options);
}

Tensor Tensor::RandLike(const TensorOptions& options) const {
  if (!ok()) return *this;
  TensorOptions like = options;
  if (!like.dtype) like.dtype = dtype();
  if (like.device.empty()) like.device = device();
  return Rand(context(), shape(), like);
}

Tensor Tensor::Randn(LazyContext& context, const Shape& shape, const TensorOptions& options) {
  const Scalar dtype = options.dtype.value_or(context.default_float);
  Shape pair = shape;
  pair.insert(pair.begin(), 2);
  Tensor uniform = Named("randn", Rand(context, pair, StepOptions(options, Scalar::kFloat32)));
  if (!uniform.ok()) return uniform;
  // Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
  const Tensor angle = uniform.Get({0}).Mul(2 * M_PI);
  const Tensor radius = (1 - uniform.Get({1})).Log().Mul(-2).Sqrt();
  return WithGrad(angle.Cos().Mul(radius).Cast(dtype), options);
}

Tensor Tensor::Randint(LazyContext& context, const Shape& shape, int64_t low, int64_t high,
                       const TensorOptions& options) {
  const Scalar dtype = options.dtype.value_or(Scalar::kInt32);
  if (!IsInt(dtype)) {
    return InvalidTensor("randint", absl::StrCat("gives integers, not ", Name(dtype)));
  }
  if (low >= high) {
    return InvalidTensor("randint", absl::StrCat("[", low, ", ", high, ") is empty"));
  }
  const double width = static_cast<double>(high) - static_cast<double>(low);
  return Named("randint", UniformBetween(context, shape, low, width, dtype, options));
}

Tensor Tensor::Normal(LazyContext& context, const Shape& shape, double mean, double std,
                      const TensorOptions& options) {
  const Tensor x =
      Named("normal", Randn(context, shape, StepOptions(options, options.dtype))).Mul(std);
  return WithGrad(mean == 0 ? x : x.Add(mean), options);
}

Tensor Tensor::Uniform(LazyContext& context, const Shape& shape, double low, double high,
                       const TensorOptions& options) {
  const Scalar dtype = options.dtype.value_or(context.default_float);
  if (!IsFloat(dtype)) {
    return InvalidTensor("uniform",
                         absl::StrCat("gives floats, not ", Name(dtype), ": see randint"));
  }
  return Named("uniform", UniformBetween(context, shape, low, high - low, dtype, options));
}

Tensor Tensor::ScaledUniform(LazyContext& context, const Shape& shape,
                             const TensorOptions& options) {
  Tensor error;
  const std::optional<double> count = CountFrom("scaled_uniform", shape, 0, error);
  return count ? Symmetric(context, shape, 1 / std::sqrt(*count), options) : error;
}

Tensor Tensor::GlorotUniform(LazyContext& context, const Shape& shape,
                             const TensorOptions& options) {
  Tensor error;
  const std::optional<double> count = CountFrom("glorot_uniform", shape, 1, error);
  if (!count) return error;
  const auto outputs = static_cast<double>(shape[0].number());
  return Symmetric(context, shape, std::sqrt(6 / (outputs + *count)), options);
}

Tensor Tensor::KaimingUniform(LazyContext& context, const Shape& shape, double a,
                              const TensorOptions& options) {
  Tensor error;
  const std::optional<double> count = CountFrom("kaiming_uniform", shape, 1, error);
  if (!count) return error;
  const double bound = std::sqrt(3.0) * std::sqrt(2.0 / (1 + a * a)) / std::sqrt(*count);
  return Uniform(context, shape, -bound, bound, options);
}

Tensor Tensor::KaimingNormal(LazyContext& context, const Shape& shape, double a,
                             const TensorOptions& options) {
  Tensor error;
  const std::optional<double> count = CountFrom("kaiming_normal", shape, 1, error);
  if (!count) return error;
  return Normal(context, shape, 0, std::sqrt(2.0 / (1 + a * a)) / std::sqrt(*count), options);
}

Tensor Tensor::Multinomial(int num_samples, bool replacement) const {
  if (!ok()) return *this;
  if (ndim() < 1 || ndim() > 2 || num_samples < 1) {
    return InvalidTensor("multinomial",
                         absl::StrCat("can't draw ", num_samples, " samples from weights of shape ",
                                      ToString(shape())));
  }
  if (num_samples > 1 && !replacement) {
    return InvalidTensor("multinomial", "several samples are drawn with replacement only");
  }
  const Tensor sums = (ndim() == 1 ? Unsqueeze(0) : *this).Cumsum(1).Float();
  const Tensor shares = sums.Div(sums.Get({Ellipsis(), -1}).Unsqueeze(1));
  const Tensor at = Rand(context(), {num_samples, shares.shape()[0], 1}, {.device = device()});
  // How many of the shares lie at or below the point.
  const Tensor drawn = at.Expand({-1, -1, shares.shape()[1]}).Ge(shares).Sum(2).Permute({1, 0});
  return (ndim() == 1 ? drawn.Squeeze(0) : drawn).Cast(Scalar::kInt32);
}

Tensor Tensor::Dropout(double p) const {
  if (!ok()) return *this;
  if (!(p >= 0 && p <= 1)) {
    return InvalidTensor("dropout", absl::StrCat("a probability of ", p));
  }
  if (!context().training || p == 0) return *this;
  const Tensor unit = Rand(context(), shape(), {.requires_grad = false, .device = device()},
                           /*contiguous=*/false);
  const Tensor kept = Named("dropout", unit.Ge(p).Contiguous().Where(*this, 0));
  return p == 1 ? kept : kept.Div(1 - p);
}

}  // namespace beamd

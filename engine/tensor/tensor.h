// Tensors: values with a shape and a dtype, computed when asked for, and their gradients.
//
//   LazyContext context;
//   Tensor x = Tensor::Rand(context, {64, 784});
//   Tensor loss = (x.Matmul(w) + b).Relu().Sum();
//   loss.Backward();
//   std::vector<float> dw = *w.grad().ToVector<float>();
//
// Method names, defaults and meanings are those of tinygrad 0.10.0's Tensor in C++ spelling
// (log_softmax: LogSoftmax); README.md has the table. A Tensor is a reference: copies are the same
// tensor, as in Python.
//
// Errors: an operation that can't be (shapes that don't broadcast, an axis out of range, ...) gives
// a tensor whose status() says which operation and why. Whatever is made of it carries the same
// status, and so do Realize, Backward and reading. Codes: InvalidArgument (shapes, axes, counts),
// FailedPrecondition (no gradient recorded, no realizer), Unimplemented (no such gradient).
//
// Axes may be negative: counted from the end. Confined to the thread of its LazyContext.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/autograd/function.h"
#include "engine/dtype/const_value.h"
#include "engine/dtype/dtype.h"
#include "engine/lazy/lazy_buffer.h"
#include "engine/lazy/lazy_context.h"

namespace beamd {

class Operand;
struct Index;

struct TensorOptions {
  std::optional<Scalar> dtype = {};        // the context's default_float (or _int) without
  std::optional<bool> requires_grad = {};  // unset: until an optimiser takes it, no
  std::string device = {};                 // empty: the context's
};

// Axes of a reduction: one, several, or all.
class Axes {
 public:
  Axes() = default;  // all
  Axes(int axis) : axes_(std::vector<int>{axis}) {}
  Axes(std::initializer_list<int> axes) : axes_(std::vector<int>(axes)) {}
  Axes(std::vector<int> axes) : axes_(std::move(axes)) {}
  bool all() const { return !axes_.has_value(); }
  const std::vector<int>& list() const { return *axes_; }

 private:
  std::optional<std::vector<int>> axes_;
};

// One number for every spatial axis (`2`), or one an axis (`{2}`, `{2, 3}`), first axis first; for
// paddings also two an axis, (left, right) pairs from the last axis on.
class PerAxis {
 public:
  PerAxis(int value) : values_({value}), is_uniform_(true) {}
  PerAxis(std::initializer_list<int> values) : values_(values) {}
  PerAxis(std::vector<int> values) : values_(std::move(values)) {}
  // One value alone if is_uniform().
  const std::vector<int>& values() const { return values_; }
  bool is_uniform() const { return is_uniform_; }

 private:
  std::vector<int> values_;
  bool is_uniform_ = false;
};

enum class Reduction : uint8_t { kNone, kMean, kSum };
enum class PadMode : uint8_t { kConstant, kReflect, kReplicate, kCircular };
enum class InterpolateMode : uint8_t { kLinear, kNearest, kNearestExact };
using PadAmounts = std::vector<std::optional<std::pair<SInt, SInt>>>;

class Tensor {
 public:
  // No tensor; its status is FailedPrecondition.
  Tensor() = default;
  explicit Tensor(LazyBuffer lazydata, std::optional<bool> requires_grad = std::nullopt);
  // A tensor that is only an error.
  static Tensor Failed(absl::Status status);

  // --- state ---
  bool defined() const { return impl_ != nullptr; }
  bool ok() const;
  const absl::Status& status() const;
  // The rest requires ok().
  const LazyBuffer& lazydata() const;
  LazyContext& context() const { return lazydata().context(); }
  const Shape& shape() const { return lazydata().shape(); }
  SInt size(int axis) const;  // 0 where there is no such axis
  int ndim() const { return static_cast<int>(shape().size()); }
  SInt numel() const;
  Scalar dtype() const { return lazydata().dtype(); }
  const std::string& device() const { return lazydata().device(); }
  int element_size() const { return SizeBytes(dtype()); }
  int64_t nbytes() const;  // of a symbolic shape the most there can be
  bool is_floating_point() const { return IsFloat(dtype()); }
  std::optional<bool> requires_grad() const;
  Tensor& set_requires_grad(std::optional<bool> requires_grad);
  // Undefined until Backward gave one.
  Tensor grad() const;
  void set_grad(const Tensor& grad);
  void clear_grad() { set_grad(Tensor()); }
  // The same tensor, not only an equal one.
  bool is(const Tensor& other) const { return impl_ == other.impl_; }

  // --- creation (tensor_create.cc) ---
  // Data on the host, row-major; goes to the device when realised. Without a dtype in the options
  // the tensor has the values' own; else each is converted.
  template <typename T>
  static Tensor From(LazyContext& context, std::span<const T> values, const Shape& shape,
                     const TensorOptions& options = {});
  template <typename T>
  static Tensor From(LazyContext& context, const std::vector<T>& values, const Shape& shape,
                     const TensorOptions& options = {}) {
    return From<T>(context, std::span<const T>(values), shape, options);
  }
  // Little-endian elements of `dtype`, row-major.
  static Tensor FromBytes(LazyContext& context, std::span<const std::byte> bytes,
                          const Shape& shape, Scalar dtype, const TensorOptions& options = {});
  static Tensor Scalar0(LazyContext& context, ConstValue value, const TensorOptions& options = {});
  // The value of an integer expression over variables, as a tensor of no axes.
  static Tensor FromUop(LazyContext& context, UOp expression, const TensorOptions& options = {});
  static Tensor Empty(LazyContext& context, const Shape& shape, const TensorOptions& options = {});
  static Tensor Full(LazyContext& context, const Shape& shape, ConstValue value,
                     const TensorOptions& options = {});
  static Tensor Zeros(LazyContext& context, const Shape& shape, const TensorOptions& options = {});
  static Tensor Ones(LazyContext& context, const Shape& shape, const TensorOptions& options = {});
  static Tensor Arange(LazyContext& context, ConstValue stop, const TensorOptions& options = {});
  static Tensor Arange(LazyContext& context, ConstValue start, ConstValue stop, ConstValue step = 1,
                       const TensorOptions& options = {});
  static Tensor Linspace(LazyContext& context, ConstValue start, ConstValue stop, int steps,
                         const TensorOptions& options = {});
  static Tensor Eye(LazyContext& context, int n, std::optional<int> m = std::nullopt,
                    const TensorOptions& options = {});
  Tensor FullLike(ConstValue value, const TensorOptions& options = {}) const;
  Tensor ZerosLike(const TensorOptions& options = {}) const;
  Tensor OnesLike(const TensorOptions& options = {}) const;

  // --- random (tensor_random.cc): threefry2x32 over a counter, the same on every device ---
  static void ManualSeed(LazyContext& context, uint64_t seed = 0);
  static Tensor Rand(LazyContext& context, const Shape& shape, const TensorOptions& options = {},
                     bool contiguous = true);
  Tensor RandLike(const TensorOptions& options = {}) const;
  static Tensor Randn(LazyContext& context, const Shape& shape, const TensorOptions& options = {});
  static Tensor Randint(LazyContext& context, const Shape& shape, int64_t low = 0,
                        int64_t high = 10, const TensorOptions& options = {});
  static Tensor Normal(LazyContext& context, const Shape& shape, double mean = 0, double std = 1,
                       const TensorOptions& options = {});
  static Tensor Uniform(LazyContext& context, const Shape& shape, double low = 0, double high = 1,
                        const TensorOptions& options = {});
  static Tensor ScaledUniform(LazyContext& context, const Shape& shape,
                              const TensorOptions& options = {});
  static Tensor GlorotUniform(LazyContext& context, const Shape& shape,
                              const TensorOptions& options = {});
  static Tensor KaimingUniform(LazyContext& context, const Shape& shape, double a = 0.01,
                               const TensorOptions& options = {});
  static Tensor KaimingNormal(LazyContext& context, const Shape& shape, double a = 0.01,
                              const TensorOptions& options = {});
  Tensor Multinomial(int num_samples = 1, bool replacement = false) const;
  Tensor Dropout(double p = 0.5) const;

  // --- realising and reading (tensor.cc) ---
  absl::Status Realize() const;
  static absl::Status Realize(std::span<const Tensor> tensors);
  static absl::Status Realize(std::initializer_list<Tensor> tensors) {
    return Realize(std::span<const Tensor>(tensors.begin(), tensors.size()));
  }
  // Row-major elements; T is what the dtype is in C++ (float16 and bfloat16: float).
  template <typename T>
  absl::StatusOr<std::vector<T>> ToVector() const;
  absl::StatusOr<std::vector<std::byte>> ToBytes() const;
  // The one element of a tensor that has one.
  template <typename T>
  absl::StatusOr<T> Item() const;
  // Writes `value` into this tensor's buffer (this keeps its identity); unrealised: replaces.
  Tensor& Assign(const Operand& value);
  Tensor& Replace(const Tensor& value);
  Tensor Detach() const;
  Tensor Clone() const;
  Tensor To(absl::string_view device) const;
  Tensor Contiguous() const;
  Tensor ContiguousBackward() const;

  // --- autograd (backward.cc) ---
  // Gradients of this tensor with respect to every tensor below it that requires one, added to
  // their grad(). Without `gradient` this must be a scalar of a float dtype. The recorded graph is
  // freed unless retain_graph.
  absl::Status Backward(const Tensor& gradient = Tensor(), bool retain_graph = false) const;
  // Gradients with respect to `targets`, in order; their grad() stays as it is. The graph is kept.
  absl::StatusOr<std::vector<Tensor>> Gradient(std::span<const Tensor> targets,
                                               const Tensor& gradient = Tensor()) const;

  // --- movement (tensor_movement.cc) ---
  Tensor Reshape(const Shape& shape) const;  // -1: inferred
  Tensor View(const Shape& shape) const { return Reshape(shape); }
  Tensor Expand(const Shape& shape) const;  // -1: as it is
  Tensor Permute(const std::vector<int>& order) const;
  Tensor Flip(const Axes& axes) const;
  Tensor Shrink(const PadAmounts& ranges) const;  // [begin, end) an axis; nullopt: whole
  // Amounts an axis, first axis first; negative ones shrink.
  Tensor Pad(const PadAmounts& amounts, PadMode mode = PadMode::kConstant,
             ConstValue value = 0.0) const;
  // The same as flat (left, right) pairs from the last axis on (torch's form).
  Tensor PadFlat(const std::vector<SInt>& amounts, PadMode mode = PadMode::kConstant,
                 ConstValue value = 0.0) const;
  Tensor BroadcastTo(const Shape& shape) const;
  Tensor Transpose(int dim0 = 1, int dim1 = 0) const;
  Tensor T() const { return Transpose(); }
  Tensor Flatten(int start_dim = 0, int end_dim = -1) const;
  Tensor Unflatten(int dim, const Shape& sizes) const;
  Tensor Squeeze(std::optional<int> dim = std::nullopt) const;
  Tensor Unsqueeze(int dim) const;
  Tensor Cat(std::span<const Tensor> others, int dim = 0) const;
  Tensor Cat(std::initializer_list<Tensor> others, int dim = 0) const {
    return Cat(std::span<const Tensor>(others.begin(), others.size()), dim);
  }
  Tensor Stack(std::span<const Tensor> others, int dim = 0) const;
  Tensor Stack(std::initializer_list<Tensor> others, int dim = 0) const {
    return Stack(std::span<const Tensor>(others.begin(), others.size()), dim);
  }
  Tensor Repeat(const std::vector<int>& repeats) const;
  Tensor RepeatInterleave(int repeats, std::optional<int> dim = std::nullopt) const;
  // Failures come as one failed tensor.
  std::vector<Tensor> Split(int size, int dim = 0) const;
  std::vector<Tensor> Split(const std::vector<int>& sizes, int dim = 0) const;
  std::vector<Tensor> Chunk(int chunks, int dim = 0) const;
  std::vector<Tensor> Meshgrid(std::span<const Tensor> others, bool ij_indexing = true) const;
  Tensor Roll(const std::vector<int>& shifts, const std::vector<int>& dims) const;
  Tensor Rearrange(absl::string_view formula,
                   const std::vector<std::pair<std::string, int>>& sizes = {}) const;
  Tensor Unfold(int dim, const SInt& size, int step) const;
  // Windows over the last k.size() axes: shape ends in (outputs..., kernel...).
  Tensor Pool(const std::vector<int>& kernel, const PerAxis& stride = 1,
              const PerAxis& dilation = 1) const;
  Tensor Tril(int diagonal = 0) const;
  Tensor Triu(int diagonal = 0) const;
  Tensor Diagonal() const;

  // --- indexing (tensor_indexing.cc) ---
  // One entry an axis: an int, a slice with step, an ellipsis, a new axis, or an integer tensor.
  Tensor Get(const std::vector<Index>& indices) const;
  Tensor Get(std::initializer_list<Index> indices) const;
  // Writes into this, whose buffer is realised first.
  absl::Status Set(const std::vector<Index>& indices, const Operand& value);
  Tensor Gather(int dim, const Tensor& index) const;
  Tensor Scatter(int dim, const Tensor& index, const Operand& src, bool add = false) const;
  Tensor OneHot(int num_classes = -1) const;
  Tensor MaskedFill(const Tensor& mask, const Operand& value) const;

  // --- reductions (tensor_reduce.cc) ---
  Tensor Sum(const Axes& axes = {}, bool keepdim = false,
             std::optional<Scalar> acc_dtype = std::nullopt) const;
  Tensor Prod(const Axes& axes = {}, bool keepdim = false,
              std::optional<Scalar> acc_dtype = std::nullopt) const;
  Tensor Max(const Axes& axes = {}, bool keepdim = false) const;
  Tensor Min(const Axes& axes = {}, bool keepdim = false) const;
  Tensor Any(const Axes& axes = {}, bool keepdim = false) const;
  Tensor All(const Axes& axes = {}, bool keepdim = false) const;
  Tensor Mean(const Axes& axes = {}, bool keepdim = false) const;
  Tensor Var(const Axes& axes = {}, bool keepdim = false, int correction = 1) const;
  Tensor Std(const Axes& axes = {}, bool keepdim = false, int correction = 1) const;
  std::pair<Tensor, Tensor> StdMean(const Axes& axes = {}, bool keepdim = false,
                                    int correction = 1) const;
  Tensor Softmax(int axis = -1, std::optional<Scalar> dtype = std::nullopt) const;
  Tensor LogSoftmax(int axis = -1, std::optional<Scalar> dtype = std::nullopt) const;
  Tensor Logsumexp(const Axes& axes = {}, bool keepdim = false) const;
  Tensor Logcumsumexp(int axis = 0) const;
  Tensor Argmax(std::optional<int> axis = std::nullopt, bool keepdim = false) const;
  Tensor Argmin(std::optional<int> axis = std::nullopt, bool keepdim = false) const;
  Tensor Cumsum(int axis = 0) const;
  Tensor Cummax(int axis = 0) const;

  // --- element-wise, one operand (tensor_unary.cc) ---
  Tensor LogicalNot() const;
  Tensor Neg() const;
  Tensor Reciprocal() const;
  Tensor Sin() const;
  Tensor Cos() const;
  Tensor Tan() const;
  Tensor Asin() const;
  Tensor Acos() const;
  Tensor Atan() const;
  Tensor Log() const;
  Tensor Log2() const;
  Tensor Exp() const;
  Tensor Exp2() const;
  Tensor Sqrt() const;
  Tensor Rsqrt() const;
  Tensor Square() const;
  Tensor Abs() const;
  Tensor Sign() const;
  Tensor Trunc() const;
  Tensor Ceil() const;
  Tensor Floor() const;
  Tensor Round() const;  // half to even
  Tensor Isinf(bool detect_positive = true, bool detect_negative = true) const;
  Tensor Isnan() const;
  Tensor Clamp(std::optional<ConstValue> min, std::optional<ConstValue> max) const;
  Tensor Clip(std::optional<ConstValue> min, std::optional<ConstValue> max) const {
    return Clamp(min, max);
  }
  Tensor Relu() const;
  Tensor Sigmoid() const;
  Tensor Hardsigmoid(double alpha = 1.0 / 6, double beta = 0.5) const;
  Tensor Elu(double alpha = 1) const;
  Tensor Celu(double alpha = 1) const;
  Tensor Selu(double alpha = 1.67326, double gamma = 1.0507) const;
  Tensor Swish() const;
  Tensor Silu() const { return Swish(); }
  Tensor Relu6() const;
  Tensor Hardswish() const;
  Tensor Tanh() const;
  Tensor Sinh() const;
  Tensor Cosh() const;
  Tensor Atanh() const;
  Tensor Asinh() const;
  Tensor Acosh() const;
  Tensor Hardtanh(double min = -1, double max = 1) const;
  Tensor Erf() const;
  Tensor Gelu() const;
  Tensor QuickGelu() const;
  Tensor LeakyRelu(double slope = 0.01) const;
  Tensor Mish() const;
  Tensor Softplus(double beta = 1) const;
  Tensor Softsign() const;

  // --- element-wise, several operands (tensor_binary.cc): broadcast, promoted ---
  Tensor Add(const Operand& x, bool reverse = false) const;
  Tensor Sub(const Operand& x, bool reverse = false) const;
  Tensor Mul(const Operand& x, bool reverse = false) const;
  Tensor Idiv(const Operand& x, bool reverse = false) const;  // truncates
  Tensor Div(const Operand& x, bool reverse = false) const;
  Tensor Mod(const Operand& x, bool reverse = false) const;  // sign of the divisor, as in Python
  Tensor Pow(const Operand& x, bool reverse = false) const;
  Tensor Maximum(const Operand& x) const;
  Tensor Minimum(const Operand& x) const;
  Tensor Xor(const Operand& x, bool reverse = false) const;
  Tensor BitwiseAnd(const Operand& x, bool reverse = false) const;
  Tensor BitwiseOr(const Operand& x, bool reverse = false) const;
  Tensor BitwiseNot() const;
  Tensor Lshift(int amount) const;
  Tensor Rshift(int amount) const;
  Tensor Lt(const Operand& x) const;
  Tensor Gt(const Operand& x) const;
  Tensor Le(const Operand& x) const;
  Tensor Ge(const Operand& x) const;
  Tensor Eq(const Operand& x) const;
  Tensor Ne(const Operand& x) const;
  // Where this (a condition) holds, x; else y.
  Tensor Where(const Operand& x, const Operand& y) const;
  Tensor Lerp(const Tensor& end, const Operand& weight) const;

  // --- dtype (tensor_binary.cc) ---
  Tensor Cast(Scalar dtype) const;
  // Of another size: the last axis grows or shrinks with it.
  Tensor Bitcast(Scalar dtype) const;
  // float32, to be stored as an image of so many texels of float16 or float32 wherever it lies in
  // memory in a shape that fits one; so is what is computed of it (tensor_image.cc).
  Tensor CastImage(Scalar texel, int64_t height, int64_t width) const;
  Tensor Float() const { return Cast(Scalar::kFloat32); }
  Tensor Half() const { return Cast(Scalar::kFloat16); }
  Tensor Int() const { return Cast(Scalar::kInt32); }
  Tensor Bool() const { return Cast(Scalar::kBool); }

  // --- products (tensor_matmul.cc) ---
  Tensor Dot(const Tensor& w, std::optional<Scalar> acc_dtype = std::nullopt) const;
  Tensor Matmul(const Tensor& x, bool reverse = false,
                std::optional<Scalar> acc_dtype = std::nullopt) const;
  static Tensor Einsum(absl::string_view formula, std::span<const Tensor> operands,
                       std::optional<Scalar> acc_dtype = std::nullopt);
  static Tensor Einsum(absl::string_view formula, std::initializer_list<Tensor> operands,
                       std::optional<Scalar> acc_dtype = std::nullopt) {
    return Einsum(formula, std::span<const Tensor>(operands.begin(), operands.size()), acc_dtype);
  }
  Tensor Linear(const Tensor& weight, const Tensor& bias = Tensor()) const;
  Tensor Sequential(const std::vector<std::function<Tensor(const Tensor&)>>& layers) const;
  Tensor ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                   const Tensor& attn_mask = Tensor(), double dropout_p = 0,
                                   bool is_causal = false, bool enable_gqa = false) const;

  // --- convolution and pooling (tensor_conv.cc) ---
  Tensor Conv2d(const Tensor& weight, const Tensor& bias = Tensor(), int groups = 1,
                const PerAxis& stride = 1, const PerAxis& dilation = 1, const PerAxis& padding = 0,
                std::optional<Scalar> acc_dtype = std::nullopt) const;
  // What Dot and Conv2d (of two axes) come to with the option IMAGE: over groups of four channels,
  // the operands rearranged so in memory, with IMAGE 2 as images. Floats of at most 32 bits and
  // fixed sizes; Dot and Conv2d take their own way with others. (tensor_image.cc)
  Tensor ImageDot(const Tensor& w, std::optional<Scalar> acc_dtype = std::nullopt) const;
  Tensor ImageConv2d(const Tensor& weight, const Tensor& bias = Tensor(), int groups = 1,
                     const PerAxis& stride = 1, const PerAxis& dilation = 1,
                     const PerAxis& padding = 0,
                     std::optional<Scalar> acc_dtype = std::nullopt) const;
  Tensor ConvTranspose2d(const Tensor& weight, const Tensor& bias = Tensor(), int groups = 1,
                         const PerAxis& stride = 1, const PerAxis& dilation = 1,
                         const PerAxis& padding = 0, const PerAxis& output_padding = 0) const;
  // stride unset: the kernel's.
  Tensor AvgPool2d(const PerAxis& kernel = {2, 2},
                   const std::optional<PerAxis>& stride = std::nullopt, const PerAxis& dilation = 1,
                   const PerAxis& padding = 0, bool ceil_mode = false,
                   bool count_include_pad = true) const;
  Tensor MaxPool2d(const PerAxis& kernel = {2, 2},
                   const std::optional<PerAxis>& stride = std::nullopt, const PerAxis& dilation = 1,
                   const PerAxis& padding = 0, bool ceil_mode = false) const;
  Tensor Interpolate(const std::vector<int>& size, InterpolateMode mode = InterpolateMode::kLinear,
                     bool align_corners = false) const;

  // --- normalisation (tensor_norm.cc) ---
  Tensor Layernorm(const Axes& axes = -1, double eps = 1e-5) const;
  Tensor Batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& invstd, const Axes& axes = 1) const;

  // --- losses (tensor_loss.cc) ---
  Tensor BinaryCrossentropy(const Tensor& y, Reduction reduction = Reduction::kMean) const;
  Tensor BinaryCrossentropyLogits(const Tensor& y, Reduction reduction = Reduction::kMean) const;
  Tensor SparseCategoricalCrossentropy(const Tensor& y, int ignore_index = -1,
                                       double label_smoothing = 0,
                                       Reduction reduction = Reduction::kMean) const;
  Tensor CrossEntropy(const Tensor& y, Reduction reduction = Reduction::kMean,
                      double label_smoothing = 0) const;
  Tensor NllLoss(const Tensor& y, const Tensor& weight = Tensor(),
                 std::optional<int> ignore_index = std::nullopt,
                 Reduction reduction = Reduction::kMean) const;

  // For files of this folder: see tensor_impl.h.
  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// A std::vector<bool> is no span.
template <>
Tensor Tensor::From<bool>(LazyContext& context, const std::vector<bool>& values, const Shape& shape,
                          const TensorOptions& options);

// A tensor, or a number that becomes one of the other operand's dtype and device.
class Operand {
 public:
  Operand(const Tensor& tensor) : value_(tensor) {}
  template <typename T>
  requires std::is_arithmetic_v<T> Operand(T value) : value_(ConstValue(value)) {}
  Operand(ConstValue value) : value_(value) {}
  bool is_tensor() const { return std::holds_alternative<Tensor>(value_); }
  const Tensor& tensor() const { return std::get<Tensor>(value_); }
  ConstValue constant() const { return std::get<ConstValue>(value_); }

 private:
  std::variant<Tensor, ConstValue> value_;
};

// One entry of Get and Set.
struct Slice {
  std::optional<SInt> begin;
  std::optional<SInt> end;
  int64_t step = 1;
};
struct Ellipsis {};
struct NewAxis {};
struct Index {
  Index(SInt at) : value(at) {}
  Index(int at) : value(SInt(at)) {}
  Index(int64_t at) : value(SInt(at)) {}
  Index(Slice slice) : value(slice) {}
  Index(Ellipsis e) : value(e) {}
  Index(NewAxis n) : value(n) {}
  Index(Tensor t) : value(std::move(t)) {}
  std::variant<SInt, Slice, Ellipsis, NewAxis, Tensor> value;
};
inline Tensor Tensor::Get(std::initializer_list<Index> indices) const {
  return Get(std::vector<Index>(indices));
}

inline Tensor operator+(const Tensor& a, const Operand& b) { return a.Add(b); }
inline Tensor operator-(const Tensor& a, const Operand& b) { return a.Sub(b); }
inline Tensor operator*(const Tensor& a, const Operand& b) { return a.Mul(b); }
inline Tensor operator/(const Tensor& a, const Operand& b) { return a.Div(b); }
inline Tensor operator-(const Tensor& a) { return a.Neg(); }
template <typename T>
requires std::is_arithmetic_v<T> Tensor operator+(T a, const Tensor& b) { return b.Add(a, true); }
template <typename T>
requires std::is_arithmetic_v<T> Tensor operator-(T a, const Tensor& b) { return b.Sub(a, true); }
template <typename T>
requires std::is_arithmetic_v<T> Tensor operator*(T a, const Tensor& b) { return b.Mul(a, true); }
template <typename T>
requires std::is_arithmetic_v<T> Tensor operator/(T a, const Tensor& b) { return b.Div(a, true); }

}  // namespace beamd

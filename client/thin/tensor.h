// Lazy tensors: expressions that a server computes. They become a tensor graph
// (proto/beamd/v1/ast.proto) when they are run; until then nothing is sent.
//
//   Tensor w = Tensor::From<float>({1, 2, 3, 4}, {2, 2});
//   Tensor loss = x.Matmul(w).Relu().Square().Mean();
//   StatusOr<RunReport> report = Compute(*session, {loss}, {.gradients_of = {w}});
//   StatusOr<float> value = loss.Item<float>(*session);
//
// A mistake makes a failed tensor, whose status says what and where; what is made of it fails with
// the same. A number in an expression takes the other operand's dtype (float32 where that is an
// integer and the number is none); otherwise two dtypes meet in Promote (dtype.h). Shapes broadcast
// as NumPy's. Axes count from the end where they are negative.
// An expression over memory that is assigned to means what stands there when it is run.
//
// A handle: copies share. Expressions may be built and run by several threads. Once a tensor was run
// its values stay on the server, as long as somebody holds it, and what is made of it afterwards
// begins with them; a tensor whose shape has a variable is computed anew in each run, as part of
// another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/thin/dtype.h"
#include "client/thin/session.h"
#include "client/thin/size.h"
#include "proto/beamd/v1/ast.pb.h"
#include "proto/beamd/v1/executor.pb.h"

namespace beamd::thin {

namespace internal {
struct Node;
using NodePtr = std::shared_ptr<const Node>;
}  // namespace internal

using Axes = std::vector<int>;

// Windows over the last axes: of a convolution or a pooling, the same for both.
struct WindowOptions {
  int stride = 1;
  int padding = 0;
  int dilation = 1;
  int groups = 1;  // of a convolution
};

class Tensor {
 public:
  // No tensor: failed.
  Tensor();
  // A number that takes the dtype of what it meets; alone float32, int32 or bool.
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Tensor(T value) : Tensor(Number(value)) {}

  // --- making ---
  // Of this program's memory: row-major, as many as the shape has. Sent when it is first needed.
  template <typename T>
  static Tensor From(std::span<const T> values, const std::vector<int64_t>& shape) {
    return FromBytes(std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()),
                     DTypeOf<T>(), shape);
  }
  template <typename T>
  static Tensor From(const std::vector<T>& values, const std::vector<int64_t>& shape) {
    return From(std::span<const T>(values), shape);
  }
  static Tensor FromBytes(std::string content, DType dtype, const std::vector<int64_t>& shape);
  static Tensor FromBuffer(std::shared_ptr<Buffer> buffer);
  static Tensor Full(const Shape& shape, double value, DType dtype = kFloat32);
  static Tensor Zeros(const Shape& shape, DType dtype = kFloat32) { return Full(shape, 0, dtype); }
  static Tensor Ones(const Shape& shape, DType dtype = kFloat32) { return Full(shape, 1, dtype); }
  // begin, begin + step, ...: `count` of them, computed by the server.
  static Tensor Arange(int64_t count, double begin = 0, double step = 1, DType dtype = kInt32);
  // Drawn here, by a generator of this library alone: the same on every machine for one seed.
  static Tensor Uniform(const std::vector<int64_t>& shape, uint64_t seed, float low = 0,
                        float high = 1);
  static Tensor Normal(const std::vector<int64_t>& shape, uint64_t seed, float mean = 0,
                       float deviation = 1);
  // The variable's value, int32, without axes.
  static Tensor Of(const Variable& variable);

  // --- looking ---
  bool ok() const { return status().ok(); }
  const absl::Status& status() const;
  DType dtype() const;
  const Shape& shape() const;
  int ndim() const { return static_cast<int>(shape().size()); }
  // The values on the server; null before the tensor was run.
  std::shared_ptr<const Buffer> buffer() const;

  // --- element by element ---
  Tensor Neg() const;
  Tensor Exp() const;
  Tensor Exp2() const;
  Tensor Log() const;
  Tensor Log2() const;
  Tensor Sin() const;
  Tensor Cos() const;
  Tensor Sqrt() const;
  Tensor Rsqrt() const;
  Tensor Reciprocal() const;
  Tensor Square() const;
  Tensor Abs() const;
  Tensor Tanh() const;
  Tensor Sigmoid() const;
  Tensor Silu() const;
  // Gradient 0 at 0.
  Tensor Relu() const;
  // By tanh, as GPT-2's.
  Tensor Gelu() const;
  Tensor LogicalNot() const;
  Tensor Maximum(const Tensor& other) const;
  Tensor Minimum(const Tensor& other) const;
  Tensor Less(const Tensor& other) const;
  Tensor Equal(const Tensor& other) const;
  Tensor NotEqual(const Tensor& other) const;
  // Of integers: truncates.
  Tensor Idiv(const Tensor& other) const;
  Tensor Mod(const Tensor& other) const;
  static Tensor Where(const Tensor& condition, const Tensor& then, const Tensor& otherwise);
  Tensor Cast(DType to) const;
  Tensor Bitcast(DType to) const;  // as wide
  // The same values; no gradient goes through.
  Tensor Detach() const;
  // In memory of its own: run, it is a buffer that can be assigned to.
  Tensor Contiguous() const;

  // --- moving ---
  // One size may be -1, where the others are numbers.
  Tensor Reshape(const Shape& to) const;
  Tensor Expand(const Shape& to) const;
  Tensor Permute(const Axes& order) const;
  Tensor Transpose(int a = -2, int b = -1) const;
  Tensor Flip(const Axes& axes) const;
  // Before and behind, an axis a pair; zeros.
  Tensor Pad(const std::vector<std::pair<Size, Size>>& amounts) const;
  // [begin, end), an axis a pair.
  Tensor Shrink(const std::vector<std::pair<Size, Size>>& ranges) const;
  // [begin, end) of one axis.
  Tensor Slice(int axis, const Size& begin, const Size& end) const;
  Tensor Squeeze(int axis) const;
  Tensor Unsqueeze(int axis) const;
  Tensor Flatten(int first = 0) const;
  static Tensor Cat(const std::vector<Tensor>& parts, int axis);
  // The windows of `kernel` over the last axes, (..., places, kernel), padded by `fill`.
  Tensor Windows(const std::vector<int>& kernel, const WindowOptions& options = {},
                 double fill = 0) const;

  // --- reducing; no axes: all ---
  // Adds in SumDType; float16 and bfloat16 come back as they are.
  Tensor Sum(const Axes& axes = {}, bool keep = false) const;
  Tensor Mean(const Axes& axes = {}, bool keep = false) const;
  // Divided by the count.
  Tensor Var(const Axes& axes = {}, bool keep = false) const;
  Tensor Max(const Axes& axes = {}, bool keep = false) const;
  Tensor Min(const Axes& axes = {}, bool keep = false) const;
  Tensor Prod(const Axes& axes = {}, bool keep = false) const;
  // The first place of the maximum, int32.
  Tensor Argmax(int axis = -1) const;

  // --- networks ---
  // (..., m, k) x (..., k, n); leading axes broadcast.
  Tensor Matmul(const Tensor& other) const;
  // (n, channels, ..) by (out, channels / groups, ..).
  Tensor Conv2d(const Tensor& weight, const WindowOptions& options = {}) const;
  Tensor MaxPool2d(int kernel = 2, const WindowOptions& options = {.stride = 2}) const;
  Tensor AvgPool2d(int kernel = 2, const WindowOptions& options = {.stride = 2}) const;
  Tensor Softmax(int axis = -1) const;
  Tensor LogSoftmax(int axis = -1) const;
  // Over the last axis.
  Tensor Layernorm(double eps = 1e-5) const;
  // Integers to a last axis of `classes` bools; all false where one is outside of 0..classes.
  Tensor OneHot(int64_t classes) const;
  // Rows of this (rows, width) by integer ids; zeros for an id that there is no row of.
  Tensor Embedding(const Tensor& ids) const;
  // Of these logits (n, classes) to integer labels (n): the mean.
  Tensor CrossEntropy(const Tensor& labels) const;

  // --- writing ---
  // `value`, of this shape and dtype, is written into this: memory (FromBytes, FromBuffer, or what
  // was run), or a part of it by Reshape, Permute, Shrink and Flip. It happens once, in the first
  // run that the result has a part in; other expressions of that run read what was there before.
  Tensor Assign(const Tensor& value) const;

  // --- reading ---
  // Runs it, if it wasn't, and downloads it. InvalidArgument where T is another type of elements.
  template <typename T>
  absl::StatusOr<std::vector<T>> ToVector(Session& session) const {
    if (ok() && dtype() != DTypeOf<T>()) return OtherType(DTypeOf<T>());
    absl::StatusOr<std::string> bytes = ToBytes(session);
    if (!bytes.ok()) return bytes.status();
    if constexpr (std::is_same_v<T, bool>) {
      return std::vector<bool>(bytes->begin(), bytes->end());
    } else {
      std::vector<T> values(bytes->size() / sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), bytes->data(), bytes->size());
      return values;
    }
  }
  // Of a tensor of one element.
  template <typename T>
  absl::StatusOr<T> Item(Session& session) const {
    absl::StatusOr<std::vector<T>> values = ToVector<T>(session);
    if (!values.ok()) return values.status();
    if (values->size() != 1) return absl::InvalidArgumentError("the tensor isn't one element");
    return (*values)[0];
  }
  absl::StatusOr<std::string> ToBytes(Session& session) const;

  explicit Tensor(internal::NodePtr node) : node_(std::move(node)) {}
  const internal::NodePtr& node() const { return node_; }

 private:
  static internal::NodePtr Number(double value);
  static internal::NodePtr Number(float value) { return Number(static_cast<double>(value)); }
  static internal::NodePtr Number(int64_t value);
  static internal::NodePtr Number(bool value);
  template <typename T>
  static internal::NodePtr Number(T value) {
    return Number(static_cast<int64_t>(value));
  }
  absl::Status OtherType(DType wanted) const;

  internal::NodePtr node_;
};

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
// Integers divide as float32.
Tensor operator/(const Tensor& a, const Tensor& b);
inline Tensor operator-(const Tensor& a) { return a.Neg(); }

struct RunOptions {
  std::map<std::string, int64_t> variables;
  // Memory tensors (FromBytes, or what was run) with respect to which the gradients of the first
  // output, one element of a float, are wanted.
  std::vector<Tensor> gradients_of;
  v1::OptsPolicy opts = v1::OPTS_POLICY_NOW;
  v1::MatchPolicy match = v1::MATCH_POLICY_UNSPECIFIED;
  // The report lists each kernel.
  bool profile = false;
  // Outputs of together at most this size come with the answer: reading them costs no call.
  uint64_t inline_bytes = uint64_t{1} << 16;
  std::optional<absl::Duration> timeout;
};

struct RunReport {
  std::vector<Tensor> gradients;
  std::vector<v1::KernelRun> kernels;
  v1::RunStatistics statistics;
};

// Computes `outputs`, whose shapes are numbers, with an element at least; afterwards each has a
// buffer. The error of a failed tensor, a tensor of another session, or the server's.
absl::StatusOr<RunReport> Compute(Session& session, const std::vector<Tensor>& outputs,
                                  const RunOptions& options = {});
// The same on the session's thread, behind what was given to it before.
std::future<absl::StatusOr<RunReport>> ComputeAsync(Session& session, std::vector<Tensor> outputs,
                                                    RunOptions options = {});

// The graph under `outputs`, for ScheduleModel and files: BUFFER ids count up in the order in which
// they are met. Nothing is sent.
absl::StatusOr<v1::Graph> ToGraph(const std::vector<Tensor>& outputs);

}  // namespace beamd::thin

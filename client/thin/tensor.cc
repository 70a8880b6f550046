// Making tensors, looking at them, and the operations between their elements.
#include "client/thin/tensor.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/thin/node.h"

namespace beamd::thin {

using internal::Failed;
using internal::Made;
using internal::Met;
using internal::Node;
using internal::NodePtr;
using internal::Operation;

namespace internal {

Node::~Node() {
  // A source that only this node has is taken apart here, and not by its own end.
  std::vector<NodePtr> left = std::move(state.src);
  if (state.instead) left.push_back(std::move(state.instead));
  while (!left.empty()) {
    const NodePtr node = std::move(left.back());
    left.pop_back();
    if (node == nullptr || node.use_count() > 1) continue;
    for (NodePtr& src : node->state.src) left.push_back(std::move(src));
    node->state.src.clear();
    if (node->state.instead) left.push_back(std::move(node->state.instead));
  }
}

Tensor Failed(absl::string_view operation, absl::string_view why) {
  auto node = std::make_shared<Node>();
  node->status = absl::InvalidArgumentError(absl::StrCat(operation, ": ", why));
  return Tensor(NodePtr(std::move(node)));
}

Tensor Made(absl::string_view operation, std::shared_ptr<Node> node) {
  constexpr double kMostElements = (int64_t{1} << 40) - 1;
  constexpr size_t kMostAxes = 32;
  double elements = 1;
  for (const Size& size : node->shape) {
    if (size.min() < 0) {
      return Failed(operation, absl::StrCat("a size of ", ToString(size), " may be negative"));
    }
    elements *= std::max(static_cast<double>(size.max()), 1.0);
  }
  if (elements > kMostElements || node->shape.size() > kMostAxes) {
    return Failed(operation, absl::StrCat("the shape ", ToString(node->shape), " is too large"));
  }
  return Tensor(NodePtr(std::move(node)));
}

Tensor Operation(absl::string_view name, v1::Op op, DType dtype, Shape shape,
                 const std::vector<Tensor>& src) {
  auto node = std::make_shared<Node>();
  for (const Tensor& t : src) {
    if (!t.ok()) return t;
    node->state.src.push_back(t.node());
  }
  node->op = op;
  node->dtype = dtype;
  node->shape = std::move(shape);
  return Made(name, std::move(node));
}

namespace {

// The dtype that a number takes beside a tensor of `other`.
DType BesideOf(const Node& number, DType other) {
  if (IsFloat(other) || number.dtype == kBool) return other;
  if (IsFloat(number.dtype)) return kFloat32;
  return other == kBool ? kInt32 : other;
}

Tensor ConstantOf(const Node& number, DType dtype) {
  auto node = std::make_shared<Node>();
  node->op = v1::OP_CONST;
  node->dtype = dtype;
  node->float_value = number.float_value;
  node->int_value = number.int_value;
  return Tensor(NodePtr(std::move(node)));
}

}  // namespace

std::optional<Shape> Broadcast(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()), Size(1));
  for (size_t i = 0; i < shape.size(); ++i) {
    const Size x = i < a.size() ? a[a.size() - 1 - i] : Size(1);
    const Size y = i < b.size() ? b[b.size() - 1 - i] : Size(1);
    if (!(x == y) && !(x == Size(1)) && !(y == Size(1))) return std::nullopt;
    shape[shape.size() - 1 - i] = x == Size(1) ? y : x;
  }
  return shape;
}

std::pair<Tensor, Tensor> Met(absl::string_view operation, const Tensor& a, const Tensor& b) {
  if (!a.ok()) return {a, a};
  if (!b.ok()) return {b, b};
  const Node &x = *a.node(), &y = *b.node();
  DType dtype = Promote(x.dtype, y.dtype);
  if (x.weak && !y.weak) dtype = BesideOf(x, y.dtype);
  if (y.weak && !x.weak) dtype = BesideOf(y, x.dtype);
  const std::optional<Shape> shape = Broadcast(a.shape(), b.shape());
  if (!shape) {
    const Tensor failed =
        Failed(operation, absl::StrCat("the shapes ", ToString(a.shape()), " and ",
                                       ToString(b.shape()), " don't broadcast"));
    return {failed, failed};
  }
  return {a.Cast(dtype).Expand(*shape), b.Cast(dtype).Expand(*shape)};
}

absl::StatusOr<std::vector<int>> CheckedAxes(const Axes& axes, int ndim, bool none_is_all) {
  std::vector<int> checked;
  for (const int axis : axes) {
    const int from_begin = axis < 0 ? axis + ndim : axis;
    if (from_begin < 0 || from_begin >= ndim) {
      return absl::InvalidArgumentError(absl::StrCat("there is no axis ", axis, " of ", ndim));
    }
    checked.push_back(from_begin);
  }
  std::ranges::sort(checked);
  if (std::ranges::adjacent_find(checked) != checked.end()) {
    return absl::InvalidArgumentError("an axis stands there twice");
  }
  if (axes.empty() && none_is_all) {
    for (int i = 0; i < ndim; ++i) checked.push_back(i);
  }
  return checked;
}

Tensor TensorOf(const Size& size) {
  Tensor sum = size.constant();
  for (const auto& [variable, factor] : size.terms()) {
    const Tensor term = Tensor::Of(variable);
    sum = size.constant() == 0 && sum.node()->op == v1::OP_CONST ? term * factor
                                                                 : sum + term * factor;
  }
  return sum.Cast(kInt32);
}

}  // namespace internal

// ---- making ----

Tensor::Tensor() {
  static const NodePtr none = [] {
    auto node = std::make_shared<Node>();
    node->status = absl::FailedPreconditionError("no tensor");
    return node;
  }();
  node_ = none;
}

namespace {

std::shared_ptr<Node> NumberNode(DType dtype, double as_float, int64_t as_int) {
  auto node = std::make_shared<Node>();
  node->op = v1::OP_CONST;
  node->dtype = dtype;
  node->float_value = as_float;
  node->int_value = as_int;
  node->weak = true;
  return node;
}

// Saturates; NaN is 0.
int64_t ToInt(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  return value < -0x1p63 ? INT64_MIN : static_cast<int64_t>(value);
}

}  // namespace

NodePtr Tensor::Number(double value) { return NumberNode(kFloat32, value, ToInt(value)); }
NodePtr Tensor::Number(int64_t value) {
  const DType dtype = value == static_cast<int32_t>(value) ? kInt32 : kInt64;
  return NumberNode(dtype, static_cast<double>(value), value);
}
NodePtr Tensor::Number(bool value) { return NumberNode(kBool, value ? 1 : 0, value ? 1 : 0); }

Tensor Tensor::FromBytes(std::string content, DType dtype, const std::vector<int64_t>& shape) {
  auto node = std::make_shared<Node>();
  node->op = v1::OP_BUFFER;
  node->dtype = dtype;
  node->shape.assign(shape.begin(), shape.end());
  const int64_t elements = Elements(node->shape), size = SizeBytes(dtype);
  if (size == 0 || elements < 0 || static_cast<uint64_t>(elements) != content.size() / size ||
      content.size() % size != 0) {
    return Failed("from", absl::StrCat(content.size(), " bytes are no ", Name(dtype), " of shape ",
                                       ToString(node->shape)));
  }
  node->state.content = std::make_shared<const std::string>(std::move(content));
  return Made("from", std::move(node));
}

Tensor Tensor::FromBuffer(std::shared_ptr<Buffer> buffer) {
  if (buffer == nullptr) return Failed("from", "no buffer");
  auto node = std::make_shared<Node>();
  node->op = v1::OP_BUFFER;
  node->dtype = buffer->dtype();
  node->shape.assign(buffer->shape().begin(), buffer->shape().end());
  node->state.memory = std::make_shared<internal::Memory>(std::move(buffer));
  return Made("from", std::move(node));
}

Tensor Tensor::Full(const Shape& shape, double value, DType dtype) {
  if (SizeBytes(dtype) == 0) return Failed("full", "void is no dtype of elements");
  return internal::ConstantOf(*NumberNode(dtype, value, ToInt(value)), dtype).Expand(shape);
}

Tensor Tensor::Arange(int64_t count, double begin, double step, DType dtype) {
  if (count < 0) return Failed("arange", absl::StrCat(count, " numbers"));
  const bool whole = begin == std::trunc(begin) && step == std::trunc(step);
  if (!IsFloat(dtype) && !whole) {
    return Failed("arange", absl::StrCat(Name(dtype), " from ", begin, " by ", step));
  }
  if (count == 0) return Zeros({0}, dtype);
  // A running sum of ones: each place adds the ones that stand before it.
  const int window = static_cast<int>(std::min<int64_t>(count, INT32_MAX));
  const Tensor places = Ones({count}, kInt32).Pad({{count - 1, 0}}).Windows({window}).Sum({-1}) - 1;
  if (!IsFloat(dtype)) return (places * ToInt(step) + ToInt(begin)).Cast(dtype);
  return (places.Cast(dtype) * step + begin);
}

namespace {

// SplitMix64 (Steele, Lea, Flood 2014): one draw a counter.
uint64_t Draw(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}
// [0, 1).
double DrawUnit(uint64_t seed, uint64_t counter) {
  return static_cast<double>(Draw(seed, counter) >> 11) * 0x1p-53;
}

template <typename Value>
Tensor Drawn(absl::string_view operation, const std::vector<int64_t>& shape, Value value) {
  constexpr int64_t kMost = int64_t{1} << 32;
  const int64_t count = Elements({shape.begin(), shape.end()});
  if (count < 0 || count > kMost) return Failed(operation, "the shape is too large");
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(value(i));
  return Tensor::From(values, shape);
}

}  // namespace

Tensor Tensor::Uniform(const std::vector<int64_t>& shape, uint64_t seed, float low, float high) {
  return Drawn("uniform", shape, [&](int64_t i) { return low + (high - low) * DrawUnit(seed, i); });
}

Tensor Tensor::Normal(const std::vector<int64_t>& shape, uint64_t seed, float mean,
                      float deviation) {
  // Box and Muller (1958).
  return Drawn("normal", shape, [&](int64_t i) {
    const double radius = std::sqrt(-2 * std::log(1 - DrawUnit(seed, 2 * i)));
    return mean + deviation * radius * std::cos(2 * std::numbers::pi * DrawUnit(seed, 2 * i + 1));
  });
}

Tensor Tensor::Of(const Variable& variable) {
  if (variable.name.empty() || variable.min > variable.max || variable.min < INT32_MIN ||
      variable.max > INT32_MAX) {
    return Failed("variable",
                  absl::StrCat("\"", variable.name, "\" of ", variable.min, "..", variable.max,
                               ": a name and bounds of int32 are wanted"));
  }
  auto node = std::make_shared<Node>();
  node->op = v1::OP_DEFINE_VAR;
  node->dtype = kInt32;
  node->variable = variable;
  return Tensor(NodePtr(std::move(node)));
}

// ---- looking ----

const absl::Status& Tensor::status() const { return node_->status; }
DType Tensor::dtype() const { return node_->dtype; }
const Shape& Tensor::shape() const { return node_->shape; }

std::shared_ptr<const Buffer> Tensor::buffer() const {
  NodePtr node = node_;
  for (;;) {
    const Node::State state = node->Look();
    if (state.memory) return state.memory->buffer;
    if (!state.instead) return nullptr;
    node = state.instead;
  }
}

absl::Status Tensor::OtherType(DType wanted) const {
  return absl::InvalidArgumentError(absl::StrCat("a tensor of ", Name(dtype()), " is read as ",
                                                 Name(wanted), "; Cast it before"));
}

// ---- element by element ----

namespace {

// Of floats; others become float32.
Tensor Unary(absl::string_view name, v1::Op op, const Tensor& x) {
  if (!x.ok()) return x;
  const Tensor f = x.Cast(FloatOf(x.dtype()));
  return Operation(name, op, f.dtype(), f.shape(), {f});
}

Tensor Binary(absl::string_view name, v1::Op op, const Tensor& a, const Tensor& b,
              std::optional<DType> result = std::nullopt) {
  const auto [x, y] = Met(name, a, b);
  return x.ok() ? Operation(name, op, result.value_or(x.dtype()), x.shape(), {x, y}) : x;
}

// bool as int32, for what bool has none of.
Tensor AtLeastInt(const Tensor& x) { return x.ok() && x.dtype() == kBool ? x.Cast(kInt32) : x; }

Tensor OfIntegers(absl::string_view name, v1::Op op, const Tensor& a, const Tensor& b) {
  const auto [x, y] = Met(name, AtLeastInt(a), AtLeastInt(b));
  if (!x.ok()) return x;
  if (!IsInt(x.dtype())) return Failed(name, absl::StrCat("takes no ", Name(x.dtype())));
  return Operation(name, op, x.dtype(), x.shape(), {x, y});
}

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) { return Binary("add", v1::OP_ADD, a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return Binary("mul", v1::OP_MUL, a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) {
  return Binary("sub", v1::OP_SUB, AtLeastInt(a), AtLeastInt(b));
}
Tensor operator/(const Tensor& a, const Tensor& b) {
  const auto [x, y] = Met("div", a, b);
  if (!x.ok()) return x;
  const DType dtype = FloatOf(x.dtype());
  return Operation("div", v1::OP_FDIV, dtype, x.shape(), {x.Cast(dtype), y.Cast(dtype)});
}

Tensor Tensor::Neg() const {
  const Tensor x = AtLeastInt(*this);
  return x.ok() ? Operation("neg", v1::OP_NEG, x.dtype(), x.shape(), {x}) : x;
}
Tensor Tensor::Exp2() const { return Unary("exp2", v1::OP_EXP2, *this); }
Tensor Tensor::Log2() const { return Unary("log2", v1::OP_LOG2, *this); }
Tensor Tensor::Exp() const { return (*this * (1 / std::numbers::ln2)).Exp2(); }
Tensor Tensor::Log() const { return Log2() * std::numbers::ln2; }
Tensor Tensor::Sin() const { return Unary("sin", v1::OP_SIN, *this); }
Tensor Tensor::Cos() const { return (std::numbers::pi / 2 - *this).Sin(); }
Tensor Tensor::Sqrt() const { return Unary("sqrt", v1::OP_SQRT, *this); }
Tensor Tensor::Reciprocal() const { return Unary("reciprocal", v1::OP_RECIP, *this); }
Tensor Tensor::Rsqrt() const { return Sqrt().Reciprocal(); }
Tensor Tensor::Square() const { return *this * *this; }
Tensor Tensor::Abs() const { return Maximum(Neg()); }
Tensor Tensor::Sigmoid() const { return (1 + Neg().Exp()).Reciprocal(); }
Tensor Tensor::Tanh() const { return (*this * 2.0).Sigmoid() * 2.0 - 1.0; }
Tensor Tensor::Silu() const { return *this * Sigmoid(); }
Tensor Tensor::Relu() const { return Maximum(0); }
Tensor Tensor::Gelu() const {
  const Tensor inner = (*this + Square() * *this * 0.044715) * std::sqrt(2 / std::numbers::pi);
  return *this * 0.5 * (inner.Tanh() + 1.0);
}
Tensor Tensor::LogicalNot() const { return Cast(kBool).NotEqual(true); }
Tensor Tensor::Maximum(const Tensor& other) const {
  return Binary("max", v1::OP_MAX, *this, other);
}
Tensor Tensor::Minimum(const Tensor& other) const {
  const auto [x, y] = Met("min", *this, other);
  if (!x.ok()) return x;
  return IsFloat(x.dtype()) ? x.Neg().Maximum(y.Neg()).Neg() : Where(x.Less(y), x, y);
}
Tensor Tensor::Less(const Tensor& other) const {
  return Binary("less", v1::OP_CMPLT, *this, other, kBool);
}
Tensor Tensor::NotEqual(const Tensor& other) const {
  return Binary("not_equal", v1::OP_CMPNE, *this, other, kBool);
}
Tensor Tensor::Equal(const Tensor& other) const { return NotEqual(other).NotEqual(true); }
Tensor Tensor::Idiv(const Tensor& other) const {
  return OfIntegers("idiv", v1::OP_IDIV, *this, other);
}
Tensor Tensor::Mod(const Tensor& other) const {
  return OfIntegers("mod", v1::OP_MOD, *this, other);
}

Tensor Tensor::Where(const Tensor& condition, const Tensor& then, const Tensor& otherwise) {
  if (!condition.ok()) return condition;
  const auto [x, y] = Met("where", then, otherwise);
  if (!x.ok()) return x;
  const std::optional<Shape> shape = internal::Broadcast(condition.shape(), x.shape());
  if (!shape) {
    return Failed("where", absl::StrCat("a condition of shape ", ToString(condition.shape()),
                                        " for ", ToString(x.shape())));
  }
  return Operation("where", v1::OP_WHERE, x.dtype(), *shape,
                   {condition.Cast(kBool).Expand(*shape), x.Expand(*shape), y.Expand(*shape)});
}

Tensor Tensor::Cast(DType to) const {
  if (!ok() || (dtype() == to && !node_->weak)) return *this;
  if (SizeBytes(to) == 0) return Failed("cast", "void is no dtype of elements");
  if (node_->weak) return internal::ConstantOf(*node_, to);
  return Operation("cast", v1::OP_CAST, to, shape(), {*this});
}

Tensor Tensor::Bitcast(DType to) const {
  if (!ok() || dtype() == to) return *this;
  if (SizeBytes(to) != SizeBytes(dtype()) || to == kBool || dtype() == kBool) {
    return Failed("bitcast", absl::StrCat(Name(dtype()), " to ", Name(to)));
  }
  return Operation("bitcast", v1::OP_BITCAST, to, shape(), {*this});
}

Tensor Tensor::Detach() const {
  if (!ok() || !IsFloat(dtype())) return *this;
  const int64_t size = SizeBytes(dtype());
  return Bitcast(size == 2 ? kInt16 : size == 4 ? kInt32 : kInt64).Bitcast(dtype());
}

Tensor Tensor::Contiguous() const {
  return ok() ? Operation("contiguous", v1::OP_CONTIGUOUS, dtype(), shape(), {*this}) : *this;
}

Tensor Tensor::Assign(const Tensor& value) const {
  if (!ok()) return *this;
  if (!value.ok()) return value;
  NodePtr target = node_;
  for (;;) {
    const Node::State state = target->Look();
    if (state.instead) {
      target = state.instead;
    } else if (target->op == v1::OP_BUFFER || (state.memory && AllNumbers(target->shape))) {
      break;
    } else if (target->op == v1::OP_RESHAPE || target->op == v1::OP_PERMUTE ||
               target->op == v1::OP_SHRINK || target->op == v1::OP_FLIP) {
      target = state.src[0];
    } else {
      return Failed("assign", "the target is no memory and no part of one; run it before");
    }
  }
  const Tensor fit = value.Cast(dtype()).Expand(shape());
  return fit.ok() ? Operation("assign", v1::OP_ASSIGN, dtype(), shape(), {*this, fit}) : fit;
}

}  // namespace beamd::thin

#include "tests/testing/lazy_evaluator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/status.h"
#include "engine/uop/bounded_real.h"
#include "engine/uop/int_alu.h"

namespace beamd::testing {
namespace {

std::vector<int64_t> PointAt(int64_t flat, std::span<const int64_t> shape) {
  std::vector<int64_t> point(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    point[i] = flat % shape[i];
    flat /= shape[i];
  }
  return point;
}

EvalValue Real(BoundedReal r, Scalar s) {
  return {.scalar = s, .real = r.v, .error = r.e, .undecided = !r.known()};
}
EvalValue Integer(int64_t v, Scalar s, bool undecided = false) {
  return {.scalar = s, .integer = v, .undecided = undecided};
}
BoundedReal Bounded(const EvalValue& v) {
  return {v.real, v.undecided ? BoundedReal::kUnknown : v.error};
}
EvalValue Zero(Scalar s) { return IsFloat(s) ? Real({0, 0}, s) : Integer(0, s); }

EvalValue Unary(Op op, const EvalValue& a, Scalar s) {
  const BoundedReal x = Bounded(a);
  switch (op) {
    case Op::kExp2:
      return Real(Exp2(x, s), s);
    case Op::kLog2:
      return Real(Log2(x, s), s);
    case Op::kSin:
      return Real(Sine(x, s), s);
    case Op::kSqrt:
      return Real(SquareRoot(x, s), s);
    case Op::kRecip:
      return Real(Reciprocal(x, s), s);
    default:
      BEAMD_CHECK(op == Op::kNeg, "a unary op of lazy buffers");
      return IsFloat(s) ? Real({-x.v, x.e}, s)
                        : Integer(IntAlu(op, s, a.integer, 0), s, a.undecided);
  }
}

EvalValue Binary(Op op, const EvalValue& a, const EvalValue& b, Scalar s) {
  if (!IsFloat(a.scalar)) {
    return Integer(IntAlu(op, a.scalar, a.integer, b.integer), s, a.undecided || b.undecided);
  }
  const BoundedReal x = Bounded(a);
  const BoundedReal y = Bounded(b);
  switch (op) {
    case Op::kAdd:
      return Real(Add(x, y, s), s);
    case Op::kMul:
      return Real(Multiply(x, y, s), s);
    case Op::kMax:
      // The table gives the larger error; where it is certain which operand is taken, its own will
      // do, and a rectified 0 is surely 0.
      if (!ComparisonIsOpen(x, y) && x.v != y.v && !std::isnan(x.v) && !std::isnan(y.v)) {
        return x.v > y.v ? a : b;
      }
      return Real(Maximum(x, y), s);
    case Op::kCmpLt:
      return Integer(x.v < y.v ? 1 : 0, s, ComparisonIsOpen(x, y));
    default:
      BEAMD_CHECK(op == Op::kCmpNe, "a binary op of lazy buffers");
      return Integer(x.v != y.v ? 1 : 0, s, ComparisonIsOpen(x, y));
  }
}

EvalValue Cast(const EvalValue& a, Scalar to) {
  if (IsFloat(a.scalar)) {
    if (IsFloat(to)) return Real(Convert(Bounded(a), to), to);
    return Integer(Truncate(a.real, to), to, TruncationIsOpen(Bounded(a), to));
  }
  if (!IsFloat(to)) return Integer(WrapInt(a.integer, to), to, a.undecided);
  EvalValue v = Real(Convert(a.integer, a.scalar, to), to);
  v.undecided |= a.undecided;
  return v;
}

EvalValue Bitcast(const EvalValue& a, Scalar to) {
  std::byte bytes[8] = {};
  // An error would have to be carried through the bits.
  const bool undecided = a.undecided || a.error > 0;
  if (IsFloat(a.scalar)) {
    StoreFloat(a.real, a.scalar, bytes);
  } else {
    StoreInt(a.integer, a.scalar, bytes);
  }
  if (!IsFloat(to)) return Integer(LoadInt(bytes, to), to, undecided);
  return Real({LoadFloat(bytes, to), undecided ? BoundedReal::kUnknown : 0}, to);
}

}  // namespace

LazyEvaluator::Edge LazyEvaluator::EdgeTo(const LazyBuffer& b) {
  const LazyBuffer base = b.base();
  Edge edge;
  edge.node = nodes_.at(base.id()).get();
  edge.whole = b.st().contiguous() && b.size() == base.size();
  UOpGraph graph;
  absl::StatusOr<ViewIndex> view = ViewIndex::Create(b.st().ToUOp(graph), variables_);
  BEAMD_CHECK(view.ok(), view.status().ToString());
  edge.view = *std::move(view);
  return edge;
}

void LazyEvaluator::Add(const LazyBuffer& root) {
  std::vector<LazyBuffer> stack{root.base()};
  while (!stack.empty()) {
    const LazyBuffer base = stack.back();
    if (nodes_.contains(base.id())) {
      stack.pop_back();
      continue;
    }
    bool ready = true;
    for (const LazyBuffer& s : base.srcs()) {
      if (nodes_.contains(s.base().id())) continue;
      stack.push_back(s.base());
      ready = false;
    }
    if (!ready) continue;
    auto node = std::make_unique<Node>();
    node->op = base.op();
    node->dtype = base.dtype();
    if (base.is_realized()) {
      node->data = contents_(*base.buffer());
    } else if (base.op() == Op::kConst) {
      if (base.is_const()) {
        node->constant = base.const_value();
      } else {
        const absl::StatusOr<int64_t> value = SizeValue(std::get<UOp>(base.arg()), variables_);
        BEAMD_CHECK(value.ok(), value.status().ToString());
        node->constant = ConstValue(*value).As(base.dtype());
      }
    }
    if (const auto* reduce = std::get_if<ReduceArg>(&base.arg())) node->reduce = *reduce;
    for (const LazyBuffer& s : base.srcs()) node->sources.push_back(EdgeTo(s));
    nodes_[base.id()] = std::move(node);
    stack.pop_back();
  }
  roots_.insert_or_assign(root.id(), EdgeTo(root));
}

EvalValue LazyEvaluator::At(const LazyBuffer& root, int64_t at) {
  Edge& edge = roots_.at(root.id());
  return Value(edge, PointAt(at, edge.view.shape()), at);
}

EvalValue LazyEvaluator::Value(Edge& edge, std::span<const int64_t> point, int64_t flat) {
  if (edge.whole) return Compute(*edge.node, flat);
  const std::optional<int64_t> at = edge.view.Index(point);
  return at ? Compute(*edge.node, *at) : Zero(edge.node->dtype);
}

EvalValue LazyEvaluator::Compute(Node& node, int64_t at) {
  if (!node.data.empty()) {
    const std::byte* data = node.data.data() + at * SizeBytes(node.dtype);
    return IsFloat(node.dtype) ? Real({LoadFloat(data, node.dtype), 0}, node.dtype)
                               : Integer(LoadInt(data, node.dtype), node.dtype);
  }
  if (node.op == Op::kConst) {
    return IsFloat(node.dtype) ? Real({node.constant.as_float(), 0}, node.dtype)
                               : Integer(node.constant.as_int(), node.dtype);
  }
  if (node.op == Op::kReduceAxis) {
    if (const auto it = node.known.find(at); it != node.known.end()) return it->second;
    const EvalValue v = Reduce(node, at);
    node.known[at] = v;
    return v;
  }
  const std::vector<int64_t> point = PointAt(at, node.sources[0].view.shape());
  const auto source = [&](size_t i) { return Value(node.sources[i], point, at); };
  switch (node.op) {
    case Op::kContiguous:
    case Op::kBufferView:
    case Op::kCopy:
      return source(0);
    case Op::kAssign:
      return source(1);
    case Op::kCast:
      return Cast(source(0), node.dtype);
    case Op::kBitcast:
      return Bitcast(source(0), node.dtype);
    case Op::kWhere: {
      const EvalValue condition = source(0);
      EvalValue v = source(condition.integer != 0 ? 1 : 2);
      v.undecided |= condition.undecided;
      return v;
    }
    default:
      return node.sources.size() == 1 ? Unary(node.op, source(0), node.dtype)
                                      : Binary(node.op, source(0), source(1), node.dtype);
  }
}

EvalValue LazyEvaluator::Reduce(Node& node, int64_t at) {
  Edge& source = node.sources[0];
  std::vector<int64_t> shape = source.view.shape();
  std::vector<int64_t> kept = shape;
  int64_t terms = 1;
  for (int32_t axis : node.reduce.axes) {
    terms *= shape[axis];
    kept[axis] = 1;
  }
  std::vector<int64_t> point = PointAt(at, kept);
  const Scalar s = node.dtype;
  const bool sum = node.reduce.op == Op::kAdd && IsFloat(s);
  EvalValue result;
  double value = 0;
  double squares = 0;
  double errors = 0;
  bool undecided = false;
  for (int64_t i = 0; i < terms; ++i) {
    int64_t rest = i;
    for (size_t k = node.reduce.axes.size(); k-- > 0;) {
      const int32_t axis = node.reduce.axes[k];
      point[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    int64_t flat = 0;
    for (size_t k = 0; k < shape.size(); ++k) flat = flat * shape[k] + point[k];
    const EvalValue v = Value(source, point, flat);
    if (sum) {
      value += v.real;
      squares += v.real * v.real;
      errors += v.error;
      undecided |= v.undecided;
    } else {
      result = i == 0 ? v : Binary(node.reduce.op, result, v, s);
    }
  }
  if (!sum) return result;
  const double n = static_cast<double>(terms);
  const double error =
      Unit(s) * (4 + 2 * std::sqrt(n)) * (std::abs(value) + 3 * std::sqrt(squares)) +
      errors * std::min(1.0, 3 / std::sqrt(n));
  return Real(
      {RoundToFloat(value, s), undecided || !std::isfinite(error) ? BoundedReal::kUnknown : error},
      s);
}

}  // namespace beamd::testing

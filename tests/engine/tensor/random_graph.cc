#include "tests/engine/tensor/random_graph.h"

#include <algorithm>
#include <utility>

namespace beamd::testing {
namespace {

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t s : shape) size *= s;
  return size;
}

}  // namespace

RandomGraph::RandomGraph(uint32_t seed, UOpGraph& graph, bool all_ops)
    : random_(seed), graph_(graph), all_ops_(all_ops) {
  for (const Scalar scalar : {Scalar::kFloat32, Scalar::kInt32, Scalar::kBool}) {
    for (int i = 0; i < 2; ++i) AddMemory(scalar);
  }
  for (int64_t left = Draw(5, 40); left > 0; --left) Add();
  if (Draw(0, 3) == 0) Assign();
}

UOp RandomGraph::Root() {
  std::vector<UOp> outputs = {values_.back().node};
  for (int64_t left = Draw(0, 2); left > 0; --left) outputs.push_back(Pick().node);
  return graph_.Make(Op::kSink, DType(), outputs);
}

int64_t RandomGraph::Draw(int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random_);
}

const RandomGraph::Value& RandomGraph::Pick() {
  return values_[Draw(0, static_cast<int64_t>(values_.size()) - 1)];
}

Arg RandomGraph::Ints(const std::vector<int64_t>& values) {
  IntsArg ints;
  for (const int64_t v : values) ints.values.push_back({v, -1});
  return graph_.Intern(std::move(ints));
}

void RandomGraph::Push(UOp node, std::vector<int64_t> shape) {
  values_.push_back({node, std::move(shape)});
}

void RandomGraph::AddMemory(Scalar scalar) {
  BufferArg buffer{.id = values_.size() * 3 + 1};
  std::vector<int64_t> shape;
  for (int64_t rank = Draw(0, 3); rank > 0; --rank) {
    shape.push_back(Draw(0, 50) == 0 ? 0 : Draw(1, 4));
    buffer.shape.push_back({shape.back(), -1});
  }
  const Op op = Draw(0, 5) == 0 ? Op::kEmpty : Op::kBuffer;
  Push(graph_.Make(op, scalar, {}, graph_.Intern(std::move(buffer))), std::move(shape));
}

UOp RandomGraph::Other(const Value& x, Scalar scalar) {
  for (int i = 0; i < 8; ++i) {
    const Value& other = Pick();
    if (other.shape == x.shape && other.node.scalar() == scalar) return other.node;
  }
  const int64_t value = Draw(-2, 3);
  UOp constant = IsFloat(scalar) ? graph_.ConstFloat(scalar, static_cast<double>(value) / 2)
                                 : graph_.Const(scalar, value);
  const std::vector<int64_t> ones(x.shape.size(), 1);
  constant = graph_.Make(Op::kReshape, scalar, {constant}, Ints(ones));
  return graph_.Make(Op::kExpand, scalar, {constant}, Ints(x.shape));
}

void RandomGraph::Add() {
  const Value x = Pick();
  switch (Draw(0, 12)) {
    case 0:
    case 1:
    case 2:
      return Alu(x);
    case 3: {
      const Scalar to = std::vector{Scalar::kFloat32, Scalar::kInt32, Scalar::kBool}[Draw(0, 2)];
      return Push(graph_.Make(Op::kCast, to, {x.node}), x.shape);
    }
    case 4:
      return Push(graph_.Make(Op::kContiguous, x.node.dtype(), {x.node}), x.shape);
    case 5:
      return Reduce(x);
    default:
      return Move(x);
  }
}

void RandomGraph::Alu(const Value& x) {
  const Scalar s = x.node.scalar();
  std::vector<Op> ops = {Op::kAdd, Op::kMul, Op::kMax, Op::kCmpLt, Op::kCmpNe, Op::kWhere};
  if (IsFloat(s)) ops.insert(ops.end(), {Op::kRecip, Op::kSqrt, Op::kNeg, Op::kSub, Op::kFdiv});
  if (IsFloat(s) && all_ops_) {
    ops.insert(ops.end(), {Op::kExp2, Op::kLog2, Op::kSin, Op::kMulAcc});
  }
  if (IsInt(s)) ops.insert(ops.end(), {Op::kIdiv, Op::kMod, Op::kShl, Op::kShr, Op::kNeg});
  if (!IsFloat(s)) ops.insert(ops.end(), {Op::kXor, Op::kAnd, Op::kOr});
  const Op op = ops[Draw(0, static_cast<int64_t>(ops.size()) - 1)];
  const DType out = kComparison.Has(op) ? DType(Scalar::kBool) : x.node.dtype();
  std::vector<UOp> src = {x.node};
  if (op == Op::kWhere) {
    src = {Other(x, Scalar::kBool), x.node, Other(x, s)};
  } else if ((op == Op::kShl || op == Op::kShr) && Draw(0, 1) == 0) {
    src.push_back(graph_.Make(Op::kCast, Scalar::kUint32, {Other(x, s)}));
  } else if (!kUnary.Has(op)) {
    src.push_back(Other(x, s));
    if (op == Op::kMulAcc) src.push_back(Other(x, s));
  }
  Push(graph_.Make(op, out, src), x.shape);
}

void RandomGraph::Reduce(const Value& x) {
  ReduceArg reduce{std::vector{Op::kAdd, Op::kMax, Op::kMul}[Draw(0, 2)], {}};
  std::vector<int64_t> shape = x.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (Draw(0, 1) == 0) continue;
    reduce.axes.push_back(static_cast<int32_t>(i));
    shape[i] = 1;
  }
  if (reduce.axes.empty()) return;
  const Arg arg = graph_.Intern(std::move(reduce));
  Push(graph_.Make(Op::kReduceAxis, x.node.dtype(), {x.node}, arg), std::move(shape));
}

void RandomGraph::Move(const Value& x) {
  const size_t rank = x.shape.size();
  std::vector<int64_t> ints, shape = x.shape;
  Op op = Op::kReshape;
  switch (Draw(0, 5)) {
    case 0:
      op = Op::kPermute;
      for (size_t i = 0; i < rank; ++i) ints.push_back(static_cast<int64_t>(i));
      std::ranges::shuffle(ints, random_);
      for (size_t i = 0; i < rank; ++i) shape[i] = x.shape[ints[i]];
      break;
    case 1:
      op = Op::kFlip;
      for (size_t i = 0; i < rank; ++i) {
        if (Draw(0, 1) == 0) ints.push_back(static_cast<int64_t>(i));
      }
      break;
    case 2:
      op = Op::kPad;
      for (int64_t& size : shape) {
        ints.push_back(Draw(0, 2));
        ints.push_back(Draw(0, 1));
        size += ints.back() + ints[ints.size() - 2];
      }
      break;
    case 3:
      op = Op::kShrink;
      for (int64_t& size : shape) {
        ints.push_back(Draw(0, size));
        ints.push_back(Draw(ints.back(), size));
        size = ints.back() - ints[ints.size() - 2];
      }
      // Not often: nothing is left of what is cut often.
      if (Product(shape) == 0 && Draw(0, 9) != 0) return;
      break;
    case 4:
      op = Op::kExpand;
      for (int64_t& size : shape) size = size == 1 ? Draw(1, 4) : size;
      ints = shape;
      break;
    default: {
      // Neighbours merged, ones put in.
      shape.clear();
      for (const int64_t size : x.shape) {
        if (!shape.empty() && Draw(0, 1) == 0) {
          shape.back() *= size;
        } else {
          shape.push_back(size);
        }
        if (shape.size() < 4 && Draw(0, 2) == 0) shape.push_back(1);
      }
      if (shape.empty()) shape.push_back(1);
      ints = shape;
    }
  }
  if (Product(shape) > 300) return;
  Push(graph_.Make(op, x.node.dtype(), {x.node}, Ints(ints)), std::move(shape));
}

void RandomGraph::Assign() {
  const Value value = values_.back();
  const Value& target = values_[0];
  if (value.node.scalar() != Scalar::kFloat32 || Product(value.shape) == 0 ||
      Product(value.shape) > Product(target.shape)) {
    return;
  }
  UOp to =
      graph_.Make(Op::kReshape, target.node.dtype(), {target.node}, Ints({Product(target.shape)}));
  const int64_t first = Draw(0, Product(target.shape) - Product(value.shape));
  to = graph_.Make(Op::kShrink, to.dtype(), {to}, Ints({first, first + Product(value.shape)}));
  to = graph_.Make(Op::kReshape, to.dtype(), {to}, Ints(value.shape));
  Push(graph_.Make(Op::kAssign, to.dtype(), {to, value.node}), value.shape);
}

// Small numbers, other ones for each buffer.
std::vector<double> Content(Scalar scalar, uint64_t seed, int64_t count) {
  std::vector<double> content;
  for (int64_t i = 0; i < count; ++i) {
    const auto v = static_cast<double>((static_cast<uint64_t>(i) * 7 + seed * 5) % 9) - 4;
    content.push_back(scalar == Scalar::kBool ? (v > 0 ? 1 : 0) : IsFloat(scalar) ? v / 2 : v);
  }
  return content;
}

}  // namespace beamd::testing

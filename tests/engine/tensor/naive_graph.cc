#include "tests/engine/tensor/naive_graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/status.h"
#include "engine/uop/int_alu.h"

namespace beamd::testing {
namespace {

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t s : shape) size *= s;
  return size;
}

// Calls fn(coordinates) for every point, row-major.
template <typename Fn>
void ForEachPoint(const std::vector<int64_t>& shape, Fn fn) {
  std::vector<int64_t> at(shape.size());
  for (int64_t left = Product(shape); left > 0; --left) {
    fn(at);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++at[i] < shape[i]) break;
      at[i] = 0;
    }
  }
}

int64_t Place(const std::vector<int64_t>& at, const std::vector<int64_t>& shape) {
  int64_t place = 0;
  for (size_t i = 0; i < shape.size(); ++i) place = place * shape[i] + at[i];
  return place;
}

std::vector<int64_t> Ints(UOp u) {
  std::vector<int64_t> values;
  for (const IntOrSrc& v : u.data<IntsArg>().values) {
    BEAMD_CHECK(v.src < 0, "numbers only");
    values.push_back(v.value);
  }
  return values;
}

double FloatAlu(Op op, double a, double b, double c) {
  switch (op) {
    case Op::kExp2:
      return std::exp2(a);
    case Op::kLog2:
      return std::log2(a);
    case Op::kSin:
      return std::sin(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRecip:
      return 1 / a;
    case Op::kNeg:
      return -a;
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kFdiv:
      return a / b;
    case Op::kMax:
      return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case Op::kCmpLt:
      return a < b ? 1 : 0;
    case Op::kCmpNe:
      return a != b ? 1 : 0;
    case Op::kMulAcc:
      return a * b + c;
    default:
      BEAMD_CHECK(false, Name(op));
  }
}

double Alu(UOp u, double a, double b, double c) {
  const Scalar s = u.src(0).scalar();
  if (u.is(Op::kWhere)) return a != 0 ? b : c;
  if (IsFloat(s)) return FloatAlu(u.op(), a, b, c);
  const auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  return static_cast<double>(IntAlu(u.op(), s, x, y));
}

double Converted(double v, Scalar from, Scalar to) {
  if (to == Scalar::kBool) return v != 0 ? 1 : 0;
  if (IsFloat(to)) return v;
  if (!IsFloat(from)) return static_cast<double>(WrapInt(static_cast<int64_t>(v), to));
  if (std::isnan(v)) return 0;
  return std::trunc(
      std::clamp(v, static_cast<double>(MinInt(to)), static_cast<double>(MaxInt(to))));
}

class Naive {
 public:
  Naive(UOp root, const std::function<std::vector<double>(UOp, int64_t)>& memory)
      : memory_(memory), values_(root.graph().size()) {
    for (const UOp u : Toposort(root)) {
      if (!u.is(Op::kSink)) values_[u.id()] = Value(u);
    }
  }

  const NaiveValue& of(UOp u) const { return values_[u.id()]; }

 private:
  NaiveValue Value(UOp u) const {
    if (u.is(kAlu)) {
      NaiveValue out{of(u.src(0)).shape, {}};
      for (size_t i = 0; i < of(u.src(0)).elements.size(); ++i) {
        const auto src = [&](int s) { return s < u.src_count() ? of(u.src(s)).elements[i] : 0; };
        out.elements.push_back(Alu(u, src(0), src(1), src(2)));
      }
      return out;
    }
    switch (u.op()) {
      case Op::kBuffer:
      case Op::kEmpty: {
        NaiveValue out;
        for (const IntOrSrc& v : u.data<BufferArg>().shape) out.shape.push_back(v.value);
        out.elements = memory_(u, Product(out.shape));
        return out;
      }
      case Op::kConst:
        return {{}, {IsFloat(u.scalar()) ? u.float_value() : static_cast<double>(u.int_value())}};
      case Op::kReduceAxis:
        return Reduced(u);
      case Op::kCast: {
        NaiveValue out = of(u.src(0));
        for (double& v : out.elements) v = Converted(v, u.src(0).scalar(), u.scalar());
        return out;
      }
      case Op::kContiguous:
      case Op::kCopy:
        return of(u.src(0));
      case Op::kAssign:
        return Assigned(u);
      default:
        return Moved(u);
    }
  }

  NaiveValue Reduced(UOp u) const {
    const NaiveValue& in = of(u.src(0));
    const ReduceArg& reduce = u.data<ReduceArg>();
    NaiveValue out{in.shape, {}};
    for (const int32_t axis : reduce.axes) out.shape[axis] = 1;
    const bool is_float = IsFloat(u.scalar());
    const double least = is_float ? -INFINITY : static_cast<double>(MinInt(u.scalar()));
    const double identity = reduce.op == Op::kAdd ? 0 : reduce.op == Op::kMul ? 1 : least;
    out.elements.assign(Product(out.shape), identity);
    size_t i = 0;
    ForEachPoint(in.shape, [&](std::vector<int64_t> at) {
      for (const int32_t axis : reduce.axes) at[axis] = 0;
      double& sum = out.elements[Place(at, out.shape)];
      const double v = in.elements[i++];
      sum = is_float ? FloatAlu(reduce.op, sum, v, 0)
                     : static_cast<double>(IntAlu(reduce.op, u.scalar(), static_cast<int64_t>(sum),
                                                  static_cast<int64_t>(v)));
    });
    return out;
  }

  // Behind the write of a view the target holds what it held elsewhere.
  NaiveValue Assigned(UOp u) const {
    if (!u.has_data<ViewsArg>()) return of(u.src(1));
    NaiveValue out = of(u.src(0));
    const ViewArg& view = u.data<ViewsArg>().views[0];
    size_t i = 0;
    ForEachPoint(of(u.src(1)).shape, [&](const std::vector<int64_t>& at) {
      int64_t place = view.offset.value;
      for (size_t axis = 0; axis < at.size(); ++axis) place += at[axis] * view.strides[axis].value;
      out.elements[place] = of(u.src(1)).elements[i++];
    });
    return out;
  }

  NaiveValue Moved(UOp u) const {
    const NaiveValue& in = of(u.src(0));
    const std::vector<int64_t> ints = Ints(u);
    NaiveValue out{in.shape, {}};
    const size_t rank = in.shape.size();
    for (size_t i = 0; i < rank; ++i) {
      if (u.is(Op::kPermute)) out.shape[i] = in.shape[ints[i]];
      if (u.is(Op::kPad)) out.shape[i] += ints[2 * i] + ints[2 * i + 1];
      if (u.is(Op::kShrink)) out.shape[i] = ints[2 * i + 1] - ints[2 * i];
    }
    if (u.is(Op::kReshape)) return {ints, in.elements};
    if (u.is(Op::kExpand)) out.shape = ints;
    ForEachPoint(out.shape, [&](const std::vector<int64_t>& at) {
      std::vector<int64_t> from = at;
      bool masked = false;
      for (size_t i = 0; i < rank; ++i) {
        if (u.is(Op::kPermute)) from[ints[i]] = at[i];
        if (u.is(Op::kExpand)) from[i] = in.shape[i] == 1 ? 0 : at[i];
        if (u.is(Op::kShrink)) from[i] = at[i] + ints[2 * i];
        if (!u.is(Op::kPad)) continue;
        from[i] = at[i] - ints[2 * i];
        masked = masked || from[i] < 0 || from[i] >= in.shape[i];
      }
      if (u.is(Op::kFlip)) {
        for (const int64_t axis : ints) from[axis] = in.shape[axis] - 1 - at[axis];
      }
      out.elements.push_back(masked ? 0 : in.elements[Place(from, in.shape)]);
    });
    return out;
  }

  const std::function<std::vector<double>(UOp, int64_t)>& memory_;
  std::vector<NaiveValue> values_;  // by id
};

}  // namespace

std::vector<NaiveValue> NaiveOutputs(
    UOp root, const std::function<std::vector<double>(UOp, int64_t)>& memory) {
  const Naive naive(root, memory);
  std::vector<NaiveValue> outputs;
  for (const UOp u : root.is(Op::kSink) ? root.src() : std::span<const UOp>(&root, 1)) {
    outputs.push_back(naive.of(u));
  }
  return outputs;
}

}  // namespace beamd::testing

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/symbolic/bounds.h"
#include "engine/symbolic/fold.h"
#include "engine/symbolic/int_eval.h"
#include "engine/symbolic/memo.h"

namespace beamd {
namespace {

// An integer op of constants of which some differ by lane.
UOp FoldLanes(UOp u) {
  std::vector<int64_t> lanes;
  for (int lane = 0; lane < u.lanes(); ++lane) {
    int64_t v[3] = {};
    for (int i = 0; i < u.src_count(); ++i) {
      if (!IsIntegral(u.src(i).dtype()) || u.src(i).lanes() != u.lanes()) return nullptr;
      v[i] = LaneOf(u.src(i), lane);
    }
    const std::optional<int64_t> value = EvalIntOp(u, v);
    if (!value) return nullptr;
    lanes.push_back(*value);
  }
  return LanesConstant(u.dtype(), std::move(lanes), u.graph());
}

// a op b of constant floats, where rounding the double result once gives the dtype's answer: the
// formats below double have less than half its precision.
UOp FoldFloats(UOp u) {
  UOpGraph& g = u.graph();
  const double a = u.src(0).float_value();
  const double b = u.src_count() > 1 ? u.src(1).float_value() : 0;
  switch (u.op()) {
    case Op::kAdd:
      return g.ConstFloat(u.dtype(), a + b);
    case Op::kSub:
      return g.ConstFloat(u.dtype(), a - b);
    case Op::kMul:
      return g.ConstFloat(u.dtype(), a * b);
    case Op::kNeg:
      return g.ConstFloat(u.dtype(), -a);
    case Op::kMax:
      if (std::isnan(a) || std::isnan(b)) return g.ConstFloat(u.dtype(), a + b);
      if (a == b) return std::signbit(a) ? u.src(1) : u.src(0);  // max(-0, +0) = +0
      return a < b ? u.src(1) : u.src(0);
    case Op::kCmpLt:
      return u.ConstLike(a < b ? 1 : 0);
    case Op::kCmpNe:
      return u.ConstLike(a != b ? 1 : 0);
    default:
      return nullptr;
  }
}

UOp FoldCastOfConstant(UOp u) {
  const UOp c = u.src(0);
  UOpGraph& g = u.graph();
  if (c.arg().kind() == Arg::Kind::kFloat) return g.ConstFloat(u.dtype(), c.float_value());
  if (!IsFloat(u.scalar())) return g.Const(u.dtype(), c.int_value());
  // Through double: exact only up to 2^53, and rounding twice isn't rounding once.
  constexpr int64_t kExact = int64_t{1} << 53;
  const int64_t v = c.int_value();
  const bool exact = v >= (c.scalar() == Scalar::kUint64 ? 0 : -kExact) && v <= kExact;
  return exact ? g.Const(u.dtype(), v) : UOp();
}

}  // namespace

int64_t LaneOf(UOp constant, int lane) {
  return constant.is_const() ? constant.int_value()
                             : constant.data<LanesArg>().lanes[static_cast<size_t>(lane)];
}

UOp LanesConstant(DType dtype, std::vector<int64_t> lanes, UOpGraph& graph) {
  const bool same = std::ranges::all_of(lanes, [&](int64_t v) { return v == lanes[0]; });
  if (same) return graph.Const(dtype, lanes[0]);
  return graph.Make(Op::kVConst, dtype, {}, graph.Intern(LanesArg{std::move(lanes)}));
}

UOp FoldConstants(UOp alu) {
  if (alu.dtype().is_pointer() || alu.src_count() > 3) return nullptr;
  if (alu.src_ops().Has(Op::kVConst)) return FoldLanes(alu);
  if (alu.is(Op::kCast)) return FoldCastOfConstant(alu);
  if (alu.src(0).arg().kind() == Arg::Kind::kFloat) return FoldFloats(alu);
  int64_t v[3] = {};
  for (int i = 0; i < alu.src_count(); ++i) v[i] = alu.src(i).int_value();
  const std::optional<int64_t> value = EvalIntOp(alu, v);
  return value ? alu.graph().Const(alu.dtype(), *value) : UOp();
}

UOp FoldSingleValue(UOp alu) {
  const Bounds b = BoundsNow(alu);
  return b.min == b.max ? alu.ConstLike(b.min) : UOp();
}

UOp FoldCast(UOp cast) {
  const UOp x = cast.src(0);
  if (x.dtype() == cast.dtype()) return x;
  if (!IsIntegral(cast.dtype()) || !x.is(Op::kCast) || !IsInt(x.scalar())) return nullptr;
  // The inner cast keeps every value -> it may go.
  const UOp from = x.src(0);
  if (!IsIntegral(from.dtype())) return nullptr;
  const Bounds b = BoundsNow(from), full = FullRange(x.scalar());
  const bool kept = !IsUnknown(from.scalar(), b) && b.min >= full.min && b.max <= full.max &&
                    (x.scalar() != Scalar::kUint64 || b.min >= 0);
  return kept ? Cast(from, cast.dtype()) : UOp();
}

}  // namespace beamd

#include "engine/lower/collapse.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

UOp Min(UOp a, UOp b) { return Where(a < b, a, b); }
UOp Max(UOp a, UOp b) { return Alu(Op::kMax, a, b); }

bool DependsOn(UOp u, UOp range) {
  const std::vector<UOp> nodes = Toposort(u);
  return std::find(nodes.begin(), nodes.end(), range) != nodes.end();
}

// a*range + rest.
struct Linear {
  int64_t a = 0;
  UOp rest;
};
std::optional<Linear> LinearIn(UOp u, UOp range) {
  Linear linear;
  linear.rest = u.ConstLike(0);
  for (const UOp term : SplitAssociative(u, Op::kAdd)) {
    const bool scaled = term.is(Op::kMul) && term.src(1).is_const();
    if ((scaled ? term.src(0) : term) == range) {
      linear.a += scaled ? term.src(1).int_value() : 1;
    } else if (DependsOn(term, range)) {
      return std::nullopt;
    } else {
      linear.rest = linear.rest + term;
    }
  }
  return linear;
}

// Where a conjunction holds along a range: from the largest of `lower` to the smallest of `upper`,
// if `always` holds.
struct Interval {
  UOp lower, upper;  // int64
  UOp always;        // null: true
};

// One comparison's part. False if it isn't linear in the range.
bool Narrow(UOp clause, UOp range, Interval& interval) {
  if (!DependsOn(clause, range)) {
    interval.always = interval.always ? interval.always & clause : clause;
    return true;
  }
  const bool negated = clause.is(Op::kCmpNe) && clause.src(1).is_const_int(1) &&
                       clause.src(0).scalar() == Scalar::kBool;
  const UOp less = negated ? clause.src(0) : clause;
  if (!less.is(Op::kCmpLt) || less.src(0).scalar() != Scalar::kInt64) return false;
  const UOp bound = less.src(1);
  if (DependsOn(bound, range)) return false;
  const std::optional<Linear> left = LinearIn(less.src(0), range);
  if (!left || left->a == 0) return false;
  // The numerators are clamped at 0, where the bound is 0 whatever the sign, so that division need
  // not floor.
  const UOp zero = bound.ConstLike(0);
  UOp limit;
  if (left->a > 0) {
    limit = (Max(bound - left->rest, zero) + (left->a - 1)) / left->a;
  } else {
    limit = Max(left->rest - bound + -left->a, zero) / -left->a;
  }
  if ((left->a > 0) != negated) {
    interval.upper = Min(interval.upper, limit);
  } else {
    interval.lower = Max(interval.lower, limit);
  }
  return true;
}

// How many equal terms one product can stand for: where `scalar` holds the count.
int64_t MostTerms(Scalar scalar) {
  return scalar == Scalar::kFloat16 ? 65504 : std::numeric_limits<int64_t>::max();
}

// The sum of `value` over `range`, without the range; null where it takes the loop.
UOp Summed(UOp value, UOp range) {
  const UOp extent = range.src(0);
  if (!DependsOn(value, range)) {
    // No terms at all make 0, also of an infinity.
    if (!extent.is_const() || extent.int_value() < 1) return nullptr;
    if (extent.int_value() > MostTerms(value.scalar())) return nullptr;
    return value * Cast(extent, value.dtype());
  }
  if (!value.is(Op::kWhere) || value.src(0).lanes() != 1) return nullptr;
  const UOp then = value.src(1), otherwise = value.src(2);
  if (DependsOn(then, range) || DependsOn(otherwise, range)) return nullptr;
  // Floats: what is not selected must not matter, NaN and infinities included.
  const bool zero_else =
      otherwise.is_const() &&
      (IsFloat(otherwise.scalar()) ? otherwise.float_value() == 0 : otherwise.int_value() == 0);
  if (value.scalar() == Scalar::kBool || (IsFloat(value.scalar()) && !zero_else)) return nullptr;

  Interval interval{range.ConstLike(0), extent, {}};
  for (const UOp clause : SplitAssociative(value.src(0), Op::kAnd)) {
    if (!Narrow(clause, range, interval)) return nullptr;
  }
  UOp count = Max(interval.upper - interval.lower, range.ConstLike(0));
  if (interval.always) count = Where(interval.always, count, count.ConstLike(0));
  count = Simplify(count);
  const DType dtype = value.dtype();
  if (BoundsOf(count).max > MostTerms(value.scalar())) return nullptr;
  if (!IsFloat(value.scalar())) {
    return then * Cast(count, dtype) + otherwise * Cast(extent - count, dtype);
  }
  return Where(count.ConstLike(0) < count, then * Cast(count, dtype), otherwise);
}

bool IsLoop(UOp range) { return range.data<RangeArg>().kind == RangeArg::Kind::kReduce; }

bool IsSum(UOp u) { return u.is(Op::kReduce) && u.data<ReduceArg>().op == Op::kAdd; }

// The sum of src[0] over the ranges behind it, which `sum` is. `shares_loops`: another reduction
// runs in them too, so that they are all left or all gone.
UOp Collapsed(UOp sum, const std::vector<UOp>& src, bool shares_loops) {
  std::vector<UOp> left = {src[0]};
  bool loops_left = false, loops_gone = false;
  for (size_t i = 1; i < src.size(); ++i) {
    if (IsLoop(src[i])) {
      if (const UOp summed = Summed(left[0], src[i])) {
        left[0] = summed;
        loops_gone = true;
        continue;
      }
      loops_left = true;
    }
    left.push_back(src[i]);
  }
  if (left.size() == 1) return left[0];
  return sum.WithSrc(loops_left && loops_gone && shares_loops ? src : left);
}

}  // namespace

UOp CollapseLoops(UOp sink) {
  const std::vector<UOp> order = Toposort(sink);
  if (std::none_of(order.begin(), order.end(), IsSum)) return sink;
  // Reductions of one stage have their ranges in common.
  std::map<int32_t, int> reductions;
  const auto stage_of = [](UOp reduce) { return reduce.src(1).data<RangeArg>().stage; };
  for (const UOp u : order) {
    if (u.is(Op::kReduce)) ++reductions[stage_of(u)];
  }
  std::vector<UOp> done(sink.graph().size());
  std::vector<UOp> src;
  for (const UOp u : order) {
    src.clear();
    for (const UOp s : u.src()) src.push_back(done[s.id()]);
    if (IsSum(u)) {
      done[u.id()] = Collapsed(u, src, reductions[stage_of(u)] > 1);
    } else {
      done[u.id()] = std::ranges::equal(src, u.src()) ? u : u.WithSrc(src);
    }
  }
  return done[sink.id()];
}

}  // namespace beamd

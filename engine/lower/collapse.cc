#include "engine/lower/collapse.h"

#include <algorithm>
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

// Where a conjunction holds along a range: from the largest of `lower` to the smallest of `upper`, if `always`
// holds.
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
  // The numerators are clamped at 0, where the bound is 0 whatever the sign, so that division need not floor.
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

// The sum of `value` over `range`, without the range; null where it takes the loop.
UOp Summed(UOp value, UOp range) {
  const UOp extent = range.src(0);
  if (!DependsOn(value, range)) {
    if (!extent.is_const()) return nullptr;
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
  if (!IsFloat(value.scalar())) {
    return then * Cast(count, dtype) + otherwise * Cast(extent - count, dtype);
  }
  return Where(count.ConstLike(0) < count, then * Cast(count, dtype), otherwise);
}

}  // namespace

UOp CollapseLoops(UOp sink) {
  const std::vector<UOp> order = Toposort(sink);
  const bool any = std::any_of(order.begin(), order.end(), [](UOp u) {
    return u.is(Op::kReduce) && u.data<ReduceArg>().op == Op::kAdd;
  });
  if (!any) return sink;
  std::vector<UOp> done(sink.graph().size());
  std::vector<UOp> src;
  for (const UOp u : order) {
    src.clear();
    for (const UOp s : u.src()) src.push_back(done[s.id()]);
    if (u.is(Op::kReduce) && u.data<ReduceArg>().op == Op::kAdd) {
      std::erase_if(src, [&](UOp s) {
        if (!s.is(Op::kRange) || s.data<RangeArg>().kind != RangeArg::Kind::kReduce) return false;
        const UOp summed = Summed(src[0], s);
        if (summed) src[0] = summed;
        return static_cast<bool>(summed);
      });
      done[u.id()] = src.size() == 1 ? src[0] : u.WithSrc(src);
      continue;
    }
    done[u.id()] = std::ranges::equal(src, u.src()) ? u : u.WithSrc(src);
  }
  return done[sink.id()];
}

}  // namespace beamd

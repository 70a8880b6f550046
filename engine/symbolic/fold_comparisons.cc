#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "engine/symbolic/bounds.h"
#include "engine/symbolic/fold.h"
#include "engine/symbolic/linear.h"
#include "engine/symbolic/memo.h"

namespace beamd {
namespace {

BoundsTable& Table(UOp u) { return SymbolicMemo::Of(u.graph()).bounds(); }

// sum < bound, where `sum` has no constant and is exact.
UOp Less(LinearForm sum, int64_t bound, UOpGraph& graph) {
  const UOp left = Build(std::move(sum), graph);
  return left < left.ConstLike(bound);
}

// sum < bound over the integers in the simplest known form; null if the sum without its constant
// may wrap.
UOp LessThan(LinearForm sum, Int128 bound, UOpGraph& graph) {
  BoundsTable& table = SymbolicMemo::Of(graph).bounds();
  bound -= sum.constant;
  sum.constant = 0;
  const std::optional<Bounds> range = ExactRange(sum, table);
  if (!range) return nullptr;
  if (range->max < bound) return graph.Const(DType(Scalar::kBool, sum.dtype.lanes), 1);
  if (range->min >= bound) return graph.Const(DType(Scalar::kBool, sum.dtype.lanes), 0);
  const auto limit = static_cast<int64_t>(bound);

  // -x < c -> !(x < 1 - c)
  const bool all_negative =
      std::ranges::all_of(sum.terms, [](const Term& t) { return t.coef < 0; });
  if (all_negative && limit > std::numeric_limits<int64_t>::min() + 1) {
    LinearForm negated = sum;
    Negate(negated);
    if (UOp out =
            ExactRange(negated, table) ? LessThan(negated, Int128{1} - limit, graph) : UOp()) {
      return Not(out);
    }
  }
  // d*x < c -> x < ceil(c / d)
  if (const int64_t d = GcdOfCoefficients(sum, 0); d > 1) {
    return LessThan(DividedBy(std::move(sum), d), CeilDiv(limit, d), graph);
  }
  // d*x + y < c -> x < t, where every y gives the same t
  for (const int64_t d : DistinctFactors(sum)) {
    LinearForm multiple{sum.dtype, {}, 0}, rest{sum.dtype, {}, 0};
    for (const Term& t : sum.terms) (t.coef % d == 0 ? multiple : rest).terms.push_back(t);
    const std::optional<Bounds> y = ExactRange(rest, table);
    int64_t low = 0, high = 0;
    if (!y || __builtin_sub_overflow(limit, y->max, &low) ||
        __builtin_sub_overflow(limit, y->min, &high) || CeilDiv(low, d) != CeilDiv(high, d)) {
      continue;
    }
    if (UOp out = LessThan(DividedBy(multiple, d), CeilDiv(low, d), graph)) return out;
  }
  // a*x + b*y < 1 -> x + y < 1, where nothing is negative
  if (limit == 1 && std::ranges::all_of(sum.terms, [&](const Term& t) {
        return t.coef > 0 && table.Of(t.base).min >= 0;
      })) {
    for (Term& t : sum.terms) t.coef = 1;
  }
  return Less(std::move(sum), limit, graph);
}

}  // namespace

UOp FoldLess(UOp less) {
  const UOp x = less.src(0), y = less.src(1);
  UOpGraph& g = less.graph();
  const Scalar s = x.scalar();
  if (x.is_const() && !y.is_const()) {
    // c < y -> !(y < c + 1)
    return x.int_value() == MaxInt(s) ? UOp() : Not(y < y.ConstLike(x.int_value() + 1));
  }
  if (y.is_const()) {
    const int64_t c = y.int_value();
    if (s == Scalar::kUint64 && c < 0) return nullptr;
    if (x.is(Op::kIdiv) && x.src(1).is_const() && x.src(1).int_value() > 0 && c > 0) {
      // q // n < c -> q < n * c
      const Int128 product = Int128{x.src(1).int_value()} * c;
      if (product <= FullRange(s).max) return x.src(0) < static_cast<int64_t>(product);
    }
    std::optional<ExactSum> sum = ExactSumOf(x, Table(less));
    return sum ? LessThan(std::move(sum->sum), c, g) : UOp();
  }
  BoundsTable& table = Table(less);
  const std::optional<ExactSum> a = ExactSumOf(x, table), b = ExactSumOf(y, table);
  if (!a || !b) return nullptr;
  const std::optional<LinearForm> d = Difference(a->sum, b->sum);
  const std::optional<SumRange> range = d ? RangeOf(*d, table) : std::nullopt;
  if (!range) return nullptr;
  if (range->max < 0) return less.ConstLike(1);
  if (range->min >= 0) return less.ConstLike(0);
  const bool cancelled = d->terms.size() < a->sum.terms.size() + b->sum.terms.size();
  return cancelled && d->constant != std::numeric_limits<int64_t>::min() ? LessThan(*d, 0, g)
                                                                         : UOp();
}

UOp FoldNotEqual(UOp ne) {
  const UOp x = ne.src(0), y = ne.src(1);
  UOpGraph& g = ne.graph();
  BoundsTable& table = Table(ne);
  const std::optional<LinearForm> a = Linearise(x, table), b = Linearise(y, table);
  if (!a || !b) return nullptr;
  if (const std::optional<LinearForm> d = Difference(*a, *b);
      d && ExactRange(*a, table) && ExactRange(*b, table)) {
    const std::optional<SumRange> range = RangeOf(*d, table);
    if (range && (range->min > 0 || range->max < 0)) return ne.ConstLike(1);
  }
  // Modulo 2^width, x != y is x - y != 0.
  std::optional<LinearForm> d = Linearise(x - y, table);
  if (!d) return nullptr;
  if (d->terms.empty()) return ne.ConstLike(d->constant != 0 ? 1 : 0);
  if (!y.is_const() && d->terms.size() == a->terms.size() + b->terms.size()) return nullptr;
  Sort(*d);
  if (d->terms[0].coef < 0) Negate(*d);
  const int64_t c = WrapInt(NegWrap(d->constant), x.scalar());
  d->constant = 0;
  if (const int64_t f = GcdOfCoefficients(*d, 0); f > 1 && ExactRange(*d, table)) {
    // The sum isn't past int64; a uint64 that reads as negative is.
    if (c % f != 0 || (x.scalar() == Scalar::kUint64 && c < 0)) return ne.ConstLike(1);
    const UOp left = Build(DividedBy(*std::move(d), f), g);
    return Ne(left, left.ConstLike(c / f));
  }
  const UOp left = Build(*std::move(d), g);
  return Ne(left, left.ConstLike(c));
}

UOp FoldMax(UOp max) {
  const UOp x = max.src(0), y = max.src(1);
  BoundsTable& table = Table(max);
  const std::optional<ExactSum> a = ExactSumOf(x, table), b = ExactSumOf(y, table);
  if (!a || !b) return nullptr;
  if (a->bounds.min >= b->bounds.max) return x;
  if (b->bounds.min >= a->bounds.max) return y;
  const std::optional<LinearForm> d = Difference(a->sum, b->sum);
  const std::optional<SumRange> range = d ? RangeOf(*d, table) : std::nullopt;
  if (!range) return nullptr;
  return range->min >= 0 ? x : range->max <= 0 ? y : UOp();
}

}  // namespace beamd

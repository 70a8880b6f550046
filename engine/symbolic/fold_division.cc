#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/symbolic/bounds.h"
#include "engine/symbolic/fold.h"
#include "engine/symbolic/linear.h"
#include "engine/symbolic/memo.h"

namespace beamd {
namespace {

// Adds the least multiple of c that keeps the sum from being negative. False where that, or that
// the sum doesn't wrap then, isn't known.
bool LiftToNonNegative(LinearForm& sum, int64_t c, UOpGraph& graph) {
  BoundsTable& table = SymbolicMemo::Of(graph).bounds();
  const std::optional<SumRange> range = RangeOf(sum, table);
  if (!range) return false;
  Int128 low = range->min;
  // Facts about parts of a sum show in the bounds of its node only.
  if (low < 0 && ExactRange(sum, table)) low = table.Of(Build(sum, graph)).min;
  if (low < 0) {
    const Int128 lifted = sum.constant + (c - 1 - low) / c * c;
    if (lifted > std::numeric_limits<int64_t>::max()) return false;
    sum.constant = static_cast<int64_t>(lifted);
  }
  return ExactRange(sum, table).has_value();
}

// x // c over the integers as quotient + remainder // c with 0 <= remainder, where that takes
// something out of the division. x: exact, and not negative.
struct Split {
  LinearForm quotient, remainder;
};
std::optional<Split> SplitQuotient(const LinearForm& x, int64_t c, UOpGraph& graph) {
  Split split{{x.dtype, {}, 0}, {x.dtype, {}, FloorMod(x.constant, c)}};
  LinearForm &quotient = split.quotient, &remainder = split.remainder;
  for (const Term& t : x.terms) {
    if (t.coef % c == 0) {
      quotient.terms.push_back({t.base, t.coef / c});
    } else {
      remainder.terms.push_back(t);
    }
  }
  if (!LiftToNonNegative(remainder, c, graph)) return std::nullopt;
  const Int128 taken = (Int128{x.constant} - remainder.constant) / c;
  quotient.constant = static_cast<int64_t>(taken);
  if (quotient.terms.empty() && quotient.constant == 0) return std::nullopt;
  return split;
}

}  // namespace

UOp FoldDiv(UOp div) {
  const int64_t c = div.src(1).int_value();
  if (c <= 1) return nullptr;
  UOpGraph& g = div.graph();
  const std::optional<ExactSum> x = ExactSumOf(div.src(0), SymbolicMemo::Of(g).bounds());
  if (!x) return nullptr;
  const bool whole = x->sum.constant % c == 0;
  if (whole && GcdOfCoefficients(x->sum, c) == c) return Build(DividedBy(x->sum, c), g);
  const bool not_negative = x->bounds.min >= 0;
  if (not_negative) {
    if (std::optional<Split> split = SplitQuotient(x->sum, c, g)) {
      return Build(split->quotient, g) + Build(split->remainder, g) / c;
    }
  }
  const int64_t d = GcdOfCoefficients(x->sum, c);
  if (d > 1 && (not_negative || x->sum.constant % d == 0)) {
    return Build(DividedBy(x->sum, d), g) / (c / d);
  }
  if (!not_negative) return nullptr;
  // (d*x + y) // c -> (x + y // d) // (c / d)
  const std::vector<int64_t> factors = DistinctFactors(x->sum);
  for (auto f = factors.rbegin(); f != factors.rend(); ++f) {
    if (c % *f != 0) continue;
    std::optional<Split> split = SplitQuotient(x->sum, *f, g);
    if (split && !split->quotient.terms.empty()) {
      return (Build(split->quotient, g) + Build(split->remainder, g) / *f) / (c / *f);
    }
  }
  return nullptr;
}

UOp FoldMod(UOp mod) {
  const UOp u = mod.src(0);
  const int64_t c = mod.src(1).int_value();
  if (c <= 1) return c == 1 ? mod.ConstLike(0) : UOp();
  UOpGraph& g = mod.graph();
  BoundsTable& table = SymbolicMemo::Of(g).bounds();
  const Bounds b = table.Of(u);
  if (!IsUnknown(u.scalar(), b) && b.min / c == b.max / c) return u - b.min / c * c;
  // (y % (c*k)) % c -> y % c, whatever y's sign
  if (u.is(Op::kMod) && u.src(1).is_const() && u.src(1).int_value() > 0 &&
      u.src(1).int_value() % c == 0) {
    return u.src(0) % c;
  }
  const std::optional<ExactSum> x = ExactSumOf(u, table);
  if (!x) return nullptr;
  if (x->sum.constant % c == 0 && GcdOfCoefficients(x->sum, c) == c) return mod.ConstLike(0);
  if (b.min < 0) return nullptr;
  LinearForm rest{u.dtype(), {}, FloorMod(x->sum.constant, c)};
  bool changed = false;
  for (const Term& t : x->sum.terms) {
    const int64_t coef = t.coef % c;
    changed |= coef != t.coef;
    if (coef == 0) continue;
    UOp base = t.base;
    if (base.is(Op::kMod) && base.src(1).is_const() && base.src(1).int_value() > 0 &&
        base.src(1).int_value() % c == 0) {
      base = base.src(0);
      changed = true;
    }
    rest.terms.push_back({base, coef});
  }
  if (!LiftToNonNegative(rest, c, g)) return nullptr;
  if (!changed && rest.constant >= x->sum.constant) return nullptr;
  return Build(std::move(rest), g) % c;
}

}  // namespace beamd

#include "engine/symbolic/fold.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/symbolic/bounds.h"
#include "engine/symbolic/int_eval.h"
#include "engine/symbolic/linear.h"
#include "engine/symbolic/memo.h"

namespace beamd {
namespace {

// Operands of one flattened product or conjunction, and nodes looked at for them; longer ones stay
// as they are.
constexpr size_t kMaxOperands = 64;
constexpr int kMaxVisits = 256;
using Operands = absl::InlinedVector<UOp, 8>;

BoundsTable& Table(UOp u) { return SymbolicMemo::Of(u.graph()).bounds(); }

void Sort(LinearForm& sum) {
  std::sort(sum.terms.begin(), sum.terms.end(),
            [](const Term& a, const Term& b) { return CanonicalLess(a.base, b.base); });
}

// An integer whose node has the value of the integer sum, and where it lies.
struct ExactSum {
  LinearForm sum;
  Bounds bounds;
};
std::optional<ExactSum> ExactSumOf(UOp u) {
  BoundsTable& table = Table(u);
  std::optional<LinearForm> sum = Linearise(u, table);
  if (!sum || !ExactRange(*sum, table)) return std::nullopt;
  return ExactSum{*std::move(sum), table.Of(u)};
}

// a - b over the integers; nullopt if a coefficient overflows.
std::optional<LinearForm> Difference(const LinearForm& a, const LinearForm& b) {
  LinearForm d = a;
  if (__builtin_sub_overflow(a.constant, b.constant, &d.constant)) return std::nullopt;
  for (const Term& t : b.terms) {
    const auto it = std::find_if(d.terms.begin(), d.terms.end(),
                                 [&](const Term& other) { return other.base == t.base; });
    int64_t coef = it == d.terms.end() ? 0 : it->coef;
    if (__builtin_sub_overflow(coef, t.coef, &coef)) return std::nullopt;
    if (it == d.terms.end()) {
      d.terms.push_back({t.base, coef});
    } else if (coef == 0) {
      d.terms.erase(it);
    } else {
      it->coef = coef;
    }
  }
  return d;
}

void Negate(LinearForm& sum) {
  const Scalar s = sum.dtype.scalar;
  const auto negated = [&](int64_t v) {
    return SignedWrap(static_cast<int64_t>(-static_cast<uint64_t>(v)), s);
  };
  for (Term& t : sum.terms) t.coef = negated(t.coef);
  sum.constant = negated(sum.constant);
}

int64_t GcdOfCoefficients(const LinearForm& sum, int64_t start) {
  for (const Term& t : sum.terms) {
    if (t.coef == std::numeric_limits<int64_t>::min()) return 1;
    start = std::gcd(start, t.coef);
  }
  return start;
}

// Greater than 1, largest first.
std::vector<int64_t> DistinctFactors(const LinearForm& sum) {
  std::vector<int64_t> factors;
  for (const Term& t : sum.terms) {
    if (t.coef != std::numeric_limits<int64_t>::min() && std::abs(t.coef) > 1) {
      factors.push_back(std::abs(t.coef));
    }
  }
  std::ranges::sort(factors, std::greater<>());
  factors.erase(std::unique(factors.begin(), factors.end()), factors.end());
  return factors;
}

int64_t LaneOf(UOp constant, int lane) {
  return constant.is_const() ? constant.int_value()
                             : constant.data<LanesArg>().lanes[static_cast<size_t>(lane)];
}

UOp LanesConstant(DType dtype, std::vector<int64_t> lanes, UOpGraph& graph) {
  const bool same = std::ranges::all_of(lanes, [&](int64_t v) { return v == lanes[0]; });
  if (same) return graph.Const(dtype, lanes[0]);
  return graph.Make(Op::kVConst, dtype, {}, graph.Intern(LanesArg{std::move(lanes)}));
}

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

// Adds the sum's constants up, those that differ by lane too.
void JoinLaneConstants(LinearForm& sum, UOpGraph& graph) {
  const auto is_lanes = [](const Term& t) { return t.base.is(Op::kVConst); };
  const auto count = std::ranges::count_if(sum.terms, is_lanes);
  if (count == 0) return;
  std::vector<int64_t> lanes(sum.dtype.lanes, sum.constant);
  Terms rest;
  for (const Term& t : sum.terms) {
    if (!is_lanes(t)) {
      rest.push_back(t);
      continue;
    }
    if (count == 1 && t.coef == 1 && sum.constant == 0) return;
    for (int i = 0; i < sum.dtype.lanes; ++i) {
      const uint64_t product =
          static_cast<uint64_t>(LaneOf(t.base, i)) * static_cast<uint64_t>(t.coef);
      lanes[i] = WrapInt(static_cast<int64_t>(static_cast<uint64_t>(lanes[i]) + product),
                         sum.dtype.scalar);
    }
  }
  sum.terms = std::move(rest);
  sum.constant = 0;
  const UOp joined = LanesConstant(sum.dtype, std::move(lanes), graph);
  if (joined.is_const()) {
    sum.constant = SignedWrap(joined.int_value(), sum.dtype.scalar);
  } else {
    sum.terms.push_back({joined, 1});
  }
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

bool IsSingle(UOp u, BoundsTable& table) {
  const Bounds b = table.Of(u);
  return b.min == b.max;
}

// Whether a sum of normal operands is normal as it stands; false if that takes a longer look.
bool IsNormalSum(UOp sum, BoundsTable& table) {
  static constexpr OpSet kJoins = Op::kIdiv | Op::kMod;
  const UOp left = sum.src(0), right = sum.src(1);
  if (!sum.is(Op::kAdd) || left.is_const() || right.is(Op::kAdd | Op::kSub | Op::kNeg))
    return false;
  const UOp last = left.is(Op::kAdd) ? left.src(1) : left;
  if (last.is(Op::kConst | Op::kVConst) || right.is(Op::kVConst)) return false;
  const Term before = TermOf(last), added = TermOf(right);
  if (before.base.is(Op::kAdd) || IsSingle(before.base, table)) return false;
  if (right.is_const()) return !right.is_const_int(0);
  return !added.base.is(kJoins | Op::kAdd) && CanonicalLess(before.base, added.base) &&
         !IsSingle(added.base, table);
}

// The same for a product of two.
bool IsNormalProduct(UOp product, BoundsTable& table) {
  static constexpr OpSet kOpen = Op::kAdd | Op::kSub | Op::kMul | Op::kNeg | Op::kConst;
  if (!product.is(Op::kMul)) return false;
  const UOp left = product.src(0), right = product.src(1);
  if (left.is(kOpen) || IsSingle(left, table)) return false;
  if (right.is_const()) return !right.is_const_int(0) && !right.is_const_int(1);
  return !right.is(kOpen) && CanonicalLess(left, right) && !IsSingle(right, table);
}

// Takes k * (x % c) and (c * k) * (x // c) out of the sum and gives back k * x; null if there is no
// such pair.
UOp TakeDivModPair(LinearForm& sum) {
  for (Term& mod : sum.terms) {
    if (!mod.base.is(Op::kMod) || !mod.base.src(1).is_const()) continue;
    const UOp x = mod.base.src(0), c = mod.base.src(1);
    const int64_t k = mod.coef;
    const int64_t want = SignedWrap(
        static_cast<int64_t>(static_cast<uint64_t>(k) * static_cast<uint64_t>(c.int_value())),
        sum.dtype.scalar);
    for (Term& div : sum.terms) {
      if (!div.base.is(Op::kIdiv) || div.base.src(0) != x || div.base.src(1) != c ||
          div.coef != want) {
        continue;
      }
      Terms rest;
      for (const Term& t : sum.terms) {
        if (t.base != mod.base && t.base != div.base) rest.push_back(t);
      }
      sum.terms = std::move(rest);
      return x * k;
    }
  }
  return nullptr;
}

// Takes k * (x // n + (x + 1) // n + ... + (x + n - 1) // n) out of the sum and gives back k * x: an
// unrolled count. Summands that are always 0 may be missing. Null if there is no such run.
UOp TakeUnrolledDivs(LinearForm& sum, BoundsTable& table) {
  constexpr int64_t kMaxRun = 64;
  struct Div {
    UOp x;
    int64_t offset;
  };
  // The parts of (x + offset) // n.
  const auto parts = [](const Term& t) -> Div {
    const UOp top = t.base.src(0);
    if (top.is(Op::kAdd) && top.src(1).is_const()) return {top.src(0), top.src(1).int_value()};
    return {top, 0};
  };
  const auto is_div = [](const Term& t) {
    return t.base.is(Op::kIdiv) && t.base.src(1).is_const() && t.base.src(1).int_value() > 1 &&
           t.base.src(1).int_value() <= kMaxRun;
  };
  for (const Term& first : sum.terms) {
    if (!is_div(first)) continue;
    const UOp x = parts(first).x, n = first.base.src(1);
    uint64_t seen = 0;
    const auto in_run = [&](const Term& t) {
      if (!is_div(t) || t.coef != first.coef || t.base.src(1) != n) return false;
      const Div div = parts(t);
      return div.x == x && div.offset >= 0 && div.offset < n.int_value();
    };
    for (const Term& t : sum.terms) {
      if (in_run(t)) seen |= uint64_t{1} << parts(t).offset;
    }
    const Bounds b = table.Of(x);
    if (std::popcount(seen) < 2 || b.min < 0 || b.max > MaxInt(x.scalar()) - kMaxRun) continue;
    bool whole = true;
    for (int64_t i = 0; i < n.int_value(); ++i) {
      whole &= (seen >> i & 1) != 0 || b.max + i < n.int_value();
    }
    if (!whole) continue;
    const int64_t k = first.coef;
    Terms rest;
    for (const Term& t : sum.terms) {
      if (!in_run(t)) rest.push_back(t);
    }
    sum.terms = std::move(rest);
    return x * k;
  }
  return nullptr;
}

// Adds the least multiple of c that keeps the sum from being negative. False where that, or that the
// sum doesn't wrap then, isn't known.
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

// The sum divided by d, which divides every coefficient; the constant rounds down.
LinearForm DividedBy(LinearForm sum, int64_t d) {
  for (Term& t : sum.terms) t.coef /= d;
  sum.constant = FloorDiv(sum.constant, d);
  return sum;
}

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
    if (UOp out = LessThan(DividedBy(std::move(multiple), d), CeilDiv(low, d), graph)) return out;
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

UOp NormaliseSum(UOp sum) {
  BoundsTable& table = Table(sum);
  if (IsNormalSum(sum, table)) return nullptr;
  std::optional<LinearForm> form = Linearise(sum, table);
  if (!form) return nullptr;
  for (;;) {
    UOp x = TakeDivModPair(*form);
    if (!x) x = TakeUnrolledDivs(*form, table);
    if (!x) break;
    form = Linearise(Build(*std::move(form), sum.graph()) + x, table);
    if (!form) return nullptr;
  }
  JoinLaneConstants(*form, sum.graph());
  return Build(*std::move(form), sum.graph());
}

UOp NormaliseProduct(UOp product) {
  BoundsTable& table = Table(product);
  if (IsNormalProduct(product, table)) return nullptr;
  Operands factors, pending{product};
  auto constant = uint64_t{1};
  for (int visits = 0; !pending.empty(); ++visits) {
    if (factors.size() + pending.size() > kMaxOperands || visits == kMaxVisits) return nullptr;
    const UOp u = pending.back();
    pending.pop_back();
    if (u.is(Op::kNeg)) constant = -constant;
    if (u.is(Op::kMul | Op::kNeg)) {
      pending.insert(pending.end(), u.src().begin(), u.src().end());
      continue;
    }
    const Bounds b = table.Of(u);
    if (b.min == b.max) {
      constant *= static_cast<uint64_t>(b.min);
    } else if (u.is_const()) {
      constant *= static_cast<uint64_t>(u.int_value());
    } else {
      factors.push_back(u);
    }
  }
  const int64_t c = SignedWrap(static_cast<int64_t>(constant), product.scalar());
  if (c == 0 || factors.empty()) return product.ConstLike(c);
  std::sort(factors.begin(), factors.end(), CanonicalLess);
  UOp out = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) out = out * factors[i];
  if (c == 1) return out;
  if (!out.is(Op::kAdd | Op::kSub)) return out * c;
  const std::optional<LinearForm> sum = Linearise(out * c, table);
  return sum ? Build(*sum, product.graph()) : UOp();
}

UOp NormaliseLogic(UOp logic) {
  const Op op = logic.op();
  const int64_t decides = op == Op::kAnd ? 0 : 1;
  Operands operands, pending{logic};
  for (int visits = 0; !pending.empty(); ++visits) {
    if (operands.size() + pending.size() > kMaxOperands || visits == kMaxVisits) return nullptr;
    const UOp u = pending.back();
    pending.pop_back();
    if (u.is(op)) {
      pending.insert(pending.end(), u.src().begin(), u.src().end());
    } else if (u.is_const()) {
      if (u.int_value() == decides) return u;
    } else if (std::ranges::find(operands, u) == operands.end()) {
      operands.push_back(u);
    }
  }
  if (operands.empty()) return logic.ConstLike(1 - decides);
  for (const UOp u : operands) {
    if (u.is(Op::kCmpNe) && u.src(1).is_const_int(1) &&
        std::ranges::find(operands, u.src(0)) != operands.end()) {
      return logic.ConstLike(decides);
    }
  }
  std::sort(operands.begin(), operands.end(), CanonicalLess);
  UOp out = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) out = Alu(op, out, operands[i]);
  return out;
}

UOp OrderOperands(UOp alu) {
  const UOp a = alu.src(0), b = alu.src(1);
  // Those have an order of their own.
  if (alu.is(Op::kAdd | Op::kMul) && IsInt(alu.scalar())) return nullptr;
  if (alu.is(Op::kAnd | Op::kOr) && alu.scalar() == Scalar::kBool) return nullptr;
  return CanonicalLess(b, a) ? alu.WithSrc({{b, a}}) : UOp();
}

UOp FoldDiv(UOp div) {
  const int64_t c = div.src(1).int_value();
  if (c <= 1) return nullptr;
  std::optional<ExactSum> x = ExactSumOf(div.src(0));
  if (!x) return nullptr;
  UOpGraph& g = div.graph();
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
  BoundsTable& table = Table(mod);
  const Bounds b = table.Of(u);
  if (!IsUnknown(u.scalar(), b) && b.min / c == b.max / c) return u - b.min / c * c;
  // (y % (c*k)) % c -> y % c, whatever y's sign
  if (u.is(Op::kMod) && u.src(1).is_const() && u.src(1).int_value() > 0 &&
      u.src(1).int_value() % c == 0) {
    return u.src(0) % c;
  }
  std::optional<ExactSum> x = ExactSumOf(u);
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
    std::optional<ExactSum> sum = ExactSumOf(x);
    return sum ? LessThan(std::move(sum->sum), c, g) : UOp();
  }
  const std::optional<ExactSum> a = ExactSumOf(x), b = ExactSumOf(y);
  if (!a || !b) return nullptr;
  const std::optional<LinearForm> d = Difference(a->sum, b->sum);
  const std::optional<SumRange> range = d ? RangeOf(*d, Table(less)) : std::nullopt;
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
  const int64_t c = WrapInt(static_cast<int64_t>(-static_cast<uint64_t>(d->constant)), x.scalar());
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
  const std::optional<ExactSum> a = ExactSumOf(x), b = ExactSumOf(y);
  if (!a || !b) return nullptr;
  if (a->bounds.min >= b->bounds.max) return x;
  if (b->bounds.min >= a->bounds.max) return y;
  const std::optional<LinearForm> d = Difference(a->sum, b->sum);
  const std::optional<SumRange> range = d ? RangeOf(*d, Table(max)) : std::nullopt;
  if (!range) return nullptr;
  return range->min >= 0 ? x : range->max <= 0 ? y : UOp();
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

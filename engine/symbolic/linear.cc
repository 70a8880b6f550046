#include "engine/symbolic/linear.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace beamd {
namespace {

// Work per node is bounded: a client's graph may hold sums of any length, and sharing can make the
// tree below a node exponentially large.
constexpr size_t kMaxTerms = 64;
constexpr int kMaxVisits = 256;

bool IsIntConst(UOp u) { return u.is_const() && u.arg().kind() == Arg::Kind::kInt; }

void AddTerm(Terms& terms, UOp base, int64_t coef, Scalar s) {
  for (Term& t : terms) {
    if (t.base != base) continue;
    t.coef = SignedWrap(AddWrap(t.coef, coef), s);
    return;
  }
  terms.push_back({base, coef});
}

int Rank(Op op) {
  switch (op) {
    case Op::kDefineVar:
      return 0;
    case Op::kBind:
      return 1;
    case Op::kSpecial:
      return 2;
    case Op::kRange:
      return 3;
    case Op::kVConst:
      return 1000;
    case Op::kConst:
      return 1001;
    default:
      return 10 + static_cast<int>(op);
  }
}

}  // namespace

std::optional<LinearForm> Linearise(UOp u, BoundsTable& bounds) {
  LinearForm sum;
  sum.dtype = u.dtype();
  const Scalar s = u.scalar();
  Terms pending{{u, 1}};
  for (int visits = 0; !pending.empty(); ++visits) {
    if (visits == kMaxVisits || sum.terms.size() > kMaxTerms) return std::nullopt;
    const auto [n, coef] = pending.back();
    pending.pop_back();
    if (coef == 0) continue;
    const auto push = [&, times = coef](UOp next, int64_t factor) {
      pending.push_back({next, SignedWrap(MulWrap(times, factor), s)});
    };
    switch (n.op()) {
      case Op::kAdd:
        push(n.src(1), 1);
        push(n.src(0), 1);
        continue;
      case Op::kSub:
        push(n.src(1), -1);
        push(n.src(0), 1);
        continue;
      case Op::kNeg:
        push(n.src(0), -1);
        continue;
      case Op::kMul:
        if (IsIntConst(n.src(1))) {
          push(n.src(0), n.src(1).int_value());
          continue;
        }
        if (IsIntConst(n.src(0))) {
          push(n.src(1), n.src(0).int_value());
          continue;
        }
        break;
      case Op::kConst:
        sum.constant = AddWrap(sum.constant, MulWrap(coef, n.int_value()));
        continue;
      default:
        break;
    }
    const Bounds b = bounds.Of(n);
    if (b.min == b.max) {
      sum.constant = AddWrap(sum.constant, MulWrap(coef, b.min));
    } else {
      AddTerm(sum.terms, n, coef, s);
    }
  }
  const auto zero =
      std::remove_if(sum.terms.begin(), sum.terms.end(), [](const Term& t) { return t.coef == 0; });
  sum.terms.erase(zero, sum.terms.end());
  sum.constant = SignedWrap(sum.constant, s);
  return sum;
}

std::optional<SumRange> RangeOf(const LinearForm& sum, BoundsTable& bounds) {
  SumRange range{sum.constant, sum.constant};
  for (const Term& t : sum.terms) {
    const Bounds b = bounds.Of(t.base);
    if (IsUnknown(t.base.scalar(), b)) return std::nullopt;
    // Products are below 2^126; far past any dtype is as good as unknown, and keeps sums in range.
    const Int128 x = Int128{t.coef} * b.min, y = Int128{t.coef} * b.max;
    constexpr Int128 kFar = Int128{1} << 100;
    if (x > kFar || x < -kFar || y > kFar || y < -kFar) return std::nullopt;
    range.min += std::min(x, y);
    range.max += std::max(x, y);
  }
  return range;
}

std::optional<Bounds> ExactRange(const LinearForm& sum, BoundsTable& bounds) {
  const std::optional<SumRange> range = RangeOf(sum, bounds);
  if (!range) return std::nullopt;
  const Bounds full = FullRange(sum.dtype.scalar);
  const int64_t min = sum.dtype.scalar == Scalar::kUint64 ? 0 : full.min;
  if (range->min < min || range->max > full.max) return std::nullopt;
  return Bounds{static_cast<int64_t>(range->min), static_cast<int64_t>(range->max)};
}

void Sort(LinearForm& sum) {
  std::sort(sum.terms.begin(), sum.terms.end(),
            [](const Term& a, const Term& b) { return CanonicalLess(a.base, b.base); });
}

UOp Build(LinearForm sum, UOpGraph& graph) {
  Sort(sum);
  UOp out;
  const auto add = [&](UOp u) { out = out ? out + u : u; };
  for (const Term& t : sum.terms) add(t.coef == 1 ? t.base : t.base * t.coef);
  if (sum.constant != 0 || !out) add(graph.Const(sum.dtype, sum.constant));
  return out;
}

std::optional<ExactSum> ExactSumOf(UOp u, BoundsTable& bounds) {
  std::optional<LinearForm> sum = Linearise(u, bounds);
  if (!sum || !ExactRange(*sum, bounds)) return std::nullopt;
  return ExactSum{*std::move(sum), bounds.Of(u)};
}

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
  const auto negated = [&](int64_t v) { return SignedWrap(NegWrap(v), s); };
  for (Term& t : sum.terms) t.coef = negated(t.coef);
  sum.constant = negated(sum.constant);
}

LinearForm DividedBy(LinearForm sum, int64_t d) {
  for (Term& t : sum.terms) t.coef /= d;
  sum.constant = FloorDiv(sum.constant, d);
  return sum;
}

int64_t GcdOfCoefficients(const LinearForm& sum, int64_t start) {
  for (const Term& t : sum.terms) {
    if (t.coef == std::numeric_limits<int64_t>::min()) return 1;
    start = std::gcd(start, t.coef);
  }
  return start;
}

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

bool CanonicalLess(UOp a, UOp b) {
  if (a == b) return false;
  const int rank_a = Rank(a.op()), rank_b = Rank(b.op());
  if (rank_a != rank_b) return rank_a < rank_b;
  if (a.is(Op::kRange)) {
    const RangeArg &x = a.data<RangeArg>(), &y = b.data<RangeArg>();
    if (x.axis != y.axis) return x.axis < y.axis;
  } else if (a.is(Op::kDefineVar)) {
    const int order = a.data<VariableArg>().name.compare(b.data<VariableArg>().name);
    if (order != 0) return order < 0;
  } else if (a.is(Op::kSpecial)) {
    const int order = a.data<std::string>().compare(b.data<std::string>());
    if (order != 0) return order < 0;
  }
  return a.hash() != b.hash() ? a.hash() < b.hash() : a.id() < b.id();
}

}  // namespace beamd

#include "engine/symbolic/bounds.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "engine/symbolic/linear.h"

namespace beamd {
namespace {

constexpr Int128 kMin = std::numeric_limits<int64_t>::min();
constexpr Int128 kMax = std::numeric_limits<int64_t>::max();

// The interval if the dtype holds it, else all the dtype holds: the operation may wrap.
Bounds Fit(Int128 min, Int128 max, Scalar s) {
  const Bounds full = FullRange(s);
  if (min < full.min || max > full.max || (s == Scalar::kUint64 && min < 0)) return full;
  return {static_cast<int64_t>(min), static_cast<int64_t>(max)};
}

Bounds Hull(std::initializer_list<Int128> corners, Scalar s) {
  return Fit(std::min(corners), std::max(corners), s);
}

Bounds Divide(Bounds a, Bounds b, Scalar s) {
  // Truncated division is monotone in each operand while the divisor keeps its sign.
  Int128 min = kMax, max = kMin;
  const auto corners = [&](Int128 d0, Int128 d1) {
    for (const Int128 n : {Int128{a.min}, Int128{a.max}}) {
      for (const Int128 d : {d0, d1}) {
        min = std::min(min, n / d);
        max = std::max(max, n / d);
      }
    }
  };
  if (b.min < 0) corners(b.min, std::min<Int128>(b.max, -1));
  if (b.max > 0) corners(std::max<Int128>(b.min, 1), b.max);
  if (b.min <= 0 && b.max >= 0) {
    min = std::min<Int128>(min, 0);
    max = std::max<Int128>(max, 0);
  }
  return Fit(min, max, s);
}

Bounds Modulo(Bounds a, Bounds b, Scalar s) {
  const Int128 largest = std::max(-Int128{b.min}, Int128{b.max});  // of abs(b), where b isn't 0
  const Int128 furthest = std::max(-Int128{a.min}, Int128{a.max});
  if (b.min == b.max) {
    if (b.min == 0 || b.min == -1) return {0, 0};
    if (a.min / b.min == a.max / b.min) return {a.min % b.min, a.max % b.min};
  } else if ((b.min > 0 && furthest < b.min) || (b.max < 0 && furthest < -Int128{b.max})) {
    return a;
  }
  const Int128 below = largest - 1;
  return Fit(a.min >= 0 ? 0 : std::max(Int128{a.min}, -below),
             a.max <= 0 ? 0 : std::min(Int128{a.max}, below), s);
}

// All ones up to the highest bit of either.
int64_t MaskOf(int64_t a, int64_t b) {
  const uint64_t bits = static_cast<uint64_t>(a) | static_cast<uint64_t>(b);
  return static_cast<int64_t>(bits == 0 ? 0 : ~uint64_t{0} >> std::countl_zero(bits));
}

// Operands whose bounds decide those of u.
std::span<const UOp> Operands(UOp u) {
  static constexpr OpSet kFirst = Op::kCast | Op::kBind | Op::kRange | Op::kSpecial | Op::kGep;
  if (!IsIntegral(u.dtype())) return {};
  if (u.is(kFirst)) return u.src().first(u.src_count() == 0 ? 0 : 1);
  if (u.is(kAlu | Op::kVectorize)) return u.src();
  return {};
}

// Takes m * (the sum of `terms`) out of `sum` and gives back m; nullopt if it isn't in there whole.
std::optional<int64_t> TakeMultiple(LinearForm& sum, const Terms& terms) {
  int64_t m = 0;
  for (const Term& t : terms) {
    const auto it = std::find_if(sum.terms.begin(), sum.terms.end(),
                                 [&](const Term& other) { return other.base == t.base; });
    if (it == sum.terms.end() || it->coef % t.coef != 0) return std::nullopt;
    if (m != 0 && it->coef / t.coef != m) return std::nullopt;
    m = it->coef / t.coef;
    sum.terms.erase(it);
  }
  return m;
}

}  // namespace

Bounds FullRange(Scalar s) {
  static const std::array<Bounds, kScalarCount> ranges = [] {
    std::array<Bounds, kScalarCount> all;
    all.fill({std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()});
    all[static_cast<int>(Scalar::kBool)] = {0, 1};
    for (int i = 0; i < kScalarCount; ++i) {
      const auto scalar = static_cast<Scalar>(i);
      if (IsInt(scalar) && scalar != Scalar::kUint64) all[i] = {MinInt(scalar), MaxInt(scalar)};
    }
    return all;
  }();
  return ranges[static_cast<int>(s)];
}

Bounds BoundsTable::Known(UOp u) const {
  const Entry* entry = Find(u);
  return entry != nullptr ? entry->bounds : FullRange(u.scalar());
}

Bounds BoundsTable::Learn(UOp u) {
  const size_t bottom = stack_.size();
  stack_.push_back(u);
  while (stack_.size() > bottom) {
    const UOp n = stack_.back();
    if (Find(n) != nullptr) {
      stack_.pop_back();
      continue;
    }
    const size_t before = stack_.size();
    for (const UOp s : Operands(n)) {
      if (IsIntegral(s.dtype()) && Find(s) == nullptr) stack_.push_back(s);
    }
    if (stack_.size() != before) continue;
    Bounds b = Compute(n);
    if (!facts_.empty()) b = Refine(n, b);
    if (n.id() >= known_.size()) {
      known_.resize(n.graph().size() * 2 + 64);
    }
    known_[n.id()] = {b, epoch_};
    stack_.pop_back();
  }
  return Find(u)->bounds;
}

Bounds BoundsTable::Compute(UOp u) {
  const Scalar s = u.scalar();
  const Bounds full = FullRange(s);
  if (!IsIntegral(u.dtype())) return full;
  switch (u.op()) {
    case Op::kConst:
      if (s == Scalar::kUint64 && u.int_value() < 0) return full;
      return {u.int_value(), u.int_value()};
    case Op::kVConst: {
      const auto [min, max] = std::ranges::minmax(u.data<LanesArg>().lanes);
      return {min, max};
    }
    case Op::kDefineVar: {
      const VariableArg& v = u.data<VariableArg>();
      return Fit(v.min, v.max, s);
    }
    case Op::kRange:
    case Op::kSpecial: {
      if (u.src_count() == 0) return full;
      const Bounds extent = Known(u.src(0));
      if (IsUnknown(u.src(0).scalar(), extent)) return full;
      return Fit(0, std::max<Int128>(0, Int128{extent.max} - 1), s);
    }
    case Op::kBind:
    case Op::kGep:
      return Known(u.src(0));
    case Op::kVectorize: {
      Bounds b = Known(u.src(0));
      for (const UOp lane : u.src()) {
        const Bounds l = Known(lane);
        b = {std::min(b.min, l.min), std::max(b.max, l.max)};
      }
      return b;
    }
    case Op::kCast: {
      const UOp from = u.src(0);
      if (!IsIntegral(from.dtype())) return full;
      const Bounds a = Known(from);
      if (s == Scalar::kBool) return {a.min > 0 || a.max < 0, a.min != 0 || a.max != 0};
      if (IsUnknown(from.scalar(), a)) return full;
      return Fit(a.min, a.max, s);
    }
    case Op::kNeg: {
      const Bounds a = Known(u.src(0));
      if (s == Scalar::kBool || IsUnknown(s, a)) return full;
      return Fit(-Int128{a.max}, -Int128{a.min}, s);
    }
    case Op::kWhere: {
      const Bounds c = Known(u.src(0)), a = Known(u.src(1)), b = Known(u.src(2));
      if (c.min == c.max) return c.min != 0 ? a : b;
      return {std::min(a.min, b.min), std::max(a.max, b.max)};
    }
    default:
      return u.is(kBinary) ? Binary(u) : full;
  }
}

Bounds BoundsTable::Binary(UOp u) const {
  const Scalar s = u.scalar();
  const Bounds full = FullRange(s);
  if (!IsIntegral(u.src(0).dtype()) || !IsIntegral(u.src(1).dtype())) return full;
  const Bounds a = Known(u.src(0)), b = Known(u.src(1));
  if (IsUnknown(u.src(0).scalar(), a) || IsUnknown(u.src(1).scalar(), b)) {
    // A non-negative divisor or mask still bounds the result.
    if (u.is(Op::kMod) && b.min > 0) return {0, b.max - 1};
    if (u.is(Op::kAnd) && (a.min >= 0 || b.min >= 0)) return {0, a.min >= 0 ? a.max : b.max};
    return full;
  }
  const auto shift_fits = [&] { return b.min == b.max && b.min >= 0 && b.min < Bits(s); };
  switch (u.op()) {
    case Op::kAdd:
      return Fit(Int128{a.min} + b.min, Int128{a.max} + b.max, s);
    case Op::kSub:
      return Fit(Int128{a.min} - b.max, Int128{a.max} - b.min, s);
    case Op::kMul:
      return Hull({Int128{a.min} * b.min, Int128{a.min} * b.max, Int128{a.max} * b.min,
                   Int128{a.max} * b.max},
                  s);
    case Op::kIdiv:
      return Divide(a, b, s);
    case Op::kMod:
      return Modulo(a, b, s);
    case Op::kMax:
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case Op::kCmpLt:
      return {a.max < b.min, a.min < b.max};
    case Op::kCmpNe:
      return {a.max < b.min || b.max < a.min, a.min != a.max || b.min != b.max || a.min != b.min};
    case Op::kAnd:
      if (s == Scalar::kBool) return {a.min & b.min, a.max & b.max};
      if (a.min >= 0 && b.min >= 0) return {0, std::min(a.max, b.max)};
      if (a.min >= 0 || b.min >= 0) return {0, a.min >= 0 ? a.max : b.max};
      return full;
    case Op::kOr:
      if (a.min < 0 || b.min < 0) return full;
      return {std::max(a.min, b.min), MaskOf(a.max, b.max)};
    case Op::kXor:
      if (a.min < 0 || b.min < 0) return full;
      return {0, MaskOf(a.max, b.max)};
    case Op::kShl:
      if (!shift_fits()) return full;
      return Fit(Int128{a.min} << b.min, Int128{a.max} << b.min, s);
    case Op::kShr:
      if (shift_fits()) return {a.min >> b.min, a.max >> b.min};
      return a.min >= 0 ? Bounds{0, a.max} : full;
    default:
      return full;
  }
}

// What the facts say about u, beyond what its operands' bounds imply.
Bounds BoundsTable::Refine(UOp u, Bounds b) {
  const auto meet = [&](Int128 min, Int128 max) {
    min = std::max<Int128>(min, b.min);
    max = std::min<Int128>(max, b.max);
    // Empty: no point satisfies the facts here, and any answer is right.
    if (min <= max) b = {static_cast<int64_t>(min), static_cast<int64_t>(max)};
  };
  for (const Fact& f : facts_) {
    if (f.expr == u) meet(f.bounds.min, f.bounds.max);
  }
  if (sum_facts_.empty() || !u.is(Op::kAdd) || !IsInt(u.scalar())) return b;
  std::optional<LinearForm> rest = Linearise(u, *this);
  if (!rest) return b;
  // u = m1 * (a fact's sum) + m2 * (another's) + ... + rest, taking the facts as they come.
  SumRange taken;
  for (const SumFact& f : sum_facts_) {
    LinearForm left = *rest;
    const std::optional<int64_t> m = TakeMultiple(left, f.terms);
    if (!m) continue;
    const Int128 x = Int128{*m} * f.bounds.min, y = Int128{*m} * f.bounds.max;
    taken = {taken.min + std::min(x, y), taken.max + std::max(x, y)};
    rest = std::move(left);
  }
  const std::optional<SumRange> range = RangeOf(*rest, *this);
  if (!range) return b;
  const Int128 min = range->min + taken.min, max = range->max + taken.max;
  const Bounds full = FullRange(u.scalar());
  if (min >= full.min && max <= full.max) meet(min, max);
  return b;
}

bool BoundsTable::Assume(const std::vector<Fact>& facts) {
  ++epoch_;
  facts_.clear();
  sum_facts_.clear();
  bool possible = true;
  const auto learn = [&](UOp expr, Bounds bounds) {
    const Bounds now = Of(expr);
    const Bounds met{std::max(now.min, bounds.min), std::min(now.max, bounds.max)};
    if (met.min > met.max) possible = false;
    if (met == now || met.min > met.max) return false;
    facts_.push_back({expr, met});
    ++epoch_;
    return true;
  };
  for (const Fact& f : facts) learn(f.expr, f.bounds);
  // What a sum's bounds say about each of its terms. A second round uses what the first found.
  for (int round = 0; round < 2; ++round) {
    for (const Fact& f : facts) {
      if (!f.expr.is(Op::kAdd) || !IsInt(f.expr.scalar())) continue;
      const std::optional<LinearForm> sum = Linearise(f.expr, *this);
      if (!sum || sum->constant != 0 || !ExactRange(*sum, *this)) continue;
      const Bounds whole = Of(f.expr);
      if (round == 0) sum_facts_.push_back({sum->terms, whole});
      for (size_t i = 0; i < sum->terms.size(); ++i) {
        LinearForm others = *sum;
        others.terms.erase(others.terms.begin() + static_cast<ptrdiff_t>(i));
        const std::optional<SumRange> range = RangeOf(others, *this);
        if (!range) continue;
        const Term& t = sum->terms[i];
        // coef * base lies in [min, max].
        const Int128 min = whole.min - range->max, max = whole.max - range->min;
        if (min < kMin || max > kMax || t.coef == std::numeric_limits<int64_t>::min()) continue;
        const auto lo = static_cast<int64_t>(min), hi = static_cast<int64_t>(max);
        if (t.coef > 0) {
          learn(t.base, {CeilDiv(lo, t.coef), FloorDiv(hi, t.coef)});
        } else if (lo > kMin) {
          learn(t.base, {CeilDiv(-hi, -t.coef), FloorDiv(-lo, -t.coef)});
        }
      }
    }
  }
  return possible;
}

}  // namespace beamd

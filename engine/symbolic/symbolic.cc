#include "engine/symbolic/symbolic.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/symbolic/linear.h"
#include "engine/symbolic/memo.h"

namespace beamd {
namespace {

// How many remainders, maxima and selections ConstFactor looks into, one inside the other.
constexpr int kFactorDepth = 4;

// abs(v), or another factor of v where that overflows.
int64_t SafeFactor(int64_t v) {
  return v == std::numeric_limits<int64_t>::min() ? int64_t{1} << 62 : std::abs(v);
}

// A number that divides every value of u; 0 if u is 0.
int64_t FactorOf(UOp u, int depth) {
  if (depth == 0) return 1;
  if (u.is(Op::kMod) && u.src(1).is_const()) {
    // Of uint64, past int64: not the number that it reads as.
    if (u.scalar() == Scalar::kUint64 && u.src(1).int_value() < 0) return 1;
    return std::gcd(FactorOf(u.src(0), depth - 1), SafeFactor(u.src(1).int_value()));
  }
  if (u.is(Op::kMax)) {
    return std::gcd(FactorOf(u.src(0), depth - 1), FactorOf(u.src(1), depth - 1));
  }
  if (u.is(Op::kWhere)) {
    return std::gcd(FactorOf(u.src(1), depth - 1), FactorOf(u.src(2), depth - 1));
  }
  BoundsTable& table = SymbolicMemo::Of(u.graph()).bounds();
  const std::optional<LinearForm> sum = Linearise(u, table);
  if (!sum) return 1;
  int64_t factor = SafeFactor(sum->constant);
  for (const Term& t : sum->terms) {
    const int64_t coef = SafeFactor(t.coef);
    int64_t product = 0;
    const int64_t base = t.base == u ? 1 : FactorOf(t.base, depth - 1);
    factor = std::gcd(factor, __builtin_mul_overflow(coef, base, &product) ? coef : product);
  }
  // What wraps keeps its powers of two only.
  return ExactRange(*sum, table) ? factor : factor & -factor;
}

}  // namespace

Bounds BoundsOf(UOp u) { return BoundsNow(u); }

UOp Simplify(UOp u) { return SymbolicMemo::Of(u.graph()).Simplify(u); }

std::vector<UOp> SplitAssociative(UOp u, Op op) {
  std::vector<UOp> operands, pending{u};
  while (!pending.empty()) {
    const UOp n = pending.back();
    pending.pop_back();
    if (n.is(op)) {
      pending.insert(pending.end(), n.src().rbegin(), n.src().rend());
    } else {
      operands.push_back(n);
    }
  }
  return operands;
}

int64_t ConstFactor(UOp u) {
  if (!IsInt(u.scalar()) || u.dtype().is_pointer()) return 1;
  return std::max<int64_t>(1, FactorOf(u, kFactorDepth));
}

std::optional<UOp> DividesBy(UOp u, int64_t v) {
  if (v == 1) return u;
  if (v < 1 || !IsInt(u.scalar())) return std::nullopt;
  BoundsTable& table = SymbolicMemo::Of(u.graph()).bounds();
  std::optional<LinearForm> sum = Linearise(u, table);
  if (!sum || !ExactRange(*sum, table) || sum->constant % v != 0) return std::nullopt;
  sum->constant /= v;
  for (Term& t : sum->terms) {
    if (t.coef % v != 0) return std::nullopt;
    t.coef /= v;
  }
  return Build(*std::move(sum), u.graph());
}

}  // namespace beamd

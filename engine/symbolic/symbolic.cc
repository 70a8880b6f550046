#include "engine/symbolic/symbolic.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/symbolic/linear.h"
#include "engine/symbolic/memo.h"

namespace beamd {

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
  if (!IsIntegral(u.dtype()) || u.scalar() == Scalar::kBool) return 1;
  BoundsTable& table = SymbolicMemo::Of(u.graph()).bounds();
  const std::optional<LinearForm> sum = Linearise(u, table);
  if (!sum || !ExactRange(*sum, table)) return 1;
  constexpr int64_t kNoAbs = std::numeric_limits<int64_t>::min();
  if (sum->constant == kNoAbs) return 1;
  int64_t factor = sum->constant;
  for (const Term& t : sum->terms) {
    if (t.coef == kNoAbs) return 1;
    factor = std::gcd(factor, t.coef);
  }
  return std::max<int64_t>(1, std::abs(factor));
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

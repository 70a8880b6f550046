#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/symbolic/bounds.h"
#include "engine/symbolic/fold.h"
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
      lanes[i] = WrapInt(AddWrap(lanes[i], MulWrap(LaneOf(t.base, i), t.coef)), sum.dtype.scalar);
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

bool IsSingle(UOp u, BoundsTable& table) {
  const Bounds b = table.Of(u);
  return b.min == b.max;
}

// Whether a sum of normal operands is normal as it stands; false if that takes a longer look.
bool IsNormalSum(UOp sum, BoundsTable& table) {
  static constexpr OpSet kJoins = Op::kIdiv | Op::kMod;
  const UOp left = sum.src(0), right = sum.src(1);
  static constexpr OpSet kOpen = Op::kAdd | Op::kSub | Op::kNeg;
  if (!sum.is(Op::kAdd) || left.is_const() || right.is(kOpen)) return false;
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
    const int64_t want = SignedWrap(MulWrap(k, c.int_value()), sum.dtype.scalar);
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

// Takes k * (x // n + (x + 1) // n + ... + (x + n - 1) // n) out of the sum and gives back k * x:
// an unrolled count. Summands that are always 0 may be missing. Null if there is no such run.
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

}  // namespace

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
  int64_t constant = 1;
  for (int visits = 0; !pending.empty(); ++visits) {
    if (factors.size() + pending.size() > kMaxOperands || visits == kMaxVisits) return nullptr;
    const UOp u = pending.back();
    pending.pop_back();
    if (u.is(Op::kNeg)) constant = NegWrap(constant);
    if (u.is(Op::kMul | Op::kNeg)) {
      pending.insert(pending.end(), u.src().begin(), u.src().end());
      continue;
    }
    const Bounds b = table.Of(u);
    if (b.min == b.max) {
      constant = MulWrap(constant, b.min);
    } else if (u.is_const()) {
      constant = MulWrap(constant, u.int_value());
    } else {
      factors.push_back(u);
    }
  }
  const int64_t c = SignedWrap(constant, product.scalar());
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

}  // namespace beamd

// Simplification under a condition.
#include <algorithm>
#include <limits>
#include <optional>

#include "engine/symbolic/bounds.h"
#include "engine/symbolic/linear.h"
#include "engine/symbolic/memo.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
// Conjunctions with more clauses stay whole: each clause is simplified under all the others.
constexpr size_t kMaxClauses = 32;

bool IsNot(UOp u) {
  return u.is(Op::kCmpNe) && u.scalar() == Scalar::kBool && u.src(0).scalar() == Scalar::kBool &&
         u.src(1).is_const_int(1);
}

// x op c with a number that int64 holds.
bool ComparesToNumber(UOp u, Op op) {
  return u.is(op) && IsInt(u.src(0).scalar()) && u.src(1).is_const() &&
         (u.src(0).scalar() != Scalar::kUint64 || u.src(1).int_value() >= 0);
}

// What a clause that holds says: of the sum it bounds, or else of itself.
void AddFacts(UOp clause, std::vector<Fact>& facts) {
  const bool negated = IsNot(clause);
  const UOp inner = negated ? clause.src(0) : clause;
  // A uint64 that may be past int64 has no bounds to learn from.
  const UOp x = inner.src_count() > 0 ? inner.src(0) : inner;
  const bool known = x.scalar() != Scalar::kUint64 || BoundsOf(x).min >= 0;
  if (ComparesToNumber(inner, Op::kCmpLt) && known) {
    const int64_t c = inner.src(1).int_value();
    if (negated) {
      facts.push_back({x, {c, kMax}});
    } else if (c != kMin) {
      facts.push_back({x, {kMin, c - 1}});
    }
  } else if (negated && ComparesToNumber(inner, Op::kCmpNe)) {
    const int64_t c = inner.src(1).int_value();
    facts.push_back({x, {c, c}});
  } else {
    facts.push_back({inner, negated ? Bounds{0, 0} : Bounds{1, 1}});
  }
}

// The clauses of a simplified conjunction; itself if it has too many. Simplify leaves a longer one
// as it is, and its tree may be exponentially large.
std::vector<UOp> ClausesOf(UOp valid) {
  std::vector<UOp> clauses, pending{valid};
  while (!pending.empty()) {
    if (clauses.size() + pending.size() > kMaxClauses) return {valid};
    const UOp u = pending.back();
    pending.pop_back();
    if (u.is(Op::kAnd) && u.scalar() == Scalar::kBool) {
      pending.insert(pending.end(), u.src().rbegin(), u.src().rend());
    } else {
      clauses.push_back(u);
    }
  }
  return clauses;
}

std::vector<Fact> FactsOf(UOp valid) {
  std::vector<Fact> facts;
  for (const UOp clause : ClausesOf(valid)) AddFacts(clause, facts);
  return facts;
}

// u by cases: where a sum of non-negative terms is at least 1, one of them is. If every case has
// the same answer, it is the answer.
UOp SimplifyByCases(UOp u, const std::vector<Fact>& facts) {
  // Bounds change nothing in a plain sum.
  static constexpr OpSet kDecided =
      Op::kIdiv | Op::kMod | Op::kMax | Op::kCmpLt | Op::kCmpNe | Op::kWhere;
  if (std::ranges::none_of(Toposort(u), [](UOp n) { return n.is(kDecided); })) return u;
  SymbolicMemo& memo = SymbolicMemo::Of(u.graph());
  for (const Fact& fact : facts) {
    if (fact.bounds.min != 1 || !fact.expr.is(Op::kAdd)) continue;
    const std::optional<LinearForm> sum = Linearise(fact.expr, memo.bounds());
    if (!sum || sum->constant != 0) continue;
    UOp answer;
    for (const Term& t : sum->terms) {
      std::vector<Fact> with = facts;
      with.push_back({t.base, {1, kMax}});
      // Null: this case never happens.
      const UOp out = t.coef == 1 && BoundsOf(t.base).min >= 0 ? memo.SimplifyAssuming(u, with) : u;
      if (!out) continue;
      if (out == u || (answer && answer != out)) {
        answer = nullptr;
        break;
      }
      answer = out;
    }
    if (answer) u = answer;
  }
  return u;
}

// Null where valid never holds.
UOp SimplifyWhere(UOp u, UOp valid) {
  const std::vector<Fact> facts = FactsOf(valid);
  SymbolicMemo& memo = SymbolicMemo::Of(u.graph());
  const UOp out = memo.SimplifyAssuming(u, facts);
  return out ? memo.Simplify(SimplifyByCases(out, facts)) : out;
}

// true & ... of clauses that aren't false.
UOp Conjunction(const std::vector<UOp>& clauses, UOp like) {
  UOp all = like.ConstLike(1);
  for (const UOp c : clauses) all = all.is_const() ? c : all & c;
  return all;
}

}  // namespace

UOp SimplifyGiven(UOp u, UOp valid) {
  const UOp simple = Simplify(u), condition = Simplify(valid);
  if (condition.is_const()) return simple;
  const UOp out = SimplifyWhere(simple, condition);
  return out ? out : simple;
}

UOp SimplifyValid(UOp valid) {
  const UOp simple = Simplify(valid);
  std::vector<UOp> clauses = ClausesOf(simple);
  if (clauses.size() < 2) return simple;
  for (size_t i = 0; i < clauses.size(); ++i) {
    std::vector<UOp> others = clauses;
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    const UOp condition = Conjunction(others, simple);
    if (condition.is_const()) continue;
    const UOp out = SimplifyWhere(clauses[i], condition);
    if (!out || out.is_const_int(0)) return simple.ConstLike(0);
    clauses[i] = out;
  }
  return Simplify(Conjunction(clauses, simple));
}

}  // namespace beamd

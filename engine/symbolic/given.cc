// Simplification under a condition.
#include <algorithm>
#include <limits>
#include <utility>

#include "engine/symbolic/bounds.h"
#include "engine/symbolic/memo.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
// Conjunctions with more clauses keep them: each clause is simplified under all the others.
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
  if (ComparesToNumber(inner, Op::kCmpLt)) {
    const int64_t c = inner.src(1).int_value();
    if (negated) {
      facts.push_back({inner.src(0), {c, kMax}});
    } else if (c != kMin) {
      facts.push_back({inner.src(0), {kMin, c - 1}});
    }
  } else if (negated && ComparesToNumber(inner, Op::kCmpNe)) {
    const int64_t c = inner.src(1).int_value();
    facts.push_back({inner.src(0), {c, c}});
  } else {
    facts.push_back({inner, negated ? Bounds{0, 0} : Bounds{1, 1}});
  }
}

std::vector<Fact> FactsOf(UOp valid) {
  std::vector<Fact> facts;
  for (const UOp clause : SplitAssociative(valid, Op::kAnd)) AddFacts(clause, facts);
  return facts;
}

// u by cases: where a sum of non-negative terms is at least 1, one of them is. If every case has the
// same answer, it is the answer.
UOp SimplifyByCases(UOp u, const std::vector<Fact>& facts) {
  // Bounds change nothing in a plain sum.
  static constexpr OpSet kDecided =
      Op::kIdiv | Op::kMod | Op::kMax | Op::kCmpLt | Op::kCmpNe | Op::kWhere;
  if (std::ranges::none_of(Toposort(u), [](UOp n) { return n.is(kDecided); })) return u;
  SymbolicMemo& memo = SymbolicMemo::Of(u.graph());
  for (const Fact& fact : facts) {
    if (fact.bounds.min != 1 || !fact.expr.is(Op::kAdd)) continue;
    const std::vector<UOp> terms = SplitAssociative(fact.expr, Op::kAdd);
    if (terms.size() > kMaxClauses) continue;
    UOp answer;
    for (const UOp t : terms) {
      std::vector<Fact> with = facts;
      with.push_back({t, {1, kMax}});
      // Null: this case never happens.
      const UOp out = BoundsOf(t).min >= 0 ? memo.SimplifyAssuming(u, std::move(with)) : u;
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
  std::vector<UOp> clauses = SplitAssociative(simple, Op::kAnd);
  if (clauses.size() < 2 || clauses.size() > kMaxClauses) return simple;
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

// Integer reasoning over index expressions: bounds, identities, div/mod and validity folding.
//
// Expressions are nodes of integer or bool dtype over CONST, DEFINE_VAR, RANGE, SPECIAL, LOAD and
// ALU ops. Index expressions are int64 everywhere between shape/ and the last lowering passes.
// IDIV and MOD truncate toward zero, x/0 = 0, x%0 = 0 (SEMANTICS "Values"): every identity here
// holds for them. Answers to tinygrad 0.10.0 ops.py (symbolic, vmin/vmax).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/rewrite/rule_table.h"
#include "engine/uop/uop.h"

namespace beamd {

// The rules of Simplify, to be joined with a pass's own. They keep what they learn in the graph.
const RuleTable& SymbolicRules();

// Inclusive. Of a uint64 expression: as for int64, where it provably fits, else all of int64.
struct Bounds {
  int64_t min = 0;
  int64_t max = 0;
  bool operator==(const Bounds&) const = default;
};

// Values that an integer or bool expression can take. Overflow of the dtype widens to the dtype's
// range. Memoised per call over the whole graph below `u`; linear.
Bounds BoundsOf(UOp u);

// Rewrites to a fixed point with the symbolic rules: equal value at every point. Bounded work:
// gives back what it has when the rules don't settle.
UOp Simplify(UOp u);

// `u` simplified where `valid` (a conjunction, bool) holds; elsewhere its value is free.
// 0.10.0: uop_given_valid.
UOp SimplifyGiven(UOp u, UOp valid);

// A conjunction with redundant clauses dropped and each clause simplified given the others.
// 0.10.0: simplify_valid.
UOp SimplifyValid(UOp valid);

// Operands of a tree of one associative op, left to right; {u} if its root is another op.
std::vector<UOp> SplitAssociative(UOp u, Op op);

// The largest known constant that divides every value of u; at least 1. Looks into remainders,
// maxima and selections too, unlike 0.10.0 const_factor.
int64_t ConstFactor(UOp u);

// u / v where v divides it exactly, else nullopt (0.10.0: divides).
std::optional<UOp> DividesBy(UOp u, int64_t v);

// The value of an integer or bool expression where each leaf (RANGE, DEFINE_VAR, SPECIAL) has a
// value: values[i] is leaves[i]'s. Exactly SEMANTICS; for tests and enumeration. nullopt if a leaf
// has none.
std::optional<int64_t> EvaluateInt(UOp u, const std::vector<UOp>& leaves,
                                   const std::vector<int64_t>& values);

}  // namespace beamd

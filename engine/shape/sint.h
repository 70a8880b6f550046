// A size: a number or an int64 expression over variables. Arithmetic folds numbers at once and
// simplifies expressions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/uop/uop.h"

namespace beamd {

class SInt {
 public:
  constexpr SInt() = default;
  constexpr SInt(int64_t value) : value_(value) {}
  constexpr SInt(int value) : value_(value) {}
  // `expr` is widened to int64 (the wire's sizes are int32 nodes) and simplified; a constant
  // becomes a number.
  explicit SInt(UOp expr);

  bool is_number() const { return !expr_; }
  // Requires is_number().
  int64_t number() const;
  // Null for a number.
  UOp expr() const { return expr_; }
  // The expression in `graph`, of int64.
  UOp ToUOp(UOpGraph& graph) const;

  // Bounds over all values of the variables.
  int64_t min() const;
  int64_t max() const;

  // Structural: the same number, or the same expression of one graph.
  bool operator==(const SInt&) const = default;

  // Expressions stay in the graph of the first operand that is one. Wraps, as every int64 does.
  friend SInt operator+(const SInt& a, const SInt& b) {
    if (BothNumbers(a, b)) return Wrapped(Word(a) + Word(b));
    return Expression(Op::kAdd, a, b);
  }
  friend SInt operator-(const SInt& a, const SInt& b) {
    if (BothNumbers(a, b)) return Wrapped(Word(a) - Word(b));
    return Expression(Op::kSub, a, b);
  }
  friend SInt operator*(const SInt& a, const SInt& b) {
    if (BothNumbers(a, b)) return Wrapped(Word(a) * Word(b));
    return Expression(Op::kMul, a, b);
  }
  // Truncating, as IDIV and MOD.
  friend SInt operator/(const SInt& a, const SInt& b);
  friend SInt operator%(const SInt& a, const SInt& b);
  friend SInt Max(const SInt& a, const SInt& b);

 private:
  static bool BothNumbers(const SInt& a, const SInt& b) { return !a.expr_ && !b.expr_; }
  static uint64_t Word(const SInt& a) { return static_cast<uint64_t>(a.value_); }
  static SInt Wrapped(uint64_t word) { return SInt(static_cast<int64_t>(word)); }
  static SInt Expression(Op op, const SInt& a, const SInt& b);

  int64_t value_ = 0;
  UOp expr_;
};

SInt Max(const SInt& a, const SInt& b);
SInt Min(const SInt& a, const SInt& b);

// True if proven for every value of the variables. "May" versions are the negations of the
// opposite.
bool ProvenLt(const SInt& a, const SInt& b);
bool ProvenLe(const SInt& a, const SInt& b);
bool ProvenEq(const SInt& a, const SInt& b);
bool ProvenNe(const SInt& a, const SInt& b);

SInt Prod(std::span<const SInt> values);
bool AllNumbers(std::span<const SInt> values);
// "12", "(start_pos+1)".
std::string ToString(const SInt& v);

}  // namespace beamd

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
  constexpr SInt(int64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  constexpr SInt(int value) : value_(value) {}      // NOLINT(google-explicit-constructor)
  // `expr` is simplified; a constant becomes a number.
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

  // Structural: the same number or the same expression.
  bool operator==(const SInt&) const = default;

  friend SInt operator+(const SInt& a, const SInt& b);
  friend SInt operator-(const SInt& a, const SInt& b);
  friend SInt operator*(const SInt& a, const SInt& b);
  // Truncating, as IDIV and MOD.
  friend SInt operator/(const SInt& a, const SInt& b);
  friend SInt operator%(const SInt& a, const SInt& b);

 private:
  int64_t value_ = 0;
  UOp expr_;
};

// True if proven for every value of the variables. "May" versions are the negations of the
// opposite.
bool ProvenLt(const SInt& a, const SInt& b);
bool ProvenLe(const SInt& a, const SInt& b);
bool ProvenEq(const SInt& a, const SInt& b);

SInt Prod(std::span<const SInt> values);
std::string ToString(const SInt& v);

}  // namespace beamd

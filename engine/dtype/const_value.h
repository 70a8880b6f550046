// A constant of Python's kind: a bool, an integer or a float, before it has a dtype.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>

#include "engine/dtype/dtype.h"

namespace beamd {

class ConstValue {
 public:
  enum class Kind : uint8_t { kBool, kInt, kFloat };

  constexpr ConstValue() = default;
  constexpr ConstValue(bool v) : kind_(Kind::kBool), int_(v ? 1 : 0) {}
  template <std::integral T>
  constexpr ConstValue(T v) : kind_(Kind::kInt), int_(static_cast<int64_t>(v)) {}
  template <std::floating_point T>
  constexpr ConstValue(T v) : kind_(Kind::kFloat), float_(static_cast<double>(v)) {}

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_float() const { return kind_ == Kind::kFloat; }
  // Of a bool or an integer. uint64 values above int64's are their two's-complement bits.
  constexpr int64_t as_int() const { return int_; }
  // Of any kind.
  constexpr double as_float() const {
    return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_);
  }

  // The value of `dtype` nearest to this one, which is one of `from` if it is an integer (only
  // uint64 reads it another way): integers wrap, floats round to nearest even; a float becomes an
  // integer truncated and saturated, NaN as 0; bool is v != 0. The result's kind is that of
  // `dtype`. (SEMANTICS "Values", CAST; 0.10.0: as_const)
  ConstValue As(Scalar dtype, Scalar from = Scalar::kInt64) const;

  // Same kind and bits: NaN equals NaN, 0.0 and -0.0 differ.
  bool operator==(const ConstValue& other) const;
  // The number equals `v`, whatever its kind; -0.0 counts as 0.
  bool Is(int64_t v) const { return is_float() ? float_ == static_cast<double>(v) : int_ == v; }
  bool IsNegativeZero() const;
  uint64_t Bits() const;

 private:
  Kind kind_ = Kind::kInt;
  int64_t int_ = 0;
  double float_ = 0;
};

// "2", "2.5", "true", "inf".
std::string ToString(const ConstValue& v);

}  // namespace beamd

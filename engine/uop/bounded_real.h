// Floats with the error that SEMANTICS "Equal" gives them.
//
// The table's rules, and what it leaves open: an infinity or NaN that the operands make certain has
// error 0, so that it is compared and not skipped; one that they don't, an infinite error. So has a
// reciprocal, quotient, root or logarithm of what its error may lift over 0, from either side.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "engine/dtype/dtype.h"

namespace beamd {

// A value, and how far another implementation's may lie from it (half of what is tolerated).
struct BoundedReal {
  // An error that says that nothing is known.
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  double v = 0, e = 0;
  bool known() const { return e < kUnknown; }
};

// u of the table: half a unit in the last place of 1.
constexpr double Unit(Scalar s) {
  return s == Scalar::kFloat32    ? 0x1p-24
         : s == Scalar::kFloat16  ? 0x1p-11
         : s == Scalar::kBFloat16 ? 0x1p-8
                                  : 0x1p-53;
}
// Half the distance of two neighbours below the least normal value; 0 where doubles hold no less.
constexpr double SubnormalUnit(Scalar s) {
  return s == Scalar::kFloat32    ? 0x1p-150
         : s == Scalar::kFloat16  ? 0x1p-25
         : s == Scalar::kBFloat16 ? 0x1p-134
                                  : 0;
}
double MaxFinite(Scalar s);

namespace internal {
BoundedReal SettleNonFinite(double rounded, double exact, double propagated, double roundings,
                            Scalar s, std::initializer_list<BoundedReal> operands);
}  // namespace internal

// The result of an op of dtype `s`. `exact`: its value before rounding; `propagated`: the error
// that comes from the operands, not finite if one of theirs isn't; `roundings`: how many u of its
// value are added.
inline BoundedReal Settle(double exact, double propagated, double roundings, Scalar s,
                          std::initializer_list<BoundedReal> operands) {
  const double v = s == Scalar::kFloat32 ? static_cast<double>(static_cast<float>(exact))
                                         : RoundToFloat(exact, s);
  if (!std::isfinite(v)) {
    return internal::SettleNonFinite(v, exact, propagated, roundings, s, operands);
  }
  // u of a subnormal value is less than the rounding that an error before it can turn around.
  const double unit = Unit(s) * std::abs(v);
  const double rounding = propagated > 0 ? std::max(unit, SubnormalUnit(s)) : unit;
  const double e = propagated + roundings * rounding;
  return {v, e < BoundedReal::kUnknown ? e : BoundedReal::kUnknown};
}

// Ops of a float dtype `s`.
inline BoundedReal Add(BoundedReal a, BoundedReal b, Scalar s) {
  return Settle(a.v + b.v, a.e + b.e, 1, s, {a, b});
}
inline BoundedReal Multiply(BoundedReal a, BoundedReal b, Scalar s) {
  return Settle(a.v * b.v, std::abs(a.v) * b.e + std::abs(b.v) * a.e + a.e * b.e, 1, s, {a, b});
}
BoundedReal Divide(BoundedReal a, BoundedReal b, Scalar s);
BoundedReal Reciprocal(BoundedReal a, Scalar s);
BoundedReal SquareRoot(BoundedReal a, Scalar s);
BoundedReal Exp2(BoundedReal a, Scalar s);
BoundedReal Log2(BoundedReal a, Scalar s);
BoundedReal Sine(BoundedReal a, Scalar s);
BoundedReal Maximum(BoundedReal a, BoundedReal b);
// To another float dtype.
BoundedReal Convert(BoundedReal a, Scalar to);
BoundedReal Convert(int64_t v, Scalar from, Scalar to);

// Whether the errors leave open how two floats compare.
bool ComparisonIsOpen(BoundedReal a, BoundedReal b);
// To an integer or bool: the value, and whether the error leaves it open.
int64_t Truncate(double v, Scalar to);
bool TruncationIsOpen(BoundedReal a, Scalar to);

}  // namespace beamd

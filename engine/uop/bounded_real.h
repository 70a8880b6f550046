// Floats with the error that SEMANTICS "Equal" gives them.
//
// The table's rules, and what it leaves open: an infinity or NaN that the operands make certain has error
// 0, so that it is compared and not skipped; one that they don't, an infinite error.
#pragma once

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
double Unit(Scalar s);
// Half the distance of two neighbours below the least normal value.
double SubnormalUnit(Scalar s);
double MaxFinite(Scalar s);

// The result of an op of dtype `s`. `exact`: its value before rounding; `propagated`: the error that
// comes from the operands; `roundings`: how many u of its value are added.
BoundedReal Settle(double exact, double propagated, double roundings, Scalar s,
                   std::initializer_list<BoundedReal> operands);

// Ops of a float dtype `s`.
BoundedReal Add(BoundedReal a, BoundedReal b, Scalar s);
BoundedReal Multiply(BoundedReal a, BoundedReal b, Scalar s);
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

#include "engine/uop/bounded_real.h"

#include <cfloat>
#include <cmath>

namespace beamd {

double MaxFinite(Scalar s) {
  switch (s) {
    case Scalar::kFloat16:
      return 65504;
    case Scalar::kBFloat16:
      return 0x1.FEp127;
    case Scalar::kFloat32:
      return FLT_MAX;
    default:
      return DBL_MAX;
  }
}

namespace internal {

BoundedReal SettleNonFinite(double rounded, double exact, double propagated, double roundings,
                            Scalar s, std::initializer_list<BoundedReal> operands) {
  BoundedReal r{rounded, BoundedReal::kUnknown};
  bool known = true, finite = true, precise = true, may_be_zero = false;
  for (const BoundedReal& o : operands) {
    known &= o.known();
    finite &= std::isfinite(o.v);
    precise &= o.e == 0;
    may_be_zero |= o.e > 0 && std::abs(o.v) <= o.e;
  }
  if (!known) return r;
  if (!finite) {
    // An infinite operand decides whatever the others' errors, but a product with what may be zero
    // or of either sign, whose propagated error is infinite.
    r.e = may_be_zero && !(propagated < BoundedReal::kUnknown) ? BoundedReal::kUnknown : 0;
  } else if (std::isfinite(exact)) {
    // Too large for the dtype: certain if it would be with the error too.
    const double e = propagated + roundings * Unit(s) * std::abs(exact);
    r.e = std::abs(exact) - e > MaxFinite(s) ? 0 : BoundedReal::kUnknown;
  } else {
    r.e = precise ? 0 : BoundedReal::kUnknown;  // a pole, or outside of the domain
  }
  return r;
}

}  // namespace internal

namespace {

// Whether the error leaves open on which side of 0 a value lies: there a pole or the end of a
// domain may be, whichever side the value itself has.
bool SignIsOpen(BoundedReal a) { return a.e > 0 && std::abs(a.v) <= a.e; }

BoundedReal Unknown(double v) { return {v, BoundedReal::kUnknown}; }

}  // namespace

BoundedReal Reciprocal(BoundedReal a, Scalar s) {
  if (SignIsOpen(a)) return Unknown(RoundToFloat(1 / a.v, s));
  const double e = a.e == 0 ? 0 : 2 * a.e / (a.v * a.v);
  return Settle(1 / a.v, e, 1, s, {a});
}

BoundedReal Divide(BoundedReal a, BoundedReal b, Scalar s) {
  if (SignIsOpen(b) && !std::isnan(a.v)) return Unknown(RoundToFloat(a.v / b.v, s));
  const double r = 1 / b.v, re = b.e == 0 ? 0 : 2 * b.e / (b.v * b.v);
  const double e =
      (re == 0 ? 0 : std::abs(a.v) * re) + (a.e == 0 ? 0 : std::abs(r) * a.e + a.e * re);
  return Settle(a.v / b.v, e, 1, s, {a, b});
}

BoundedReal SquareRoot(BoundedReal a, Scalar s) {
  const double v = std::sqrt(a.v);
  if (SignIsOpen(a)) return Unknown(RoundToFloat(v, s));
  if (a.v < 0 && a.e < BoundedReal::kUnknown) return {v, 0};
  return Settle(v, a.e == 0 ? 0 : a.e / v, 1, s, {a});
}

namespace {

// f16 and bf16 are rounded from f32.
double ThroughFloat(double v, Scalar s) {
  return SizeBytes(s) == 2 ? static_cast<double>(static_cast<float>(v)) : v;
}

// `f` of a, in more than the precision of s.
template <typename Function>
double Precisely(Function f, double a, Scalar s) {
  return s == Scalar::kFloat64 ? static_cast<double>(f(static_cast<long double>(a)))
                               : ThroughFloat(f(a), s);
}

}  // namespace

BoundedReal Exp2(BoundedReal a, Scalar s) {
  const double v = Precisely([](auto x) { return std::exp2(x); }, a.v, s);
  return Settle(v, a.e == 0 ? 0 : v * std::expm1(a.e * M_LN2), 4, s, {a});
}

BoundedReal Log2(BoundedReal a, Scalar s) {
  const double v = Precisely([](auto x) { return std::log2(x); }, a.v, s);
  if (SignIsOpen(a)) return Unknown(RoundToFloat(v, s));
  if (a.v < 0 && a.e < BoundedReal::kUnknown) return {v, 0};
  return Settle(v, a.e == 0 ? 0 : 2.9 * a.e / std::abs(a.v), 4, s, {a});
}

BoundedReal Sine(BoundedReal a, Scalar s) {
  const double v = Precisely([](auto x) { return std::sin(x); }, a.v, s);
  return Settle(v, a.e + 1e-7, 4, s, {a});
}

BoundedReal Maximum(BoundedReal a, BoundedReal b) {
  BoundedReal r{0, std::max(a.e, b.e)};
  if (std::isnan(a.v) || std::isnan(b.v)) {
    r.v = std::numeric_limits<double>::quiet_NaN();
  } else if (a.v == b.v) {
    r.v = std::signbit(a.v) ? b.v : a.v;  // +0 above -0
  } else {
    r.v = std::max(a.v, b.v);
  }
  if (!std::isfinite(r.v) && r.e < BoundedReal::kUnknown) r.e = 0;
  return r;
}

bool ComparisonIsOpen(BoundedReal a, BoundedReal b) {
  if (!(a.e < BoundedReal::kUnknown && b.e < BoundedReal::kUnknown)) return true;
  if (a.e + b.e == 0 || std::isnan(a.v) || std::isnan(b.v)) return false;
  return std::abs(a.v - b.v) <= a.e + b.e;
}

// SEMANTICS: truncates, saturates, NaN gives 0.
int64_t Truncate(double v, Scalar to) {
  if (to == Scalar::kBool) return v != 0 ? 1 : 0;
  if (std::isnan(v)) return 0;
  if (to == Scalar::kUint64) {
    if (v >= 0x1p64) return -1;
    return v <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(v));
  }
  const int64_t lo = MinInt(to), hi = MaxInt(to);
  if (v <= static_cast<double>(lo)) return lo;
  if (v >= static_cast<double>(hi)) return hi;
  return static_cast<int64_t>(v);
}

bool TruncationIsOpen(BoundedReal a, Scalar to) {
  if (!a.known()) return true;
  if (to == Scalar::kBool) return a.e > 0 && std::abs(a.v) <= a.e;
  return a.e > 0 && Truncate(a.v - a.e, to) != Truncate(a.v + a.e, to);
}

BoundedReal Convert(BoundedReal a, Scalar to) { return Settle(a.v, a.e, 1, to, {a}); }

BoundedReal Convert(int64_t v, Scalar from, Scalar to) {
  return Settle(IntToFloat(v, from, to), 0, 1, to, {});
}

}  // namespace beamd

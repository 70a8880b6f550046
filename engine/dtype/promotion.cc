#include "engine/dtype/promotion.h"

#include <array>
#include <bit>
#include <cstdint>

namespace beamd {
namespace {

using Set = uint32_t;

constexpr Set Bit(Scalar s) { return Set{1} << static_cast<int>(s); }

// Direct successors in the lattice.
constexpr Set Above(Scalar s) {
  switch (s) {
    case Scalar::kBool:
      return Bit(Scalar::kInt8) | Bit(Scalar::kUint8);
    case Scalar::kInt8:
      return Bit(Scalar::kInt16);
    case Scalar::kUint8:
      return Bit(Scalar::kInt16) | Bit(Scalar::kUint16);
    case Scalar::kInt16:
      return Bit(Scalar::kInt32);
    case Scalar::kUint16:
      return Bit(Scalar::kInt32) | Bit(Scalar::kUint32);
    case Scalar::kInt32:
      return Bit(Scalar::kInt64);
    case Scalar::kUint32:
      return Bit(Scalar::kInt64) | Bit(Scalar::kUint64);
    case Scalar::kInt64:
    case Scalar::kUint64:
      return Bit(Scalar::kFloat16) | Bit(Scalar::kBFloat16);
    case Scalar::kFloat16:
    case Scalar::kBFloat16:
      return Bit(Scalar::kFloat32);
    case Scalar::kFloat32:
      return Bit(Scalar::kFloat64);
    case Scalar::kVoid:
    case Scalar::kFloat64:
      return 0;
  }
  return 0;
}

// Everything at or above a scalar. Successors have greater values, so one sweep from the top does.
constexpr std::array<Set, kScalarCount> Closure() {
  std::array<Set, kScalarCount> closure{};
  for (int i = kScalarCount - 1; i >= 0; --i) {
    const auto s = static_cast<Scalar>(i);
    closure[i] = Bit(s);
    for (int j = i + 1; j < kScalarCount; ++j) {
      if ((Above(s) & Bit(static_cast<Scalar>(j))) != 0) closure[i] |= closure[j];
    }
  }
  return closure;
}
constexpr std::array<Set, kScalarCount> kAtOrAbove = Closure();

}  // namespace

Scalar LeastUpperDType(std::span<const Scalar> dtypes) {
  Set common = ~Set{0};
  for (Scalar s : dtypes) common &= kAtOrAbove[static_cast<int>(s)];
  return static_cast<Scalar>(std::countr_zero(common));
}

Scalar LeastUpperFloat(Scalar s) { return IsFloat(s) ? s : LeastUpperDType({s, Scalar::kFloat32}); }

Scalar SumAccDType(Scalar s) {
  if (IsUnsigned(s)) return LeastUpperDType({s, Scalar::kUint32});
  if (IsInt(s) || s == Scalar::kBool) return LeastUpperDType({s, Scalar::kInt32});
  return LeastUpperDType({s, Scalar::kFloat32});
}

}  // namespace beamd

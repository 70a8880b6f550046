// The types that values and buffers have: a scalar kind, a lane count, and for buffers an address
// space or an image shape. Eight bytes, a value, comparable.
//
// Spec: contract of the wire form (proto/beamd/v1/ast.proto, DType); ranges as in SEMANTICS of each
// op. tinygrad 0.10.0 dtype.py answers to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace beamd {

// Values are the wire's Scalar: stable, append only.
enum class Scalar : uint8_t {
  kVoid = 0,
  kBool = 1,
  kInt8 = 2,
  kUint8 = 3,
  kInt16 = 4,
  kUint16 = 5,
  kInt32 = 6,
  kUint32 = 7,
  kInt64 = 8,
  kUint64 = 9,
  kFloat16 = 10,
  kBFloat16 = 11,
  kFloat32 = 12,
  kFloat64 = 13,
};
inline constexpr int kScalarCount = 14;

// Values are the wire's AddressSpace.
enum class AddressSpace : uint8_t { kNone = 0, kGlobal = 1, kLocal = 2 };

// Size of one element in memory, in bytes: bool is 1, void 0.
int SizeBytes(Scalar s);
// Width in bits of an integer or float; bool is 1, void 0.
int Bits(Scalar s);
constexpr bool IsFloat(Scalar s) { return s >= Scalar::kFloat16 && s <= Scalar::kFloat64; }
// Integers without bool.
constexpr bool IsInt(Scalar s) { return s >= Scalar::kInt8 && s <= Scalar::kUint64; }
constexpr bool IsUnsigned(Scalar s) {
  return s == Scalar::kUint8 || s == Scalar::kUint16 || s == Scalar::kUint32 ||
         s == Scalar::kUint64;
}
constexpr bool IsSigned(Scalar s) { return IsInt(s) && !IsUnsigned(s); }
// Least and greatest value of an integer scalar as int64 (uint64's greatest as its bits, -1); bool
// 0 and 1.
int64_t MinInt(Scalar s);
int64_t MaxInt(Scalar s);
// `value` wrapped to the width of `s` (two's complement), sign- or zero-extended to 64 bits; for
// bool, value != 0. Identity for floats.
int64_t WrapInt(int64_t value, Scalar s);
// `value` rounded to the nearest value of a float scalar, ties to even; NaN stays NaN.
double RoundToFloat(double value, Scalar s);
// `value` of an integer scalar or bool `from`, as WrapInt leaves it, rounded once to the nearest
// value of a float scalar `to`, ties to even; too large for float16 is infinite.
double IntToFloat(int64_t value, Scalar from, Scalar to);
// Elements in memory, little-endian: floats (a store rounds), and integers and bool (a store
// wraps).
double LoadFloat(const void* at, Scalar s);
void StoreFloat(double value, Scalar s, void* at);
int64_t LoadInt(const void* at, Scalar s);
void StoreInt(int64_t value, Scalar s, void* at);
// "float32", "bool", ...
absl::string_view Name(Scalar s);
std::optional<Scalar> ScalarFromName(absl::string_view name);

struct DType {
  Scalar scalar = Scalar::kVoid;
  AddressSpace space = AddressSpace::kNone;  // not kNone: a pointer to `scalar`
  uint16_t lanes = 1;                        // at least 1
  uint16_t image_height = 0;                 // not 0: an image of height x width texels of four
  uint16_t image_width = 0;

  constexpr DType() = default;
  constexpr DType(Scalar s) : scalar(s) {}  // a scalar is a type
  constexpr DType(Scalar s, int lane_count) : scalar(s), lanes(static_cast<uint16_t>(lane_count)) {}

  static constexpr DType Pointer(Scalar s, AddressSpace space) {
    DType t(s);
    t.space = space;
    return t;
  }
  constexpr bool is_pointer() const { return space != AddressSpace::kNone; }
  constexpr bool is_image() const { return image_height != 0; }
  constexpr bool is_void() const { return scalar == Scalar::kVoid; }
  constexpr DType WithLanes(int lane_count) const {
    DType t = *this;
    t.lanes = static_cast<uint16_t>(lane_count);
    return t;
  }
  constexpr DType WithScalar(Scalar s) const {
    DType t = *this;
    t.scalar = s;
    return t;
  }
  constexpr bool operator==(const DType&) const = default;
  // All eight bytes as one word: for hashing.
  constexpr uint64_t Bits64() const {
    return uint64_t(scalar) | uint64_t(space) << 8 | uint64_t(lanes) << 16 |
           uint64_t(image_height) << 32 | uint64_t(image_width) << 48;
  }
};
static_assert(sizeof(DType) == 8);

// "float32", "float32x4", "global float32*", "image(8,16,4) float16".
std::string ToString(DType t);

}  // namespace beamd

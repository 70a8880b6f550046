// The types of elements, and what two of them meet in.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd::thin {

using DType = v1::Scalar;

inline constexpr DType kBool = v1::SCALAR_BOOL;
inline constexpr DType kInt8 = v1::SCALAR_INT8;
inline constexpr DType kUint8 = v1::SCALAR_UINT8;
inline constexpr DType kInt16 = v1::SCALAR_INT16;
inline constexpr DType kUint16 = v1::SCALAR_UINT16;
inline constexpr DType kInt32 = v1::SCALAR_INT32;
inline constexpr DType kUint32 = v1::SCALAR_UINT32;
inline constexpr DType kInt64 = v1::SCALAR_INT64;
inline constexpr DType kUint64 = v1::SCALAR_UINT64;
inline constexpr DType kFloat16 = v1::SCALAR_FLOAT16;
inline constexpr DType kBFloat16 = v1::SCALAR_BFLOAT16;
inline constexpr DType kFloat32 = v1::SCALAR_FLOAT32;
inline constexpr DType kFloat64 = v1::SCALAR_FLOAT64;

// "float32".
std::string Name(DType dtype);
// Of an element in memory; 0 for what is no type of elements.
int64_t SizeBytes(DType dtype);
bool IsFloat(DType dtype);
bool IsSigned(DType dtype);  // of integers
inline bool IsInt(DType dtype) { return dtype >= kInt8 && dtype <= kUint64; }

// A float wins over an integer, an integer over bool. Of two floats the wider, float32 for float16
// with bfloat16. Of two integers the wider, but where the wider is unsigned and the other signed,
// the next wider signed one; float32 where there is none (uint64 with a signed one).
DType Promote(DType a, DType b);
// What sums of it are added in: at least 32 bits.
DType SumDType(DType dtype);
// A float as it is, float32 for all others.
inline DType FloatOf(DType dtype) { return IsFloat(dtype) ? dtype : kFloat32; }

// The type of elements that a C++ number is.
template <typename T>
constexpr DType DTypeOf() {
  static_assert(std::is_arithmetic_v<T>, "numbers only");
  if constexpr (std::is_same_v<T, bool>) return kBool;
  if constexpr (std::is_same_v<T, float>) return kFloat32;
  if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof(T) <= 8, "no long double");
    return sizeof(T) == 8 ? kFloat64 : kFloat32;
  } else {
    switch (sizeof(T)) {
      case 1:
        return std::is_signed_v<T> ? kInt8 : kUint8;
      case 2:
        return std::is_signed_v<T> ? kInt16 : kUint16;
      case 4:
        return std::is_signed_v<T> ? kInt32 : kUint32;
      default:
        return std::is_signed_v<T> ? kInt64 : kUint64;
    }
  }
}

}  // namespace beamd::thin

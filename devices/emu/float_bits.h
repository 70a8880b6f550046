// float16 and bfloat16 as bits, and back.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace beamd {

inline float HalfToFloat(uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

// To nearest, ties to even; NaN stays NaN.
inline uint16_t FloatToHalf(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

inline float Bfloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// To nearest, ties to even; NaN stays NaN, sub-normals stay.
inline uint16_t FloatToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Rounded once: the way through float32 keeps in its last bit whether something was lost.
inline uint16_t DoubleToBfloat16(double value) {
  const auto near = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(near);
  if (!std::isnan(value) && !std::isinf(near) && static_cast<double>(near) != value) {
    // Toward zero, then odd.
    if (std::abs(static_cast<double>(near)) > std::abs(value)) --bits;
    bits |= 1;
  }
  return FloatToBfloat16(std::bit_cast<float>(bits));
}

}  // namespace beamd

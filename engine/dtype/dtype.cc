#include "engine/dtype/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"

namespace beamd {
namespace {

struct ScalarInfo {
  absl::string_view name;
  int size_bytes, bits;
};
constexpr ScalarInfo kInfo[] = {{"void", 0, 0},     {"bool", 1, 1},     {"int8", 1, 8},
                                {"uint8", 1, 8},    {"int16", 2, 16},   {"uint16", 2, 16},
                                {"int32", 4, 32},   {"uint32", 4, 32},  {"int64", 8, 64},
                                {"uint64", 8, 64},  {"float16", 2, 16}, {"bfloat16", 2, 16},
                                {"float32", 4, 32}, {"float64", 8, 64}};
static_assert(std::size(kInfo) == kScalarCount);

const ScalarInfo& Info(Scalar s) { return kInfo[static_cast<int>(s)]; }

}  // namespace

int SizeBytes(Scalar s) { return Info(s).size_bytes; }
int Bits(Scalar s) { return Info(s).bits; }
absl::string_view Name(Scalar s) { return Info(s).name; }

int64_t MinInt(Scalar s) {
  return IsSigned(s) ? static_cast<int64_t>(~uint64_t{0} << (Bits(s) - 1)) : 0;
}

int64_t MaxInt(Scalar s) {
  const int bits = Bits(s);
  if (IsSigned(s)) return static_cast<int64_t>(~(~uint64_t{0} << (bits - 1)));
  return bits == 64 ? -1 : static_cast<int64_t>(~(~uint64_t{0} << bits));
}

int64_t WrapInt(int64_t value, Scalar s) {
  if (s == Scalar::kBool) return value != 0;
  if (!IsInt(s) || Bits(s) == 64) return value;
  const int shift = 64 - Bits(s);
  const uint64_t top = static_cast<uint64_t>(value) << shift;
  return IsSigned(s) ? static_cast<int64_t>(top) >> shift : static_cast<int64_t>(top >> shift);
}

double RoundToFloat(double value, Scalar s) {
  switch (s) {
    case Scalar::kFloat32:
      return static_cast<double>(static_cast<float>(value));
    case Scalar::kFloat16:
    case Scalar::kBFloat16: {
      if (!std::isfinite(value) || value == 0) return value;
      // Mantissa bits with the hidden one; least exponent of a normal number.
      const int precision = s == Scalar::kFloat16 ? 11 : 8;
      const int min_exponent = s == Scalar::kFloat16 ? -14 : -126;
      const double max = s == Scalar::kFloat16 ? 65504.0 : 0x1.FEp127;
      const int exponent = std::max(std::ilogb(value), min_exponent);
      const double ulp = std::ldexp(1.0, exponent - precision + 1);
      const double rounded = std::nearbyint(value / ulp) * ulp;
      return std::abs(rounded) > max ? std::copysign(HUGE_VAL, value) : rounded;
    }
    default:
      return value;
  }
}

double IntToFloat(int64_t value, Scalar from, Scalar to) {
  const bool negative = value < 0 && from != Scalar::kUint64;
  const auto bits = static_cast<uint64_t>(value);
  uint64_t magnitude = negative ? -bits : bits;
  if (to == Scalar::kFloat64) {
    const auto v = static_cast<double>(magnitude);
    return negative ? -v : v;
  }
  // What double wouldn't hold: the low bits become one that decides the same ties.
  constexpr uint64_t kLow = 0x7FF;
  if (magnitude >> 53 != 0) {
    magnitude = (magnitude & ~kLow) | ((magnitude & kLow) != 0 ? kLow + 1 : 0);
  }
  const double rounded = RoundToFloat(static_cast<double>(magnitude), to);
  return negative ? -rounded : rounded;
}

namespace {

// The bits of a value of `s`, at the low end.
uint64_t EncodeFloat(double value, Scalar s) {
  value = RoundToFloat(value, s);
  if (s == Scalar::kFloat64) return std::bit_cast<uint64_t>(value);
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (s == Scalar::kFloat32) return bits;
  if (s == Scalar::kBFloat16) return std::isnan(value) ? 0x7FC0 : bits >> 16;
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7E00;
  if (std::isinf(value)) return sign | 0x7C00;
  const double magnitude = std::abs(value);
  if (magnitude < 0x1p-14) return sign | static_cast<uint32_t>(magnitude * 0x1p24);
  const int exponent = std::ilogb(magnitude);
  // Exponent and fraction of a normal number, added: the hidden bit adds one to the exponent.
  return sign | ((exponent + 14) * 1024 + static_cast<int>(std::ldexp(magnitude, 10 - exponent)));
}

double DecodeFloat(uint64_t bits, Scalar s) {
  switch (s) {
    case Scalar::kFloat64:
      return std::bit_cast<double>(bits);
    case Scalar::kFloat32:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case Scalar::kBFloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    default:
      break;
  }
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const auto fraction = static_cast<double>(bits & 1023);
  double magnitude =
      exponent == 0 ? fraction * 0x1p-24 : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

double LoadFloat(const void* at, Scalar s) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, SizeBytes(s));
  return DecodeFloat(bits, s);
}

void StoreFloat(double value, Scalar s, void* at) {
  const uint64_t bits = EncodeFloat(value, s);
  std::memcpy(at, &bits, SizeBytes(s));
}

int64_t LoadInt(const void* at, Scalar s) {
  int64_t value = 0;
  std::memcpy(&value, at, SizeBytes(s));
  return WrapInt(value, s);
}

void StoreInt(int64_t value, Scalar s, void* at) {
  value = WrapInt(value, s);
  std::memcpy(at, &value, SizeBytes(s));
}

std::optional<Scalar> ScalarFromName(absl::string_view name) {
  for (int i = 0; i < kScalarCount; ++i) {
    if (kInfo[i].name == name) return static_cast<Scalar>(i);
  }
  return std::nullopt;
}

std::string ToString(DType t) {
  std::string s(Name(t.scalar));
  if (t.lanes > 1) absl::StrAppend(&s, "x", t.lanes);
  if (t.is_image()) return absl::StrCat("image(", t.image_height, ",", t.image_width, ",4) ", s);
  if (t.space == AddressSpace::kGlobal) return "global " + s + "*";
  if (t.space == AddressSpace::kLocal) return "local " + s + "*";
  return s;
}

}  // namespace beamd

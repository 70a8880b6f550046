#include "engine/dtype/dtype.h"

#include <iterator>

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

#include "engine/dtype/const_value.h"

#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace beamd {
namespace {

int64_t Saturated(double v, Scalar s) {
  if (std::isnan(v)) return 0;
  v = std::trunc(v);
  if (s == Scalar::kUint64) {
    if (v <= 0) return 0;
    if (v >= 18446744073709551616.0) return -1;
    return static_cast<int64_t>(static_cast<uint64_t>(v));
  }
  const int64_t least = MinInt(s);
  const int64_t greatest = MaxInt(s);
  if (v <= static_cast<double>(least)) return least;
  // 2^63 is not an int64, and neither is what MaxInt rounds to.
  if (v >= static_cast<double>(greatest)) return greatest;
  return static_cast<int64_t>(v);
}

}  // namespace

ConstValue ConstValue::As(Scalar dtype, Scalar from) const {
  if (dtype == Scalar::kBool) return ConstValue(is_float() ? float_ != 0 : int_ != 0);
  if (IsFloat(dtype)) {
    return ConstValue(is_float() ? RoundToFloat(float_, dtype) : IntToFloat(int_, from, dtype));
  }
  return ConstValue(is_float() ? Saturated(float_, dtype) : WrapInt(int_, dtype));
}

bool ConstValue::operator==(const ConstValue& other) const {
  return kind_ == other.kind_ && Bits() == other.Bits();
}

bool ConstValue::IsNegativeZero() const {
  return is_float() && float_ == 0 && std::signbit(float_);
}

uint64_t ConstValue::Bits() const {
  if (!is_float()) return static_cast<uint64_t>(int_);
  return std::bit_cast<uint64_t>(std::isnan(float_) ? std::numeric_limits<double>::quiet_NaN()
                                                    : float_);
}

std::string ToString(const ConstValue& v) {
  switch (v.kind()) {
    case ConstValue::Kind::kBool:
      return v.as_int() != 0 ? "true" : "false";
    case ConstValue::Kind::kInt:
      return absl::StrCat(v.as_int());
    case ConstValue::Kind::kFloat:
      return absl::StrCat(v.as_float());
  }
  return "";
}

}  // namespace beamd

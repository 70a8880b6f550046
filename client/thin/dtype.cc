#include "client/thin/dtype.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace beamd::thin {

std::string Name(DType dtype) {
  const std::string& name = v1::Scalar_Name(dtype);
  return absl::AsciiStrToLower(absl::StripPrefix(absl::string_view(name), "SCALAR_"));
}

int64_t SizeBytes(DType dtype) {
  switch (dtype) {
    case kBool:
    case kInt8:
    case kUint8:
      return 1;
    case kInt16:
    case kUint16:
    case kFloat16:
    case kBFloat16:
      return 2;
    case kInt32:
    case kUint32:
    case kFloat32:
      return 4;
    case kInt64:
    case kUint64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

bool IsFloat(DType dtype) { return dtype >= kFloat16 && dtype <= kFloat64; }

bool IsSigned(DType dtype) {
  return dtype == kInt8 || dtype == kInt16 || dtype == kInt32 || dtype == kInt64;
}

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (IsFloat(a) || IsFloat(b)) {
    if (!IsFloat(b)) return a;
    if (!IsFloat(a)) return b;
    return SizeBytes(a) == SizeBytes(b) ? kFloat32 : std::max(a, b);
  }
  if (a == kBool) return b;
  if (b == kBool) return a;
  if (IsSigned(a) == IsSigned(b)) return std::max(a, b);
  const DType is_signed = IsSigned(a) ? a : b;
  const DType is_unsigned = IsSigned(a) ? b : a;
  if (SizeBytes(is_signed) > SizeBytes(is_unsigned)) return is_signed;
  switch (is_unsigned) {
    case kUint8:
      return kInt16;
    case kUint16:
      return kInt32;
    case kUint32:
      return kInt64;
    default:
      return kFloat32;
  }
}

DType SumDType(DType dtype) {
  if (IsFloat(dtype)) return SizeBytes(dtype) < 4 ? kFloat32 : dtype;
  if (SizeBytes(dtype) >= 4) return dtype;
  return dtype == kBool || IsSigned(dtype) ? kInt32 : kUint32;
}

}  // namespace beamd::thin

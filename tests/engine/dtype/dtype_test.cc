#include "engine/dtype/dtype.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace beamd {
namespace {

TEST(WrapInt, WrapsToTheWidth) {
  EXPECT_EQ(WrapInt(128, Scalar::kInt8), -128);
  EXPECT_EQ(WrapInt(-129, Scalar::kInt8), 127);
  EXPECT_EQ(WrapInt(256 + 5, Scalar::kUint8), 5);
  EXPECT_EQ(WrapInt(-1, Scalar::kUint16), 65535);
  EXPECT_EQ(WrapInt(int64_t{1} << 31, Scalar::kInt32), INT32_MIN);
  EXPECT_EQ(WrapInt(-1, Scalar::kUint32), int64_t{UINT32_MAX});
}

TEST(WrapInt, KeepsAllBitsOf64) {
  EXPECT_EQ(WrapInt(INT64_MIN, Scalar::kInt64), INT64_MIN);
  EXPECT_EQ(WrapInt(-1, Scalar::kUint64), -1);
}

TEST(WrapInt, MakesBoolOfAnyNonZero) {
  EXPECT_EQ(WrapInt(2, Scalar::kBool), 1);
  EXPECT_EQ(WrapInt(-7, Scalar::kBool), 1);
  EXPECT_EQ(WrapInt(0, Scalar::kBool), 0);
}

TEST(Limits, AreTheEndsOfEachInteger) {
  EXPECT_EQ(MinInt(Scalar::kInt8), -128);
  EXPECT_EQ(MaxInt(Scalar::kInt8), 127);
  EXPECT_EQ(MinInt(Scalar::kUint32), 0);
  EXPECT_EQ(MaxInt(Scalar::kUint32), int64_t{UINT32_MAX});
  EXPECT_EQ(MinInt(Scalar::kInt64), INT64_MIN);
  EXPECT_EQ(MaxInt(Scalar::kInt64), INT64_MAX);
  EXPECT_EQ(static_cast<uint64_t>(MaxInt(Scalar::kUint64)), UINT64_MAX);
  EXPECT_EQ(MaxInt(Scalar::kBool), 1);
}

TEST(Scalar, ClassesPartition) {
  for (int i = 1; i < kScalarCount; ++i) {
    const auto s = static_cast<Scalar>(i);
    EXPECT_EQ(IsFloat(s) + IsSigned(s) + IsUnsigned(s) + (s == Scalar::kBool), 1) << Name(s);
    EXPECT_EQ(IsInt(s), IsSigned(s) || IsUnsigned(s)) << Name(s);
    EXPECT_EQ(SizeBytes(s), (Bits(s) + 7) / 8) << Name(s);
  }
}

TEST(Scalar, NamesGoBothWays) {
  for (int i = 0; i < kScalarCount; ++i) {
    EXPECT_EQ(ScalarFromName(Name(static_cast<Scalar>(i))), static_cast<Scalar>(i));
  }
  EXPECT_EQ(ScalarFromName("float8"), std::nullopt);
}

TEST(DType, PrintsWhatItIs) {
  EXPECT_EQ(ToString(DType(Scalar::kFloat32)), "float32");
  EXPECT_EQ(ToString(DType(Scalar::kInt8, 4)), "int8x4");
  EXPECT_EQ(ToString(DType::Pointer(Scalar::kBool, AddressSpace::kGlobal)), "global bool*");
  DType image = DType::Pointer(Scalar::kFloat16, AddressSpace::kGlobal);
  image.image_height = 8;
  image.image_width = 16;
  EXPECT_EQ(ToString(image), "image(8,16,4) float16");
}

TEST(DType, DiffersInEveryField) {
  const DType base(Scalar::kFloat32);
  DType image = base;
  image.image_height = 1;
  image.image_width = 1;
  for (const DType other : {base.WithScalar(Scalar::kInt32), base.WithLanes(2),
                            DType::Pointer(Scalar::kFloat32, AddressSpace::kLocal), image}) {
    EXPECT_NE(base, other);
    EXPECT_NE(base.Bits64(), other.Bits64());
  }
}

}  // namespace
}  // namespace beamd

#include "engine/dtype/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include "engine/dtype/image.h"

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

TEST(RoundToFloat, RoundsHalfToEven) {
  const auto f16 = [](double v) { return RoundToFloat(v, Scalar::kFloat16); };
  EXPECT_EQ(f16(2049), 2048);
  EXPECT_EQ(f16(2051), 2052);
  EXPECT_EQ(f16(1 + 0x1p-11), 1);
  EXPECT_EQ(f16(1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
  const auto bf16 = [](double v) { return RoundToFloat(v, Scalar::kBFloat16); };
  EXPECT_EQ(bf16(257), 256);
  EXPECT_EQ(bf16(259), 260);
  EXPECT_EQ(RoundToFloat(16777217, Scalar::kFloat32), 16777216);
  EXPECT_EQ(RoundToFloat(0.1, Scalar::kFloat64), 0.1);
}

TEST(RoundToFloat, OverflowsFromHalfAnUlpAboveTheGreatest) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(RoundToFloat(65519.99, Scalar::kFloat16), 65504);
  EXPECT_EQ(RoundToFloat(65520, Scalar::kFloat16), inf);
  EXPECT_EQ(RoundToFloat(-65520, Scalar::kFloat16), -inf);
  EXPECT_EQ(RoundToFloat(0x1.FEp127, Scalar::kBFloat16), 0x1.FEp127);
  EXPECT_EQ(RoundToFloat(0x1.FFp127, Scalar::kBFloat16), inf);
  EXPECT_EQ(RoundToFloat(0x1.FFFFFFp127, Scalar::kFloat32), inf);
}

TEST(RoundToFloat, KeepsSubnormals) {
  EXPECT_EQ(RoundToFloat(0x1p-24, Scalar::kFloat16), 0x1p-24);
  EXPECT_EQ(RoundToFloat(0x1p-25, Scalar::kFloat16), 0);
  EXPECT_EQ(RoundToFloat(0x1.8p-25, Scalar::kFloat16), 0x1p-24);
  EXPECT_EQ(RoundToFloat(0x1p-133, Scalar::kBFloat16), 0x1p-133);
  EXPECT_EQ(RoundToFloat(0x1p-134, Scalar::kBFloat16), 0);
  EXPECT_TRUE(std::signbit(RoundToFloat(-0x1p-30, Scalar::kFloat16)));
  EXPECT_TRUE(std::signbit(RoundToFloat(-0.0, Scalar::kFloat16)));
  EXPECT_TRUE(std::isnan(RoundToFloat(std::nan(""), Scalar::kBFloat16)));
}

#ifdef __FLT16_MAX__
TEST(RoundToFloat, AgreesWithTheCompilersHalf) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double v = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(random())));
    const auto want = static_cast<double>(static_cast<_Float16>(v));
    const double got = RoundToFloat(v, Scalar::kFloat16);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got));
    } else {
      EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want)) << v;
    }
  }
}
#endif

// Every bit pattern of a 16-bit float: decoding gives a value of the type that encodes back.
void ExpectRoundTrip(Scalar s) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const double value = LoadFloat(&pattern, s);
    uint16_t back = 0;
    StoreFloat(value, s, &back);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(LoadFloat(&back, s)));
    } else {
      EXPECT_EQ(back, pattern);
      EXPECT_EQ(RoundToFloat(value, s), value);
    }
  }
}

TEST(Elements, EveryShortFloatComesBack) {
  ExpectRoundTrip(Scalar::kFloat16);
  ExpectRoundTrip(Scalar::kBFloat16);
}

TEST(IntToFloat, RoundsOnce) {
  EXPECT_EQ(IntToFloat(4611686293305294849, Scalar::kInt64, Scalar::kFloat32), 0x1p62 + 0x1p39);
  EXPECT_EQ(IntToFloat(-4611686293305294849, Scalar::kInt64, Scalar::kFloat32), -0x1p62 - 0x1p39);
  EXPECT_EQ(IntToFloat(4629700416936869889, Scalar::kInt64, Scalar::kBFloat16), 0x1.02p62);
  EXPECT_EQ(IntToFloat(9042383626829825, Scalar::kInt64, Scalar::kBFloat16), 0x1.02p53);
  // A tie, and one more.
  EXPECT_EQ(IntToFloat((int64_t{1} << 53) + 1, Scalar::kInt64, Scalar::kFloat64), 0x1p53);
  EXPECT_EQ(IntToFloat((int64_t{1} << 62) + (int64_t{1} << 38), Scalar::kInt64, Scalar::kFloat32),
            0x1p62);
  EXPECT_EQ(IntToFloat(257, Scalar::kInt32, Scalar::kBFloat16), 256);
  EXPECT_EQ(IntToFloat(INT64_MIN, Scalar::kInt64, Scalar::kFloat32), -0x1p63);
  EXPECT_EQ(IntToFloat(-7, Scalar::kInt8, Scalar::kFloat16), -7);
  EXPECT_FALSE(std::signbit(IntToFloat(0, Scalar::kBool, Scalar::kFloat16)));
}

TEST(IntToFloat, ReadsUint64Unsigned) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(IntToFloat(-1, Scalar::kUint64, Scalar::kFloat64), 0x1p64);
  EXPECT_EQ(IntToFloat(-1, Scalar::kUint64, Scalar::kFloat16), inf);
  EXPECT_EQ(IntToFloat(INT64_MIN + 1, Scalar::kUint64, Scalar::kFloat32), 0x1p63);
  EXPECT_EQ(IntToFloat(-1, Scalar::kInt64, Scalar::kFloat64), -1);
}

TEST(Elements, ShortFloatsHaveTheStandardsBits) {
  const auto bits = [](double v, Scalar s) {
    uint16_t b = 0;
    StoreFloat(v, s, &b);
    return b;
  };
  EXPECT_EQ(bits(1, Scalar::kFloat16), 0x3C00);
  EXPECT_EQ(bits(-2, Scalar::kFloat16), 0xC000);
  EXPECT_EQ(bits(65504, Scalar::kFloat16), 0x7BFF);
  EXPECT_EQ(bits(1e9, Scalar::kFloat16), 0x7C00);
  EXPECT_EQ(bits(0x1p-24, Scalar::kFloat16), 1);
  EXPECT_EQ(bits(1, Scalar::kBFloat16), 0x3F80);
  EXPECT_EQ(bits(-0.0, Scalar::kBFloat16), 0x8000);
}

TEST(Elements, IntegersWrapAndExtend) {
  char bytes[9] = {0, 0, 0, 0, 0, 0, 0, 0, 77};
  StoreInt(-1, Scalar::kInt16, bytes);
  EXPECT_EQ(LoadInt(bytes, Scalar::kInt16), -1);
  EXPECT_EQ(LoadInt(bytes, Scalar::kUint16), 65535);
  EXPECT_EQ(LoadInt(bytes, Scalar::kUint32), 65535);
  StoreInt(-1, Scalar::kUint64, bytes);
  EXPECT_EQ(LoadInt(bytes, Scalar::kUint64), -1);
  EXPECT_EQ(LoadInt(bytes, Scalar::kBool), 1);
  EXPECT_EQ(bytes[8], 77);
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

TEST(DType, AnImageHoldsFourElementsATexel) {
  const std::optional<DType> image = ImageOf(Scalar::kFloat16, 8, 16);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(ToString(*image), "image(8,16,4) float16");
  EXPECT_EQ(ImageElements(*image), 512);
  EXPECT_EQ(ElementOf(*image), Scalar::kFloat32);
  EXPECT_EQ(ElementOf(DType::Pointer(Scalar::kFloat16, AddressSpace::kGlobal)), Scalar::kFloat16);
  EXPECT_EQ(ImageElements(*ImageOf(Scalar::kFloat32, 65535, 65535)), int64_t{4} * 65535 * 65535);
  EXPECT_FALSE(ImageOf(Scalar::kFloat32, 65536, 1).has_value());
  EXPECT_FALSE(ImageOf(Scalar::kFloat32, 1, 0).has_value());
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

#include "engine/uop/int_alu.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace beamd {
namespace {

constexpr Scalar kI8 = Scalar::kInt8, kI32 = Scalar::kInt32, kU32 = Scalar::kUint32,
                 kI64 = Scalar::kInt64, kU64 = Scalar::kUint64, kBool = Scalar::kBool;

TEST(IntAlu, ArithmeticWraps) {
  EXPECT_EQ(IntAlu(Op::kAdd, kI8, 127, 1), -128);
  EXPECT_EQ(IntAlu(Op::kMul, kI32, 65536, 65536), 0);
  EXPECT_EQ(IntAlu(Op::kSub, kU32, 0, 1), UINT32_MAX);
  EXPECT_EQ(IntAlu(Op::kNeg, kI64, INT64_MIN, 0), INT64_MIN);
  EXPECT_EQ(IntAlu(Op::kAdd, kU64, -1, 1), 0);
}

TEST(IntAlu, DivisionTruncatesAndNeverTraps) {
  EXPECT_EQ(IntAlu(Op::kIdiv, kI32, -7, 2), -3);
  EXPECT_EQ(IntAlu(Op::kMod, kI32, -7, 2), -1);
  EXPECT_EQ(IntAlu(Op::kMod, kI32, 7, -2), 1);
  EXPECT_EQ(IntAlu(Op::kIdiv, kI32, 7, 0), 0);
  EXPECT_EQ(IntAlu(Op::kMod, kI32, 7, 0), 0);
  EXPECT_EQ(IntAlu(Op::kIdiv, kI32, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(IntAlu(Op::kMod, kI32, INT32_MIN, -1), 0);
  EXPECT_EQ(IntAlu(Op::kIdiv, kI64, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(IntAlu(Op::kIdiv, kU64, -1, 2), INT64_MAX);
  EXPECT_EQ(IntAlu(Op::kIdiv, kU64, 5, -1), 0);
}

TEST(IntAlu, ShiftsByTheWidthOrMoreLeaveTheSign) {
  EXPECT_EQ(IntAlu(Op::kShl, kI8, 1, 7), -128);
  EXPECT_EQ(IntAlu(Op::kShl, kI8, 1, 8), 0);
  EXPECT_EQ(IntAlu(Op::kShr, kI8, -128, 3), -16);
  EXPECT_EQ(IntAlu(Op::kShr, kI8, -128, 200), -1);
  EXPECT_EQ(IntAlu(Op::kShr, kI8, 100, 8), 0);
  EXPECT_EQ(IntAlu(Op::kShr, kU32, UINT32_MAX, 31), 1);
  EXPECT_EQ(IntAlu(Op::kShr, kU64, -1, 64), 0);
  EXPECT_EQ(IntAlu(Op::kShl, kU64, 1, 63), INT64_MIN);
}

TEST(IntAlu, ComparesBySign) {
  EXPECT_EQ(IntAlu(Op::kCmpLt, kI64, -1, 0), 1);
  EXPECT_EQ(IntAlu(Op::kCmpLt, kU64, -1, 0), 0);
  EXPECT_EQ(IntAlu(Op::kMax, kU64, -1, 0), -1);
  EXPECT_EQ(IntAlu(Op::kMax, kI64, -1, 0), 0);
  EXPECT_EQ(IntAlu(Op::kCmpNe, kI32, 3, 3), 0);
}

TEST(IntAlu, BoolIsOrAndAnd) {
  EXPECT_EQ(IntAlu(Op::kAdd, kBool, 1, 1), 1);
  EXPECT_EQ(IntAlu(Op::kMul, kBool, 1, 0), 0);
  EXPECT_EQ(IntAlu(Op::kMax, kBool, 0, 1), 1);
  EXPECT_EQ(IntAlu(Op::kXor, kBool, 1, 1), 0);
  EXPECT_EQ(IntAlu(Op::kCmpLt, kBool, 0, 1), 1);
}

TEST(Threefry, GivesTheAuthorsKnownAnswers) {
  // Random123's kat_vectors, threefry2x32 with 20 rounds: words 0 and 1.
  const auto pack = [](uint32_t word0, uint32_t word1) { return uint64_t{word1} << 32 | word0; };
  EXPECT_EQ(Threefry2x32(0, 0), pack(0x6b200159, 0x99ba4efe));
  EXPECT_EQ(Threefry2x32(~uint64_t{0}, ~uint64_t{0}), pack(0x1cb996fc, 0xbb002be7));
  EXPECT_EQ(Threefry2x32(pack(0x243f6a88, 0x85a308d3), pack(0x13198a2e, 0x03707344)),
            pack(0xc4923a9c, 0x483df7a0));
}

}  // namespace
}  // namespace beamd

// Types, sizes and checksums: what needs no server.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "client/thin/checksum.h"
#include "client/thin/dtype.h"
#include "client/thin/size.h"

namespace beamd::thin {
namespace {

TEST(Checksums, AreTheStandards) {
  // RFC 3720 B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AA);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283);
  // FIPS 180-4, "abc".
  EXPECT_EQ(absl::BytesToHexString(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::string text;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Crc32c(text), Crc32cByTables(text)) << i;
    text.push_back(static_cast<char>(i * 37));
  }
}

TEST(DTypes, MeetInOne) {
  EXPECT_EQ(Promote(kBool, kUint8), kUint8);
  EXPECT_EQ(Promote(kInt8, kUint8), kInt16);
  EXPECT_EQ(Promote(kUint32, kInt8), kInt64);
  EXPECT_EQ(Promote(kInt64, kUint32), kInt64);
  EXPECT_EQ(Promote(kUint64, kInt64), kFloat32);
  EXPECT_EQ(Promote(kInt64, kFloat16), kFloat16);
  EXPECT_EQ(Promote(kBFloat16, kFloat16), kFloat32);
  EXPECT_EQ(Promote(kFloat64, kFloat32), kFloat64);
  for (int a = kBool; a <= kFloat64; ++a) {
    for (int b = kBool; b <= kFloat64; ++b) {
      EXPECT_EQ(Promote(DType(a), DType(b)), Promote(DType(b), DType(a)));
    }
  }
  EXPECT_EQ(Name(kBFloat16), "bfloat16");
  EXPECT_EQ(DTypeOf<uint16_t>(), kUint16);
  EXPECT_EQ(DTypeOf<double>(), kFloat64);
}

TEST(Sizes, AreSumsInNormalForm) {
  const Variable pos{"pos", 0, 7}, batch{"batch", 1, 4};
  const Size size = pos + 1;
  EXPECT_EQ(size - pos, Size(1));
  EXPECT_EQ(size + Size(batch) * 2 - batch, Size(batch) + pos + 1);
  EXPECT_EQ(size.min(), 1);
  EXPECT_EQ(size.max(), 8);
  EXPECT_EQ((Size(8) - size).min(), 0);
  EXPECT_EQ(size * 0, Size(0));
  EXPECT_FALSE(size == Size(1));
  EXPECT_EQ(ToString(Shape{2, size, Size(batch) * 3 - 1}), "(2, pos+1, 3*batch-1)");
  EXPECT_EQ(Elements({3, 4}), 12);
  EXPECT_EQ(Elements({int64_t{1} << 40, int64_t{1} << 40}), -1);
  EXPECT_EQ(Elements({int64_t{1} << 40, int64_t{1} << 40, 0}), 0);
}

}  // namespace
}  // namespace beamd::thin

#include "engine/base/hash.h"

#include <gtest/gtest.h>

namespace beamd {
namespace {

// From the reference implementation's test vectors: input of length 0, then of bytes 0, 1, 2.
constexpr absl::string_view kEmpty =
    "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
constexpr absl::string_view kThreeBytes =
    "e1be4d7a8ab5560aa4199eea339849ba8e293d55ca0a81006726d184519e647f";

TEST(Hash, IsBlake3) {
  EXPECT_EQ(HashBytes("").Hex(), kEmpty);
  EXPECT_EQ(HashBytes(absl::string_view("\0\1\2", 3)).Hex(), kThreeBytes);
}

TEST(Hash, HexGoesBothWays) {
  const Digest digest = HashBytes("x");
  EXPECT_EQ(Digest::FromHex(digest.Hex()).value(), digest);
  EXPECT_FALSE(Digest::FromHex(digest.Hex().substr(1)).ok());
  EXPECT_FALSE(Digest::FromHex("g" + digest.Hex().substr(1)).ok());
}

TEST(Hash, PrefixIsTheFirstEightBytes) {
  EXPECT_EQ(Digest::FromHex(kEmpty)->Prefix(), 0xaf1349b9f5f9a1a6u);
}

TEST(Hasher, KeepsTheBordersOfFields) {
  Hasher ab_c, a_bc;
  ab_c.Add("ab").Add("c");
  a_bc.Add("a").Add("bc");
  EXPECT_NE(ab_c.Finish(), a_bc.Finish());
}

TEST(Hasher, DependsOnOrder) {
  Hasher one_two, two_one;
  one_two.Add(1).Add(2);
  two_one.Add(2).Add(1);
  EXPECT_NE(one_two.Finish(), two_one.Finish());
}

}  // namespace
}  // namespace beamd

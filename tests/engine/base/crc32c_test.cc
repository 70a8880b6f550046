#include "engine/base/crc32c.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

uint32_t Of(const std::string& text, uint32_t before = 0) {
  return Crc32c(before, std::as_bytes(std::span(text)));
}

// RFC 3720, B.4.
TEST(Crc32c, IsTheStandards) {
  EXPECT_EQ(Of(""), 0);
  EXPECT_EQ(Of(std::string(32, '\0')), 0x8a9136aa);
  EXPECT_EQ(Of(std::string(32, '\xff')), 0x62a8ab43);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  EXPECT_EQ(Of(ascending), 0x46dd794e);
}

TEST(Crc32c, GoesOnWhereItWas) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(Of(text.substr(cut), Of(text.substr(0, cut))), Of(text)) << cut;
  }
}

// Long ones are taken in lanes.
TEST(Crc32c, OfManyBytesIsThatOfTheirParts) {
  std::string text;
  for (uint32_t i = 0; text.size() < 100000; ++i) text += static_cast<char>(i * 2654435761u >> 13);
  for (const size_t size : {12287, 12288, 12289, 24576, 50000, 100000}) {
    uint32_t parts = 0;
    for (size_t at = 0; at < size; at += 1000) {
      parts = Of(text.substr(at, std::min<size_t>(1000, size - at)), parts);
    }
    EXPECT_EQ(Of(text.substr(0, size)), parts) << size;
  }
}

}  // namespace
}  // namespace beamd

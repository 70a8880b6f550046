#include "engine/base/json_string.h"

#include <gtest/gtest.h>

namespace beamd {
namespace {

TEST(JsonString, EscapesWhatJsonDoesNotAllow) {
  EXPECT_EQ(JsonString("a \"b\" \\ c"), R"("a \"b\" \\ c")");
  EXPECT_EQ(JsonString(absl::string_view("\n\x1f\0", 3)), R"("\u000a\u001f\u0000")");
  EXPECT_EQ(JsonString("\xc3\xa9\x7f"), "\"\xc3\xa9\x7f\"");
  EXPECT_EQ(JsonString(""), "\"\"");
}

}  // namespace
}  // namespace beamd

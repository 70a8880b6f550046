#include "server/metrics/log.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Log, KeepsAnEventOnOneLine) {
  const std::string path = ::testing::TempDir() + "log_lines";
  std::filesystem::remove(path);
  ASSERT_TRUE(StartLog({.file = path}).ok());
  spdlog::info("label={}", "a\ntime=2000-01-01 level=error forged\x1b[2J");
  const std::string text = ReadFile(path);
  EXPECT_THAT(text, HasSubstr("level=info label=a\\ntime=2000-01-01 level=error forged\\u001b[2J"));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST(Log, ChangesItsLevelWhileItRuns) {
  const std::string path = ::testing::TempDir() + "log_level";
  std::filesystem::remove(path);
  ASSERT_TRUE(StartLog({.level = "info", .file = path}).ok());
  spdlog::debug("early");
  EXPECT_TRUE(SetLogLevel("debug").ok());
  spdlog::debug("late");
  EXPECT_TRUE(absl::IsInvalidArgument(SetLogLevel("loud")));
  spdlog::debug("later");
  EXPECT_THAT(ReadFile(path), Not(HasSubstr("early")));
  EXPECT_THAT(ReadFile(path), HasSubstr("late"));
  EXPECT_THAT(ReadFile(path), HasSubstr("later"));
}

TEST(Log, RotatesWhatIsFull) {
  const std::string folder = ::testing::TempDir() + "log_rotated";
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(StartLog({.file = folder + "/log", .file_bytes = 4096, .files = 2}).ok());
  for (int i = 0; i < 1000; ++i) spdlog::info("a line of some length, again and again");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    ++files;
    EXPECT_LE(entry.file_size(), 4096u);
  }
  EXPECT_EQ(files, 3);
}

TEST(Log, SaysWhereItCantBe) {
  EXPECT_TRUE(absl::IsUnavailable(StartLog({.file = "/proc/nothing/log"})));
}

}  // namespace
}  // namespace beamd

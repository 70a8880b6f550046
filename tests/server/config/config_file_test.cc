#include "server/config/config_file.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigFileTest : public ::testing::Test {
 protected:
  ConfigFileTest() {
    line_.Add("store", &store_, "");
    line_.Add("jobs", &jobs_, "");
    line_.Add("ratio", &ratio_, "");
    line_.Add("padto", &padto_, "");
    line_.Add("run_timeout", &timeout_, "");
    line_.Add("cores", &cores_, "");
  }
  std::string store_;
  int64_t jobs_ = 1;
  double ratio_ = 0;
  bool padto_ = true;
  absl::Duration timeout_;
  std::vector<int> cores_;
  CommandLine line_{""};
};

TEST_F(ConfigFileTest, SetsFlagsOfEveryKind) {
  const absl::Status status = ApplyConfig("f", R"(
    # a comment
    store: "/var/lib/beamd"
    jobs: 3
    ratio: 0.25
    padto: false
    run_timeout: "1m30s"
    cores: [0, 2] cores: 5
  )",
                                          line_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(store_, "/var/lib/beamd");
  EXPECT_EQ(jobs_, 3);
  EXPECT_EQ(ratio_, 0.25);
  EXPECT_FALSE(padto_);
  EXPECT_EQ(timeout_, absl::Seconds(90));
  EXPECT_THAT(cores_, ElementsAre(0, 2, 5));
}

TEST_F(ConfigFileTest, NamesLinesAndValuesAtFault) {
  const std::string message(
      ApplyConfig("beamd.textproto", "jobs: 2\nrun_timeout: \"soon\"\n", line_).message());
  EXPECT_THAT(message, HasSubstr("beamd.textproto: --run_timeout can't be \"soon\""));
  EXPECT_THAT(std::string(ApplyConfig("f", "\nwidht: 2\n", line_).message()), HasSubstr("f:2: "));
  EXPECT_THAT(std::string(ApplyConfig("f", "jobs: \"two\"", line_).message()), HasSubstr("f:1: "));
}

TEST_F(ConfigFileTest, AnEmptyFileChangesNothing) {
  EXPECT_TRUE(ApplyConfig("f", "", line_).ok());
  EXPECT_EQ(jobs_, 1);
}

TEST(ReadTextFile, SaysWhatItCantRead) {
  EXPECT_THAT(std::string(ReadTextFile("/nonexistent").status().message()),
              HasSubstr("/nonexistent"));
  EXPECT_FALSE(ReadTextFile("/dev/zero").ok());
  EXPECT_FALSE(ReadTextFile("/").ok());
}

}  // namespace
}  // namespace beamd

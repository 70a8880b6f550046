#include "server/config/config_file.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_F(ConfigFileTest, NamesEveryLineAtFaultAndSetsTheRest) {
  const std::string message(ApplyConfig("f",
                                        "widht: 2\n"
                                        "jobs: \"two\"\n"
                                        "store: /unquoted\n"
                                        "ratio: 0.5\n"
                                        "padto: perhaps\n"
                                        "cores: [0,\n"
                                        "  \"x\",\n"
                                        "  2]\n"
                                        "what { is: \"this\" }\n"
                                        "run_timeout: \"soon\"\n"
                                        "jobs: 7\n"
                                        "ratio: 0.75\n"
                                        "store: \"open\n",
                                        line_)
                                .message());
  for (const char* fault : {"f:1: ", "f:2: ", "f:3: ", "f:5: ", "f:7: ", "f:9: ", "f:12: ",
                            "f:13: ", "f: --run_timeout can't be \"soon\""}) {
    EXPECT_THAT(message, HasSubstr(fault));
  }
  for (const char* well : {"f:4: ", "f:11: "}) EXPECT_THAT(message, Not(HasSubstr(well)));
  EXPECT_EQ(jobs_, 7);
  EXPECT_EQ(ratio_, 0.5);
  EXPECT_THAT(cores_, ElementsAre(0, 2));
}

TEST_F(ConfigFileTest, EndsWithWhatIsNoConfigAtAll) {
  std::string noise;
  for (int i = 0; i < 5000; ++i) noise += "}{\n";
  const std::string message(ApplyConfig("f", noise, line_).message());
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 99);
  EXPECT_FALSE(ApplyConfig("f", std::string("\0\xff\n\0", 4), line_).ok());
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

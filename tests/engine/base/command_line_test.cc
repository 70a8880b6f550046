#include "engine/base/command_line.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() {
    line_.Add("store", &store_, "directory");
    line_.Add("width", &width_, "beam width");
    line_.Add("json", &json_, "print JSON");
    line_.Add("run_timeout", &timeout_, "limit");
    line_.Add("cores", &cores_, "cores");
    line_.Add("ratio", &ratio_, "ratio");
    line_.Add("in", &in_, "files");
  }

  std::string store_ = "here";
  int64_t width_ = 2;
  bool json_ = false;
  absl::Duration timeout_ = absl::Seconds(10);
  std::vector<int> cores_;
  double ratio_ = 0.5;
  std::vector<std::string> in_;
  CommandLine line_{"tool [flags] FILE"};
};

TEST_F(CommandLineTest, SetsVariablesAndReturnsTheRest) {
  const auto rest =
      line_.Parse({"tune", "--store=there", "--width", "4", "--json", "file", "--run-timeout=20s",
                   "--cores", "0,2", "--ratio=2", "--", "--width"});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(*rest, ElementsAre("tune", "file", "--width"));
  EXPECT_EQ(store_, "there");
  EXPECT_EQ(width_, 4);
  EXPECT_TRUE(json_);
  EXPECT_EQ(timeout_, absl::Seconds(20));
  EXPECT_THAT(cores_, ElementsAre(0, 2));
  EXPECT_EQ(ratio_, 2);
  EXPECT_TRUE(line_.Given("store"));
  EXPECT_THAT(line_.AllGiven(),
              UnorderedElementsAre("store", "width", "json", "run_timeout", "cores", "ratio"));
}

TEST_F(CommandLineTest, GathersListsOfText) {
  ASSERT_TRUE(line_.Parse({"--in", "x=a.npy,y=b.npy", "--in=z=c.npy"}).ok());
  EXPECT_THAT(in_, ElementsAre("x=a.npy", "y=b.npy", "z=c.npy"));
}

TEST_F(CommandLineTest, NamesEveryFaultAtOnce) {
  const auto rest = line_.Parse({"--width=x", "--wdith=3", "--store=there", "--ratio"});
  ASSERT_FALSE(rest.ok());
  EXPECT_EQ(rest.status().message(),
            "--width can't be \"x\"\nno flag --wdith=3\n--ratio wants a value");
}

TEST_F(CommandLineTest, SetsByNameAndSaysWhatThereIs) {
  EXPECT_TRUE(line_.Set("width", "5").ok());
  EXPECT_EQ(width_, 5);
  EXPECT_FALSE(line_.Given("width"));
  EXPECT_FALSE(line_.Set("width", "five").ok());
  EXPECT_FALSE(line_.Set("depth", "5").ok());
  EXPECT_EQ(line_.Flags()[3], std::pair(std::string("run_timeout"), FlagKind::kDuration));
}

TEST_F(CommandLineTest, NegatesBooleans) {
  json_ = true;
  ASSERT_TRUE(line_.Parse({"--nojson"}).ok());
  EXPECT_FALSE(json_);
  ASSERT_TRUE(line_.Parse({"--json=true"}).ok());
  EXPECT_TRUE(json_);
  EXPECT_FALSE(line_.Given("width"));
}

TEST_F(CommandLineTest, RefusesWhatItDoesNotKnow) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--stroe=x"},
                                               {"--width=two"},
                                               {"--width"},
                                               {"--nowidth"},
                                               {"--run_timeout=10"},
                                               {"--cores=a"},
                                               {"--json=perhaps"}}) {
    EXPECT_EQ(line_.Parse(args).status().code(), absl::StatusCode::kInvalidArgument) << args[0];
  }
}

TEST_F(CommandLineTest, HelpNamesFlagsAndDefaults) {
  EXPECT_THAT(line_.Help(), HasSubstr("usage: tool [flags] FILE\n"));
  EXPECT_THAT(line_.Help(), HasSubstr("--width=VALUE\n      beam width (2)\n"));
  EXPECT_THAT(line_.Help(), HasSubstr("--json\n      print JSON (false)\n"));
}

}  // namespace
}  // namespace beamd

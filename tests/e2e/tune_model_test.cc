// A tensor graph through beamctl and a daemon: each of its kernels tuned once, and kept.

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::Ran;
using ::beamd::testing::RunProcess;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// The product of a matrix with itself, `products` times in a row, and the sum of all elements.
std::string Powers(int products) {
  std::string text = "%0 = BUFFER float32 slot 0 shape (32,32)\n";
  int at = 0;
  for (int i = 0; i < products; ++i) {
    absl::StrAppend(&text, "%", at + 1, " = RESHAPE float32 (%", at, ") ints (32,1,32)\n");
    absl::StrAppend(&text, "%", at + 2, " = EXPAND float32 (%", at + 1, ") ints (32,32,32)\n");
    absl::StrAppend(&text, "%", at + 3, " = PERMUTE float32 (%0) ints (1,0)\n");
    absl::StrAppend(&text, "%", at + 4, " = RESHAPE float32 (%", at + 3, ") ints (1,32,32)\n");
    absl::StrAppend(&text, "%", at + 5, " = EXPAND float32 (%", at + 4, ") ints (32,32,32)\n");
    absl::StrAppend(&text, "%", at + 6, " = MUL float32 (%", at + 2, ", %", at + 5, ")\n");
    absl::StrAppend(&text, "%", at + 7, " = REDUCE_AXIS float32 (%", at + 6, ") ADD axes (2)\n");
    absl::StrAppend(&text, "%", at + 8, " = RESHAPE float32 (%", at + 7, ") ints (32,32)\n");
    at += 8;
  }
  absl::StrAppend(&text, "%", at + 1, " = REDUCE_AXIS float32 (%", at, ") ADD axes (0,1)\n");
  return text;
}

class TuneModelTest : public ::testing::Test {
 protected:
  Ran TuneModel(const std::string& text, std::vector<std::string> flags) {
    const std::string file = directory_ + "/model.uops";
    std::ofstream(file) << text;
    flags.insert(flags.begin(), {"client/beamctl/beamctl", "--server", daemon_.address(),
                                 "tune-model", file, "--width", "1"});
    return RunProcess(flags);
  }
  static std::vector<std::string> Lines(const std::string& text) {
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  const std::string directory_ = FreshDirectory();
  Daemon daemon_{"server/beamd", directory_ + "/store"};
};

TEST_F(TuneModelTest, TunesEachKernelOnce) {
  const Ran first = TuneModel(Powers(3), {"--json"});
  ASSERT_EQ(first.status, 0) << first.err;
  // The product that reads the buffer twice, the one that reads another, the sum, and the totals.
  const std::vector<std::string> lines = Lines(first.out);
  ASSERT_THAT(lines, SizeIs(4)) << first.out;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(lines[i], AllOf(StartsWith("{\"key\":\""), HasSubstr("\"match\":\"searched\""),
                                HasSubstr("\"verified\":true"), HasSubstr("\"gain\":"),
                                HasSubstr("\"total_s\":")));
  }
  EXPECT_THAT(lines[1], HasSubstr("\"uses\":2"));
  EXPECT_THAT(lines[3],
              AllOf(StartsWith("{\"kernels\":3,\"failed\":0,\"runs\":4,"), HasSubstr("\"gain\":")));
  // The second time nothing is searched, and people get a table.
  const Ran again = TuneModel(Powers(3), {});
  EXPECT_EQ(again.status, 0) << again.err;
  const std::vector<std::string> rows = Lines(again.out);
  ASSERT_THAT(rows, SizeIs(5)) << again.out;
  EXPECT_THAT(rows[0], AllOf(StartsWith("kernel"), EndsWith("opts")));
  EXPECT_THAT(rows[4], AllOf(StartsWith("all"), HasSubstr("x")));
}

TEST_F(TuneModelTest, AKernelThatFailsDoesNotStopTheOthers) {
  // The model of one product has a kernel that this one has too.
  ASSERT_EQ(TuneModel(Powers(1), {}).status, 0);
  const Ran some = TuneModel(Powers(3), {"--lookup_only", "--json"});
  EXPECT_EQ(some.status, 6);
  const std::vector<std::string> lines = Lines(some.out);
  ASSERT_THAT(lines, SizeIs(4)) << some.out;
  EXPECT_THAT(lines[0], HasSubstr("\"match\":\"strict\""));
  EXPECT_THAT(lines[1], AllOf(StartsWith("{\"error\":\"NOT_FOUND\""), HasSubstr("\"uses\":2")));
  EXPECT_THAT(lines[2], HasSubstr("\"match\":\"strict\""));
  EXPECT_THAT(lines[3], StartsWith("{\"kernels\":3,\"failed\":1,"));
  EXPECT_THAT(some.err, HasSubstr("1 of 3 kernels failed, the first: "));
  EXPECT_THAT(TuneModel(Powers(3), {"--lookup_only"}).out, HasSubstr("failed: "));
}

TEST_F(TuneModelTest, ABudgetIsTheWholeModels) {
  const absl::Time began = absl::Now();
  const Ran ran = TuneModel(Powers(3), {"--budget", "4s", "--refresh"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
  // One view of all.
  EXPECT_THAT(ran.err, AllOf(HasSubstr(" of 3 kernels, "), HasSubstr(" of 4.0 s")));
  EXPECT_THAT(Lines(ran.out), SizeIs(5)) << ran.out;
}

TEST_F(TuneModelTest, ALockFilePinsAllItsKernels) {
  ASSERT_EQ(TuneModel(Powers(3), {}).status, 0);
  const std::string lock = directory_ + "/beamd.lock";
  const Ran locked = RunProcess({"client/beamctl/beamctl", "--server", daemon_.address(), "lock",
                                 directory_ + "/model.uops", "--width", "1", "--out", lock});
  ASSERT_EQ(locked.status, 0) << locked.err;
  const Ran frozen = TuneModel(Powers(3), {"--frozen", lock, "--json"});
  EXPECT_EQ(frozen.status, 0) << frozen.err;
  EXPECT_THAT(Lines(frozen.out), SizeIs(4));
}

TEST_F(TuneModelTest, ABadGraphAndADaemonThatIsGoneEndIt) {
  const Ran bad = TuneModel("%0 = BUFFER float32 slot 0 shape (4)\n%1 = FLIP float32 (%0) ints (1)",
                            {"--json"});
  EXPECT_EQ(bad.status, 3);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("\"reason\":\"AXES\""), HasSubstr("\"node\":1")));
  daemon_.Signal(SIGKILL);
  daemon_.Wait();
  EXPECT_EQ(TuneModel(Powers(1), {}).status, 4);
}

}  // namespace
}  // namespace beamd

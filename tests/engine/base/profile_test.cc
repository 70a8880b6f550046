#include "engine/base/profile.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/json.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;
using testing::JsonValue;
using ::testing::SizeIs;

ProfileEvent Kernel(std::string name, int64_t start_ns, int64_t duration_ns) {
  return {.name = std::move(name),
          .category = "kernel",
          .start_ns = start_ns,
          .duration_ns = duration_ns,
          .ops = 2000,
          .bytes = 4000};
}

TEST(Profile, TableSumsByNameAndPutsTheLongestFirst) {
  Profile profile;
  profile.Add(Kernel("E_4", 0, 1000));
  profile.Add(Kernel("r_16", 1000, 3000));
  profile.Add(Kernel("r_16", 4000, 5000));
  profile.Add({.name = "step", .category = "scope", .start_ns = 0, .duration_ns = 9000});
  EXPECT_EQ(profile.Table(),
            "  total ms      %    count    mean us    GFLOPS      GB/s  kernel\n"
            "     0.008   88.9        2       4.00      0.50      1.00  r_16\n"
            "     0.001   11.1        1       1.00      2.00      4.00  E_4\n"
            "  total ms      %    count    mean us    GFLOPS      GB/s  scope\n"
            "     0.009  100.0        1       9.00                      step\n");
}

TEST(Profile, TraceIsJsonWithATrackAThread) {
  Profile profile;
  profile.Add(Kernel("a \"quoted\" \\ name", 1500, 250));
  std::thread([&profile] { profile.Add(Kernel("other", 2000, 1)); }).join();
  const std::string text = profile.TraceJson();
  const auto json = JsonValue::Parse(text);
  ASSERT_TRUE(json.ok()) << json.status() << "\n" << text;
  const JsonValue& events = (*json)["traceEvents"];
  ASSERT_THAT(events.items(), SizeIs(2));
  EXPECT_EQ(events[0]["name"].String(), "a \"quoted\" \\ name");
  EXPECT_EQ(events[0]["ph"].String(), "X");
  EXPECT_EQ(events[0]["cat"].String(), "kernel");
  EXPECT_EQ(events[0]["ts"].Double(), 1.5);
  EXPECT_EQ(events[0]["dur"].Double(), 0.25);
  EXPECT_EQ(events[0]["args"]["ops"].Double(), 2000);
  EXPECT_NE(events[0]["tid"].Int(), events[1]["tid"].Int());
}

TEST(Profile, TraceSpellsControlCharactersInHexadecimal) {
  Profile profile;
  profile.Add(Kernel("line\n", 0, 1));
  EXPECT_THAT(profile.TraceJson(), HasSubstr("\"line\\u000a\""));
}

TEST(Profile, WritesItsTrace) {
  Profile profile;
  profile.Add(Kernel("k", 0, 1));
  const char* const folder = std::getenv("TEST_TMPDIR");
  ASSERT_NE(folder, nullptr);
  const std::string path = absl::StrCat(folder, "/trace.json");
  ASSERT_TRUE(profile.WriteTrace(path).ok());
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), profile.TraceJson());
  EXPECT_TRUE(absl::IsUnavailable(profile.WriteTrace(absl::StrCat(folder, "/none/trace.json"))));
}

TEST(ProfileScope, IsAnEventAsLongAsItsBlock) {
  Profile profile;
  {
    ProfileScope outer(&profile, "outer");
    ProfileScope inner(&profile, "inner", "compile");
    ProfileScope nothing(nullptr, "nothing");
  }
  const std::vector<ProfileEvent> events = profile.events();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].name, "inner");
  EXPECT_EQ(events[0].category, "compile");
  EXPECT_EQ(events[1].name, "outer");
  EXPECT_LE(events[1].start_ns, events[0].start_ns);
  EXPECT_GE(events[1].duration_ns, events[0].duration_ns);
}

TEST(Timing, SaysHowLongItsBlockTook) {
  std::ostringstream out;
  {
    const Timing timing("schedule:", out);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_GE(timing.elapsed(), absl::Milliseconds(2));
  }
  EXPECT_THAT(out.str(), HasSubstr("schedule: "));
  EXPECT_THAT(out.str(), HasSubstr(" ms\n"));
}

}  // namespace
}  // namespace beamd

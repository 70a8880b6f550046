#include "client/beamctl/print.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(ParseOpts, ReadsWhatTunePrints) {
  const absl::StatusOr<std::vector<v1::Opt>> opts =
      ParseOpts("UPCAST(0, 4) UNROLL(0, 0)  NOLOCALS LOCAL(1)");
  ASSERT_TRUE(opts.ok()) << opts.status();
  ASSERT_EQ(opts->size(), 4);
  EXPECT_EQ((*opts)[0].op(), v1::OPT_OP_UPCAST);
  EXPECT_EQ((*opts)[0].axis(), 0);
  EXPECT_EQ((*opts)[0].amount(), 4);
  EXPECT_EQ((*opts)[1].amount(), 0);
  EXPECT_TRUE((*opts)[1].has_amount());
  EXPECT_EQ((*opts)[2].op(), v1::OPT_OP_NOLOCALS);
  EXPECT_FALSE((*opts)[2].has_axis());
  EXPECT_FALSE((*opts)[3].has_amount());
  EXPECT_TRUE(ParseOpts("")->empty());
  EXPECT_TRUE(ParseOpts("-")->empty());
}

TEST(ParseOpts, RefusesWhatIsNoList) {
  for (const char* text :
       {"UPCSAT(0, 4)", "UPCAST(0, 4", "UPCAST(a, 4)", "UPCAST(0, 4, 5)", "UPCAST(0,)", "(0, 4)"}) {
    EXPECT_FALSE(ParseOpts(text).ok()) << text;
  }
}

TEST(ToProto, KeepsFractionsOfASecond) {
  EXPECT_EQ(ToProto(absl::Milliseconds(2500)).seconds(), 2);
  EXPECT_EQ(ToProto(absl::Milliseconds(2500)).nanos(), 500000000);
}

}  // namespace
}  // namespace beamd

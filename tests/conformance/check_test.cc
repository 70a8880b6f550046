#include "tests/conformance/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/excepted.h"

namespace beamd::conformance {
namespace {

using ::testing::HasSubstr;

TEST(Excepted, TheFileIsReadable) {
  const absl::StatusOr<Excepted> excepted = ParseExcepted(kExcepted);
  ASSERT_TRUE(excepted.ok()) << excepted.status();
  EXPECT_EQ(excepted->at("walks").count("k06531"), 1u);
}

TEST(Excepted, ALineNamesTheIdTheChecksAndTheReason) {
  const absl::StatusOr<Excepted> excepted = ParseExcepted("# a\n\nk1 hc,walks a row of values\n");
  ASSERT_TRUE(excepted.ok());
  EXPECT_EQ(excepted->at("walks").at("k1"), "a row of values");
  EXPECT_EQ(excepted->count("actions"), 0u);
  EXPECT_THAT(ParseExcepted("\nk1 hc").status().message(), HasSubstr("line 2"));
}

TEST(Excepted, StaysShort) {
  std::string text;
  for (int i = 0; i < 41; ++i) absl::StrAppend(&text, "k", i, " hc why\n");
  EXPECT_FALSE(ParseExcepted(text).ok());
}

TEST(Tally, RatioLeavesOutExcepted) {
  const CheckInput input{.excepted = {{"k2", "why"}}};
  Tally tally;
  Count("k1", std::string(), input, tally);
  Count("k2", std::string("differs"), input, tally);
  Count("k4", std::string("differs"), input, tally);
  Count("k5", absl::UnimplementedError("no"), input, tally);
  EXPECT_EQ(tally.kernels, 4);
  EXPECT_EQ(tally.equal, 1);
  EXPECT_EQ(tally.excepted, 1);
  EXPECT_EQ(tally.different, 1);
  EXPECT_EQ(tally.unsupported, 1);
  EXPECT_DOUBLE_EQ(tally.Ratio(), 1.0 / 3);
  EXPECT_EQ(tally.differences.size(), 2u);
}

TEST(Sampled, DrawsTheSameForASeed) {
  std::vector<std::string> all;
  all.reserve(1000);
  for (int i = 0; i < 1000; ++i) all.push_back(absl::StrCat("k", i));
  const std::vector<std::string> one = Sampled(all, {.sample = 10, .seed = 1});
  EXPECT_EQ(one.size(), 10u);
  EXPECT_EQ(one, Sampled(all, {.sample = 10, .seed = 1}));
  EXPECT_NE(one, Sampled(all, {.sample = 10, .seed = 2}));
  EXPECT_EQ(Sampled(all, {.sample = 0}), all);
}

TEST(Sampled, KeepsThoseThatAreNamed) {
  const std::vector<std::string> all = {"k1", "k2", "k3"};
  EXPECT_THAT(Sampled(all, {.ids = {"k3", "k1", "k4"}}), ::testing::ElementsAre("k1", "k3"));
}

TEST(Sizes, TextIsEvaluatedAsPythonWould) {
  const std::map<std::string, int64_t> at = {{"a", 7}, {"start_pos", 2}};
  EXPECT_EQ(Evaluate("(start_pos+1)", at), 3);
  EXPECT_EQ(Evaluate("((a*-1)+7)", at), 0);
  EXPECT_EQ(Evaluate("(a*-1)//2", at), -4);
  EXPECT_EQ(Evaluate("(a*-1)%4", at), 1);
  EXPECT_EQ(Evaluate("a//0", at), std::nullopt);
  EXPECT_EQ(Evaluate("b", at), std::nullopt);
  EXPECT_EQ(Evaluate("(a", at), std::nullopt);
}

TEST(Sizes, AreComparedAtTheEndsAndInTheMiddle) {
  UOpGraph graph;
  const UOp n = graph.Variable("n", 1, 9);
  const UOp sink = graph.Make(Op::kSink, DType(), {n});
  const SInt size{Cast(n, Scalar::kInt64) + 1};
  EXPECT_TRUE(SameSizes({WrittenSize("(n+1)"), WrittenSize(4)}, {size, 4}, sink));
  EXPECT_TRUE(SameSizes({WrittenSize("((n*2)+2)//2")}, {size}, sink));
  EXPECT_FALSE(SameSizes({WrittenSize("(n+2)")}, {size}, sink));
  EXPECT_FALSE(SameSizes({WrittenSize("(n+1)")}, {size, 4}, sink));
}

}  // namespace
}  // namespace beamd::conformance

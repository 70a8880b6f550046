#include "engine/search/actions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::kMatmul;
using ::beamd::testing::Made;
using ::testing::ElementsAre;

std::vector<int> Numbers(const Kernel& kernel, const ActionOptions& options = {}) {
  std::vector<int> numbers;
  for (const auto& [number, next] : LegalActions(kernel, options)) numbers.push_back(number);
  return numbers;
}

int NumberOf(const Opt& opt, const ActionOptions& options = {}) {
  const std::vector<Opt> actions = Actions(options);
  return static_cast<int>(std::find(actions.begin(), actions.end(), opt) - actions.begin()) + 1;
}

TEST(Actions, StandInTheSeedsOrder) {
  EXPECT_EQ(Actions({}).size(), 159u);
  EXPECT_EQ(NumberOf({OptOp::kUpcast, 0, 0}), 1);
  EXPECT_EQ(NumberOf({OptOp::kUnroll, 0, 0}), 37);
  EXPECT_EQ(NumberOf({OptOp::kLocal, 0, 2}), 52);
  EXPECT_EQ(NumberOf({OptOp::kGroupTop, 0, 13}), 94);
  EXPECT_EQ(NumberOf({OptOp::kGroup, 0, 0}), 118);
  EXPECT_EQ(NumberOf({OptOp::kPadTo, 0, 32}), 130);
  EXPECT_EQ(NumberOf({OptOp::kSwap, 0, 1}), 150);
}

TEST(Actions, OptionsChangeTheList) {
  EXPECT_EQ(Actions({.padto = false}).size(), 152u);
  EXPECT_EQ(Actions({.no_locals = true}).back(), Opt{.op = OptOp::kNoLocals});
  EXPECT_EQ(NumberOf({OptOp::kTc, 8, 1}, {.tc_opt = 1}), 149);
}

TEST(GroupSizes, AreForListsThatLeaveThemOpen) {
  UOpGraph graph;
  const Kernel k = Made(kMatmul, graph);
  const Opt open{.op = OptOp::kNoLocals}, upcast{OptOp::kUpcast, 0, 4};
  const std::vector<Kernel> sized = GroupSizes(k, {upcast, open});
  ASSERT_EQ(sized.size(), 11u);
  for (size_t i = 0; i < sized.size(); ++i) {
    const Opt named{OptOp::kNoLocals, 0, 1 << i};
    EXPECT_THAT(sized[i].applied_opts(), ElementsAre(upcast, named));
  }
  EXPECT_TRUE(GroupSizes(k, {upcast}).empty());
  EXPECT_TRUE(GroupSizes(k, {{OptOp::kNoLocals, 0, 64}}).empty());
  EXPECT_TRUE(GroupSizes(Made(kMatmul, graph, TargetKind::kCpu), {open}).empty());
}

TEST(LegalActions, LeadToKernelsWithOneOptMore) {
  UOpGraph graph;
  const Kernel k = Made(kMatmul, graph, TargetKind::kCpu);
  const std::vector<Opt> actions = Actions({});
  for (const auto& [number, next] : LegalActions(k, {})) {
    EXPECT_THAT(next.applied_opts(), ElementsAre(actions[number - 1]));
  }
}

TEST(LegalActions, TakeAWholeAxisOnce) {
  UOpGraph graph;
  const Kernel k = Made(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4))",
                        graph, TargetKind::kCpu);
  // UPCAST(0, 0) and UPCAST(0, 2), but not UPCAST(0, 4).
  EXPECT_THAT(Numbers(k), ElementsAre(1, 7));
}

TEST(LegalActions, StayWithinTheLimits) {
  UOpGraph graph;
  const Kernel k = Made(kMatmul, graph);
  for (const auto& [number, next] : LegalActions(k, {.upcast_max = 3, .local_max = 8})) {
    EXPECT_LE(next.UpcastProduct(), 3);
    EXPECT_LE(next.LocalProduct(), 8);
  }
  EXPECT_LT(Numbers(k, {.upcast_max = 3, .local_max = 8}).size(), Numbers(k).size());
}

}  // namespace
}  // namespace beamd

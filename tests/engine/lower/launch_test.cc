#include "engine/lower/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;

TargetCaps Limited(std::array<int64_t, 3> grid) {
  TargetCaps caps = CorpusTarget(TargetKind::kCuda);
  caps.global_max = grid;
  return caps;
}

// What a launch of a plan does.
struct Launch {
  std::array<int64_t, 3> sizes = {1, 1, 1};
  std::vector<std::vector<int64_t>> points;  // of the groups that don't end at once, x fastest
  int64_t groups() const { return sizes[0] * sizes[1] * sizes[2]; }
};

// Runs every group of it, `variables` having one value.
Launch Launched(const GridPlan& plan, int64_t variable = 0) {
  std::map<std::string, UOp> specials, extents;
  std::vector<UOp> leaves;
  for (const UOp index : plan.indices) {
    for (const UOp u : Toposort(index)) {
      if (u.is(Op::kSpecial)) specials[u.data<std::string>()] = u;
    }
  }
  Launch launch;
  for (const auto& [name, special] : specials) {
    launch.sizes[name[1] - '0'] = special.src(0).int_value();
    extents[name] = special.src(0);
    leaves.push_back(special);
  }
  for (size_t i = 0; i < plan.specials.size(); ++i) {
    extents[plan.specials[i].data<std::string>()] = plan.bounded[i].src(0);
    for (const UOp u : Toposort(plan.bounded[i])) {
      if (u.is(Op::kDefineVar)) leaves.push_back(u);
    }
  }
  for (int64_t g = 0; g < launch.groups(); ++g) {
    const std::array<int64_t, 3> at = {g % launch.sizes[0], g / launch.sizes[0] % launch.sizes[1],
                                       g / launch.sizes[0] / launch.sizes[1]};
    std::vector<int64_t> values;
    values.reserve(leaves.size());
    for (const UOp leaf : leaves) {
      values.push_back(leaf.is(Op::kSpecial) ? at[leaf.data<std::string>()[1] - '0'] : variable);
    }
    bool ends = false;
    for (const auto& [name, extent] : extents) {
      ends |= at[name[1] - '0'] >= EvaluateInt(extent, leaves, values).value();
    }
    if (ends) continue;
    std::vector<int64_t> point;
    for (const UOp index : plan.indices) {
      point.push_back(EvaluateInt(index, leaves, values).value());
    }
    launch.points.push_back(std::move(point));
  }
  return launch;
}

// Every point of the shape once.
void ExpectCovers(const Launch& launch, const std::vector<int64_t>& shape) {
  const std::set<std::vector<int64_t>> points(launch.points.begin(), launch.points.end());
  EXPECT_EQ(points.size(), launch.points.size());
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  EXPECT_EQ(static_cast<int64_t>(points.size()), count);
  for (const std::vector<int64_t>& p : points) {
    for (size_t i = 0; i < shape.size(); ++i) {
      EXPECT_GE(p[i], 0);
      EXPECT_LT(p[i], shape[i]);
    }
  }
}

int Divisions(const GridPlan& plan) {
  int divisions = 0;
  for (const UOp index : plan.indices) {
    for (const UOp u : Toposort(index)) divisions += u.is(Op::kIdiv | Op::kMod) ? 1 : 0;
  }
  return divisions;
}

TEST(PlanGrid, UpToThreeAxesAreDimensionsTheLastOneX) {
  UOpGraph g;
  const SInt shape[] = {2, 3, 5};
  const GridPlan plan = PlanGrid(g, shape, Limited({100, 100, 100})).value();
  const Launch launch = Launched(plan);
  EXPECT_THAT(launch.sizes, ElementsAre(5, 3, 2));
  EXPECT_EQ(Divisions(plan), 0);
  ExpectCovers(launch, {2, 3, 5});
  EXPECT_THAT(launch.points[1], ElementsAre(0, 0, 1));
}

TEST(PlanGrid, AxesOfOneTakeNoDimension) {
  UOpGraph g;
  const SInt shape[] = {1, 3, 1, 5, 2, 1};
  const GridPlan plan = PlanGrid(g, shape, Limited({100, 100, 100})).value();
  EXPECT_THAT(Launched(plan).sizes, ElementsAre(2, 5, 3));
  EXPECT_EQ(Divisions(plan), 0);
  ExpectCovers(Launched(plan), {1, 3, 1, 5, 2, 1});
}

TEST(PlanGrid, MoreAxesShareX) {
  UOpGraph g;
  const SInt shape[] = {2, 3, 5, 7, 4};
  const GridPlan plan = PlanGrid(g, shape, Limited({1000, 100, 100})).value();
  EXPECT_THAT(Launched(plan).sizes, ElementsAre(140, 3, 2));
  ExpectCovers(Launched(plan), {2, 3, 5, 7, 4});
}

TEST(PlanGrid, AnAxisOverItsLimitSharesAnother) {
  UOpGraph g;
  const SInt shape[] = {70, 3};
  const GridPlan plan = PlanGrid(g, shape, Limited({1000, 50, 50})).value();
  EXPECT_THAT(Launched(plan).sizes, ElementsAre(210, 1, 1));
  ExpectCovers(Launched(plan), {70, 3});
}

TEST(PlanGrid, AnAxisOverEveryLimitIsSpread) {
  UOpGraph g;
  const SInt shape[] = {96};
  // Rows of 40 would leave 24 over; 3 of 32 do not.
  const GridPlan plan = PlanGrid(g, shape, Limited({40, 40, 40})).value();
  EXPECT_THAT(Launched(plan).sizes, ElementsAre(32, 3, 1));
  EXPECT_TRUE(plan.specials.empty());
  ExpectCovers(Launched(plan), {96});
}

TEST(PlanGrid, WhatNothingDividesIsCoveredAndBounded) {
  UOpGraph g;
  const SInt shape[] = {97, 5};
  const GridPlan plan = PlanGrid(g, shape, Limited({10, 7, 9})).value();
  const Launch launch = Launched(plan);
  EXPECT_GT(launch.groups(), 97 * 5);
  ExpectCovers(launch, {97, 5});

  const SInt prime[] = {131071};
  const Launch large = Launched(PlanGrid(g, prime, Limited({65535, 65535, 65535})).value());
  EXPECT_THAT(large.sizes, ElementsAre(43691, 3, 1));
  ExpectCovers(large, {131071});
}

TEST(PlanGrid, ProductsPast32BitsAreSpread) {
  UOpGraph g;
  const int64_t limit = 2147483647;
  const SInt shape[] = {int64_t{1} << 20, int64_t{1} << 14};
  const GridPlan plan = PlanGrid(g, shape, Limited({limit, 65535, 65535})).value();
  EXPECT_TRUE(plan.specials.empty());
  int64_t groups = 1;
  std::set<UOp, decltype([](UOp a, UOp b) { return a.id() < b.id(); })> specials;
  for (const UOp index : plan.indices) {
    for (const UOp u : Toposort(index)) {
      if (u.is(Op::kSpecial) && specials.insert(u).second) groups *= u.src(0).int_value();
    }
  }
  EXPECT_EQ(groups, int64_t{1} << 34);
}

TEST(PlanGrid, ASymbolicAxisIsLaunchedAtItsMaximumAndEndsAtItsValue) {
  UOpGraph g;
  const SInt n(g.Variable("n", 1, 9));
  const SInt shape[] = {3, n, 4};
  for (const auto& limits :
       {std::array<int64_t, 3>{100, 100, 100}, {100, 2, 2}, {10, 20, 5}, {4, 4, 12}}) {
    const GridPlan plan = PlanGrid(g, shape, Limited(limits)).value();
    for (const int64_t value : {1, 5, 9}) {
      const Launch launch = Launched(plan, value);
      EXPECT_GE(launch.groups(), 3 * 9 * 4);
      ExpectCovers(launch, {3, value, 4});
    }
  }
}

TEST(PlanGrid, GroupsAreFilledWithWholeWavesThatDivideX) {
  const auto items = [](int64_t extent) {
    UOpGraph g;
    const SInt shape[] = {3, extent};
    const GridPlan plan =
        PlanGrid(g, shape, CorpusTarget(TargetKind::kCuda), /*group_items=*/0).value();
    // Every index of the axis once.
    std::map<std::string, UOp> specials;
    for (const UOp u : Toposort(plan.indices[1])) {
      if (u.is(Op::kSpecial)) specials[u.data<std::string>()] = u;
    }
    if (!specials.contains("l0")) return int64_t{1};
    std::vector<UOp> leaves = {specials.at("l0")};
    const int64_t size = leaves[0].src(0).int_value();
    int64_t groups = 1;
    if (const auto g0 = specials.find("g0"); g0 != specials.end()) {
      leaves.push_back(g0->second);
      groups = g0->second.src(0).int_value();
    }
    std::set<int64_t> seen;
    for (int64_t group = 0; group < groups; ++group) {
      for (int64_t item = 0; item < size; ++item) {
        seen.insert(EvaluateInt(plan.indices[1], leaves, {item, group}).value());
      }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), extent);
    EXPECT_EQ(*seen.rbegin(), extent - 1);
    EXPECT_EQ(groups * size, extent);
    return size;
  };
  EXPECT_EQ(items(4096), 256);
  EXPECT_EQ(items(96 * 7), 224);
  // Waves rather than 250.
  EXPECT_EQ(items(160 * 25), 160);
  EXPECT_EQ(items(45), 45);
  EXPECT_EQ(items(257), 1);
}

TEST(PlanGrid, GroupsOfSoManyAreFilledFromXOn) {
  const auto group = [](std::vector<SInt> shape, int64_t items) {
    UOpGraph g;
    const GridPlan plan = PlanGrid(g, shape, CorpusTarget(TargetKind::kCuda), items).value();
    std::array<int64_t, 3> sizes = {1, 1, 1};
    for (const UOp u : Toposort(plan.indices)) {
      if (!u.is(Op::kSpecial)) continue;
      const std::string& name = u.data<std::string>();
      if (name[0] == 'l') sizes[name[1] - '0'] = u.src(0).int_value();
    }
    return sizes;
  };
  EXPECT_THAT(group({64, 64}, 256), ElementsAre(64, 4, 1));
  EXPECT_THAT(group({64, 64}, 32), ElementsAre(32, 1, 1));
  EXPECT_THAT(group({64, 64}, 1), ElementsAre(1, 1, 1));
  EXPECT_THAT(group({7, 10, 9}, 64), ElementsAre(9, 5, 1));
  // z may have 64, of the 1024 that x may.
  EXPECT_THAT(group({128, 3, 1}, 1024), ElementsAre(3, 128, 1));
  EXPECT_THAT(group({128, 3, 2}, 1024), ElementsAre(2, 3, 64));
}

TEST(PlanGrid, MoreThanEveryDimensionTogetherIsResourceExhausted) {
  UOpGraph g;
  const SInt over[] = {61};
  EXPECT_TRUE(absl::IsResourceExhausted(PlanGrid(g, over, Limited({5, 4, 3})).status()));
  const SInt huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_TRUE(
      absl::IsResourceExhausted(PlanGrid(g, huge, CorpusTarget(TargetKind::kCuda)).status()));
}

TEST(PlanGroup, SharesDimensionsWithinTheLimits) {
  UOpGraph g;
  const SInt shape[] = {2, 4, 8, 16};
  const std::vector<UOp> indices = PlanGroup(g, shape, CorpusTarget(TargetKind::kCuda)).value();
  EXPECT_THAT(Launched({indices, {}, {}}).sizes, ElementsAre(128, 4, 2));
  ExpectCovers(Launched({indices, {}, {}}), {2, 4, 8, 16});
}

TEST(PlanGroup, MoreWorkItemsThanTheTargetTakesIsResourceExhausted) {
  UOpGraph g;
  const SInt shape[] = {2, 32, 32};
  const absl::Status status = PlanGroup(g, shape, CorpusTarget(TargetKind::kCuda)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(), "a work-group of 2048 work-items, the target takes 1024");
}

TEST(PlanGroup, ASymbolicAxisIsInvalid) {
  UOpGraph g;
  const SInt shape[] = {SInt(g.Variable("n", 1, 9))};
  EXPECT_TRUE(
      absl::IsInvalidArgument(PlanGroup(g, shape, CorpusTarget(TargetKind::kCuda)).status()));
}

}  // namespace
}  // namespace beamd

#include "engine/search/paired.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(PairedRatio, WhatSlowsBothOfAPairFallsOut) {
  std::mt19937 random(3);
  std::vector<double> slow, fast;
  for (int i = 0; i < 21; ++i) {
    const double weather = 1 + static_cast<double>(random() % 1000) / 100;
    fast.push_back(weather);
    slow.push_back(weather * 1.25);
  }
  const RatioInterval ratio = PairedRatio(slow, fast, 0.99);
  EXPECT_DOUBLE_EQ(ratio.ratio, 1.25);
  EXPECT_DOUBLE_EQ(ratio.low, 1.25);
  EXPECT_DOUBLE_EQ(ratio.high, 1.25);
}

TEST(PairedRatio, TheIntervalHoldsTheTruthAsOftenAsItSays) {
  std::mt19937 random(4);
  std::normal_distribution<double> normal;
  int held = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> slow, fast;
    for (int i = 0; i < 30; ++i) {
      slow.push_back(1.1 * std::exp(0.05 * normal(random)));
      fast.push_back(std::exp(0.05 * normal(random)));
    }
    const RatioInterval ratio = PairedRatio(slow, fast, 0.95);
    EXPECT_LE(ratio.low, ratio.ratio);
    EXPECT_LE(ratio.ratio, ratio.high);
    held += ratio.low <= 1.1 && 1.1 <= ratio.high ? 1 : 0;
  }
  EXPECT_GE(held, 180);
}

TEST(PairedRatio, TheSameSamplesGiveTheSameAnswer) {
  const std::vector<double> a = {1, 2, 3, 4}, b = {2, 1, 4, 3};
  EXPECT_EQ(PairedRatio(a, b, 0.9).low, PairedRatio(a, b, 0.9).low);
  EXPECT_EQ(PairedRatio(a, b, 0.9).ratio, (0.75 + 4.0 / 3) / 2);
}

TEST(PairedRatio, WhatIsNoTimeDoesNotCount) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(
      PairedRatio(std::vector<double>{nan, 0, 3, -1}, std::vector<double>{1, 1, 2, 1}, 0.9).ratio,
      1.5);
  EXPECT_EQ(PairedRatio(std::vector<double>{}, std::vector<double>{1}, 0.9).high, 1);
  EXPECT_EQ(PairedRatio(std::vector<double>{1}, std::vector<double>{0}, 0.9).ratio, 1);
}

}  // namespace
}  // namespace beamd

#include "server/workers/fair_share.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

// Serves a second at a time whoever comes first, for `seconds`; how much each got.
std::map<std::string, int> Serve(FairShare& share, const std::vector<Claim>& claims, int seconds) {
  std::map<std::string, int> got;
  for (const Claim& claim : claims) share.Enter(claim.principal);
  for (int i = 0; i < seconds; ++i) {
    size_t best = 0;
    for (size_t c = 1; c < claims.size(); ++c) {
      if (share.Before(claims[c], c, claims[best], best)) best = c;
    }
    share.Charge(claims[best].principal, 1);
    ++got[claims[best].principal];
  }
  for (const Claim& claim : claims) share.Leave(claim.principal);
  return got;
}

TEST(FairShare, PrincipalsGetTheSameHoweverMuchTheyAskFor) {
  FairShare share;
  const auto got = Serve(share, {{"a"}, {"a"}, {"a"}, {"b"}}, 100);
  EXPECT_EQ(got.at("a"), 50);
  EXPECT_EQ(got.at("b"), 50);
}

TEST(FairShare, WeightsCount) {
  FairShare share({{"a", 3.0}});
  const auto got = Serve(share, {{"a"}, {"b"}}, 100);
  EXPECT_NEAR(got.at("a"), 75, 1);
}

TEST(FairShare, WhoWasAwayHasSavedNothingAndOwesNothing) {
  FairShare share;
  Serve(share, {{"a"}}, 1000);
  auto got = Serve(share, {{"a"}, {"b"}}, 10);
  EXPECT_EQ(got.at("a"), 5);
  // But who had more than one that is still here comes back behind it.
  share.Enter("a");
  share.Enter("b");
  share.Charge("b", 8);
  share.Leave("b");
  got = Serve(share, {{"a"}, {"b"}}, 10);
  EXPECT_EQ(got.at("a"), 9);
}

TEST(FairShare, InteractiveGoesFirstAndPriorityCountsInsideAPrincipal) {
  FairShare share;
  const Claim batch{"a", Haste::kBatch}, normal{"a", Haste::kNormal};
  const Claim other{"b", Haste::kBatch}, now{"c", Haste::kInteractive};
  for (const Claim& claim : {batch, normal, other, now}) share.Enter(claim.principal);
  share.Charge("c", 100);
  share.Charge("a", 1);
  EXPECT_TRUE(share.Before(now, 9, normal, 1));
  EXPECT_TRUE(share.Before(normal, 2, batch, 1));
  EXPECT_TRUE(share.Before(other, 2, normal, 1)) << "its haste is b's own affair";
  EXPECT_TRUE(share.Before(batch, 1, batch, 2));
  EXPECT_FALSE(share.Before(batch, 1, batch, 1));
}

}  // namespace
}  // namespace beamd

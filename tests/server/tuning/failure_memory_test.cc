#include "server/tuning/failure_memory.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

constexpr Opt kUpcast{.op = OptOp::kUpcast, .axis = 0, .amount = 4};
constexpr Opt kUnroll{.op = OptOp::kUnroll, .axis = 0, .amount = 4};
const std::vector<Opt> kCandidate = {kUpcast};
const std::vector<Opt> kSeed = {kUnroll};

class FailureMemoryTest : public ::testing::Test {
 protected:
  // What a job recalls of the candidate, and what it then finds.
  Failure AJobThatFinds(Failure failure, const std::vector<Opt>& opts = kCandidate,
                        bool refresh = false, absl::Duration limit = absl::Seconds(10)) {
    FailureMemory memory(*store_, {.kernel = HashBytes("a kernel"),
                                   .compile_limit = limit,
                                   .refresh = refresh,
                                   .seeds = {kSeed}});
    const Failure recalled = memory.Recall(opts);
    CandidateReport report;
    report.opts = opts;
    report.failure = recalled == Failure::kNone ? failure : recalled;
    memory.Tell(report);
    return recalled;
  }

  const std::unique_ptr<Store> store_ = *Store::Open(testing::FreshDirectory());
};

TEST_F(FailureMemoryTest, ACrashOrAWrongAnswerHoldsAtOnce) {
  EXPECT_EQ(AJobThatFinds(Failure::kRunCrash), Failure::kNone);
  EXPECT_EQ(AJobThatFinds(Failure::kNone), Failure::kRunCrash);
  EXPECT_EQ(AJobThatFinds(Failure::kNone), Failure::kRunCrash) << "what isn't tried isn't well";
}

// A stopped runner, a machine that swaps: the first says little.
TEST_F(FailureMemoryTest, ALimitHoldsOnceTwoJobsOverranIt) {
  for (const Failure limit : {Failure::kRunTimeout, Failure::kCompileTimeout}) {
    const std::vector<Opt> opts(limit == Failure::kRunTimeout ? 1 : 2, kUpcast);
    EXPECT_EQ(AJobThatFinds(limit, opts), Failure::kNone);
    EXPECT_EQ(AJobThatFinds(limit, opts), Failure::kNone);
    EXPECT_EQ(AJobThatFinds(Failure::kNone, opts), limit);
  }
}

TEST_F(FailureMemoryTest, WhatRunsWellIsForgiven) {
  AJobThatFinds(Failure::kRunTimeout);
  AJobThatFinds(Failure::kNone);
  AJobThatFinds(Failure::kRunTimeout);
  EXPECT_EQ(AJobThatFinds(Failure::kNone), Failure::kNone) << "two, but not one after the other";
  AJobThatFinds(Failure::kWrongAnswer);
  EXPECT_EQ(AJobThatFinds(Failure::kNone, kCandidate, /*refresh=*/true), Failure::kNone);
  EXPECT_EQ(AJobThatFinds(Failure::kNone), Failure::kNone);
}

TEST_F(FailureMemoryTest, SeedsAreTriedEachTime) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(AJobThatFinds(Failure::kRunCrash, kSeed), Failure::kNone);
}

TEST_F(FailureMemoryTest, ALongerLimitIsAnotherTry) {
  for (int i = 0; i < 2; ++i) AJobThatFinds(Failure::kCompileTimeout);
  EXPECT_EQ(AJobThatFinds(Failure::kNone, kCandidate, false, absl::Seconds(20)), Failure::kNone);
}

}  // namespace
}  // namespace beamd

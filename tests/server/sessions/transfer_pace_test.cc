#include "server/sessions/transfer_pace.h"

#include "gtest/gtest.h"

namespace beamd {
namespace {

// Sessions are told apart by where they are.
class TransferPaceTest : public ::testing::Test {
 protected:
  const Session* const uploads_ = reinterpret_cast<const Session*>(&places_[0]);
  const Session* const runs_ = reinterpret_cast<const Session*>(&places_[1]);
  const Session* const uploads_too_ = reinterpret_cast<const Session*>(&places_[2]);
  const absl::Time now_ = absl::FromUnixSeconds(1000);
  TransferPace pace_{1000};

 private:
  char places_[3] = {};
};

TEST_F(TransferPaceTest, NobodyRuns) {
  EXPECT_EQ(pace_.Spend(uploads_, 500, now_), absl::ZeroDuration());
}

TEST_F(TransferPaceTest, AnotherSessionRuns) {
  pace_.Ran(runs_, now_);
  EXPECT_EQ(pace_.Spend(uploads_, 500, now_), absl::Milliseconds(500));
}

TEST_F(TransferPaceTest, TransfersShareTheRate) {
  pace_.Ran(runs_, now_);
  EXPECT_EQ(pace_.Spend(uploads_, 5, now_), absl::Milliseconds(5));
  EXPECT_EQ(pace_.Spend(uploads_too_, 5, now_), absl::Milliseconds(10));
  EXPECT_EQ(pace_.Spend(uploads_, 5, now_ + absl::Milliseconds(10)), absl::Milliseconds(5));
}

TEST_F(TransferPaceTest, OwnRunsAreNoReason) {
  pace_.Ran(uploads_, now_);
  EXPECT_EQ(pace_.Spend(uploads_, 500, now_), absl::ZeroDuration());
  EXPECT_EQ(pace_.Spend(uploads_too_, 500, now_), absl::Milliseconds(500));
}

TEST_F(TransferPaceTest, BothRun) {
  pace_.Ran(runs_, now_);
  pace_.Ran(uploads_, now_);
  pace_.Ran(uploads_, now_);
  EXPECT_EQ(pace_.Spend(uploads_, 500, now_), absl::Milliseconds(500));
}

TEST_F(TransferPaceTest, FullSpeedSoonAfterTheLastRun) {
  pace_.Ran(runs_, now_);
  EXPECT_EQ(pace_.Spend(uploads_, 500, now_ + absl::Seconds(1)), absl::ZeroDuration());
}

TEST_F(TransferPaceTest, NoBound) {
  TransferPace unbound(0);
  unbound.Ran(runs_, now_);
  EXPECT_EQ(unbound.Spend(uploads_, 500, now_), absl::ZeroDuration());
}

}  // namespace
}  // namespace beamd

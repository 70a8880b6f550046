#include "server/tuning/remembering_pipeline.h"

#include <deque>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

// Compiles everything.
class Willing final : public CandidatePipeline {
 public:
  void Submit(CompileTask task) override { done_.emplace_back(CompileDone{.id = task.id}); }
  void Submit(TimeTask task) override { done_.emplace_back(TimeDone{.id = task.id}); }
  void Submit(VerifyTask task) override { done_.emplace_back(VerifyDone{.id = task.id}); }
  int compile_parallelism() const override { return 3; }
  std::optional<Completion> Next(absl::Time) override {
    if (done_.empty() || cancelled_) return std::nullopt;
    Completion next = done_.front();
    done_.pop_front();
    return next;
  }
  bool cancelled() const override { return cancelled_; }

  bool cancelled_ = false;

 private:
  std::deque<Completion> done_;
};

constexpr Opt kBad{.op = OptOp::kUpcast, .axis = 0, .amount = 4};

class RememberingPipelineTest : public ::testing::Test {
 protected:
  CompileDone Compile(const std::vector<Opt>& opts) {
    pipeline_.Submit(CompileTask{7, opts});
    const std::optional<Completion> next = pipeline_.Next(absl::InfiniteFuture());
    return next ? std::get<CompileDone>(*next) : CompileDone{.failure = Failure::kCancelled};
  }

  Failure last_time_ = Failure::kNone;
  Willing inner_;
  RememberingPipeline pipeline_{inner_, [this](const std::vector<Opt>& opts) {
                                  return opts == std::vector<Opt>{kBad} ? last_time_
                                                                        : Failure::kNone;
                                }};
};

TEST_F(RememberingPipelineTest, DoesNotCompileWhatCrashedBefore) {
  last_time_ = Failure::kRunCrash;
  const CompileDone done = Compile({kBad});
  EXPECT_EQ(done.id, 7);
  EXPECT_EQ(done.failure, Failure::kRunCrash);
  EXPECT_FALSE(done.detail.empty());
  EXPECT_FALSE(inner_.Next(absl::InfiniteFuture())) << "it was compiled all the same";
}

TEST_F(RememberingPipelineTest, CompilesAgainWhatWasOnlySlowOrRefused) {
  for (const Failure failure : {Failure::kNone, Failure::kTooManyUops, Failure::kDuplicate,
                                Failure::kInvalidTime, Failure::kRunMemory, Failure::kCancelled}) {
    last_time_ = failure;
    EXPECT_EQ(Compile({kBad}).failure, Failure::kNone) << Name(failure);
  }
}

TEST(StillHolds, OnlyOfACompileThatHadAsLong) {
  const absl::Duration longer = absl::Seconds(10), shorter = absl::Nanoseconds(1);
  EXPECT_EQ(StillHolds(Failure::kCompileTimeout, shorter, longer), Failure::kNone);
  EXPECT_EQ(StillHolds(Failure::kCompileTimeout, absl::ZeroDuration(), shorter), Failure::kNone);
  EXPECT_EQ(StillHolds(Failure::kCompileTimeout, longer, longer), Failure::kCompileTimeout);
  EXPECT_EQ(StillHolds(Failure::kCompileTimeout, longer, shorter), Failure::kCompileTimeout);
  EXPECT_EQ(StillHolds(Failure::kRunCrash, shorter, longer), Failure::kRunCrash);
}

TEST_F(RememberingPipelineTest, PassesAllElseOn) {
  last_time_ = Failure::kCompileTimeout;
  EXPECT_EQ(Compile({}).failure, Failure::kNone);
  EXPECT_EQ(pipeline_.compile_parallelism(), 3);
  pipeline_.Submit(TimeTask{.id = 1});
  EXPECT_TRUE(std::holds_alternative<TimeDone>(*pipeline_.Next(absl::InfiniteFuture())));
  pipeline_.Submit(VerifyTask{.id = 2});
  EXPECT_TRUE(std::holds_alternative<VerifyDone>(*pipeline_.Next(absl::InfiniteFuture())));
  inner_.cancelled_ = true;
  EXPECT_TRUE(pipeline_.cancelled());
  pipeline_.Submit(CompileTask{3, {kBad}});
  EXPECT_FALSE(pipeline_.Next(absl::InfiniteFuture()));
}

}  // namespace
}  // namespace beamd

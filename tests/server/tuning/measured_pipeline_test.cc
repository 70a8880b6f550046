#include "server/tuning/measured_pipeline.h"

#include <deque>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

// Says what it was given.
class Script final : public CandidatePipeline {
 public:
  explicit Script(std::deque<Completion> script) : script_(std::move(script)) {}
  void Submit(CompileTask) override {}
  void Submit(TimeTask) override {}
  void Submit(VerifyTask) override {}
  int compile_parallelism() const override { return 3; }
  bool cancelled() const override { return true; }
  std::optional<Completion> Next(absl::Time) override {
    if (script_.empty()) return std::nullopt;
    Completion next = std::move(script_.front());
    script_.pop_front();
    return next;
  }

 private:
  std::deque<Completion> script_;
};

TEST(MeasuredPipeline, CountsCandidatesByOutcomeAndReason) {
  Metrics metrics;
  const auto pipeline = Measured(std::make_unique<Script>(std::deque<Completion>{
                                     CompileDone{.compile_time = absl::Milliseconds(4)},
                                     CompileDone{.failure = Failure::kCompileTimeout}, TimeDone{},
                                     TimeDone{.failure = Failure::kRunCrash}, VerifyDone{}}),
                                 metrics);
  EXPECT_EQ(pipeline->compile_parallelism(), 3);
  EXPECT_TRUE(pipeline->cancelled());
  int ended = 0;
  while (pipeline->Next(absl::InfiniteFuture())) ++ended;
  EXPECT_EQ(ended, 5);
  const std::string text = metrics.Scrape();
  for (const char* line : {"beamd_candidates_total{outcome=\"compiled\",reason=\"\"} 1",
                           "beamd_candidates_total{outcome=\"timed\",reason=\"\"} 1",
                           "beamd_candidates_total{outcome=\"verified\",reason=\"\"} 1",
                           "beamd_compile_duration_seconds_count 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  for (const Failure failure : {Failure::kCompileTimeout, Failure::kRunCrash}) {
    EXPECT_THAT(text,
                HasSubstr("outcome=\"failed\",reason=\"" + std::string(Name(failure)) + "\"} 1"));
  }
}

}  // namespace
}  // namespace beamd

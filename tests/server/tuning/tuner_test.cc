#include "server/tuning/tuner.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuning/options.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

// Nothing is ever submitted to it: the scripted searches don't compile.
class IdlePipeline final : public CandidatePipeline {
 public:
  explicit IdlePipeline(CancelToken& token) : token_(token) {}
  void Submit(CompileTask) override {}
  void Submit(TimeTask) override {}
  void Submit(VerifyTask) override {}
  int compile_parallelism() const override { return 1; }
  std::optional<Completion> Next(absl::Time) override { return std::nullopt; }
  bool cancelled() const override { return token_.cancelled(); }

 private:
  CancelToken& token_;
};

class TunerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    StartTuner();
  }
  void TearDown() override { released_ = true; }

  void StartTuner() {
    tuner_.reset();
    store_.reset();
    store_ = *Store::Open(directory_);
    TuningDevice device{.id = "cpu:0"};
    device.environment.set_kind("cpu");
    device.environment.set_arch("znver4");
    TunerParts parts{
        .parse = [](const v1::Graph& graph) -> absl::StatusOr<ParsedKernel> {
          if (graph.nodes().empty()) {
            return InvalidArgument("no nodes", {.reason = "EMPTY", .field = "graph.nodes"});
          }
          ParsedKernel kernel{.graph = std::make_unique<UOpGraph>(), .canonical = graph};
          kernel.hash = HashBytes(graph.SerializeAsString());
          return kernel;
        },
        .applies = [](const ParsedKernel&, const TargetCaps&,
                      const std::vector<Opt>&) { return true; },
        .make_pipeline = [](const ParsedKernel&, const TuningDevice&, const v1::SearchOptions&,
                            const std::string&,
                            CancelToken& token) -> std::unique_ptr<CandidatePipeline> {
          return std::make_unique<IdlePipeline>(token);
        },
        .search = [this](const SearchJob& job,
                         CandidatePipeline& pipeline) { return Search(job, pipeline); }};
    tuner_ = std::make_unique<Tuner>(
        *store_, std::vector<TuningDevice>{device}, std::move(parts),
        TunerOptions{.defaults = DefaultSearchOptions(), .max_queued_jobs = 2, .host = "here"});
  }

  // Says once that it runs, then waits to be released, cancelled, or out of budget.
  absl::StatusOr<v1::Record> Search(const SearchJob& job, CandidatePipeline& pipeline) {
    ++searches_;
    deadline_ = job.deadline;
    refresh_ = job.refresh;
    v1::TuneProgress progress;
    progress.set_phase(v1::PHASE_SEARCHING);
    progress.set_debug("line");
    job.progress(progress);
    v1::Record record;
    record.set_best_s(0.5);
    record.mutable_verification()->set_verified(verifies_);
    record.set_end(v1::SEARCH_END_CONVERGED);
    while (!released_ && !pipeline.cancelled()) {
      if (absl::Now() > job.deadline) {
        record.set_end(v1::SEARCH_END_BUDGET);
        return record;
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
    if (fails_) return absl::InternalError("scripted");
    return record;
  }

  static v1::TuneRequest Request(int kernel = 1) {
    v1::TuneRequest request;
    for (int i = 0; i < kernel; ++i) request.mutable_graph()->add_nodes()->set_op(v1::OP_SINK);
    return request;
  }
  Tuner::Answer Tune(const v1::TuneRequest& request) {
    absl::StatusOr<Tuner::Answer> answer = tuner_->Tune(request, "trace", [] {});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return *std::move(answer);
  }
  static absl::StatusOr<v1::TuneResult> End(const Job& job) {
    while (true) {
      const Job::News news = job.Look(0);
      if (news.end) return *news.end;
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  void AwaitSearches(int count) {
    while (searches_ < count) absl::SleepFor(absl::Milliseconds(1));
  }

  const std::string directory_ = absl::StrCat(
      testing::TempDir(), "tuner.", testing::UnitTest::GetInstance()->current_test_info()->name());
  std::atomic<bool> released_ = false;
  std::atomic<bool> fails_ = false;
  std::atomic<bool> verifies_ = true;
  std::atomic<int> searches_ = 0;
  absl::Time deadline_;
  bool refresh_ = false;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Tuner> tuner_;
};

TEST_F(TunerTest, SearchesOnceAndAnswersFromTheStoreFromThenOn) {
  released_ = true;
  const Tuner::Answer first = Tune(Request());
  ASSERT_NE(first.watch, nullptr);
  EXPECT_EQ(first.accepted.miss(), v1::MISS_REASON_NO_RECORD);
  const absl::StatusOr<v1::TuneResult> result = End(first.watch->job());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->persisted());
  EXPECT_EQ(result->match(), v1::MATCH_SEARCHED);
  EXPECT_EQ(result->record().key(), first.accepted.key());
  EXPECT_EQ(result->record().generation(), 1);
  EXPECT_EQ(result->record().host(), "here");
  EXPECT_EQ(result->record().device(), "cpu:0");
  EXPECT_EQ(result->record().job(), first.accepted.job());
  EXPECT_EQ(result->record().environment().arch(), "znver4");

  for (int daemon = 0; daemon < 2; ++daemon) {
    const Tuner::Answer again = Tune(Request());
    ASSERT_TRUE(again.result);
    EXPECT_EQ(again.result->match(), v1::MATCH_STRICT);
    EXPECT_EQ(again.result->record().best_s(), 0.5);
    EXPECT_TRUE(again.accepted.job().empty());
    StartTuner();
  }
  EXPECT_EQ(searches_, 1);
}

TEST_F(TunerTest, ARequestForTheSameKeyJoinsTheJobThatSearchesIt) {
  const Tuner::Answer first = Tune(Request());
  AwaitSearches(1);
  const Tuner::Answer second = Tune(Request());
  EXPECT_FALSE(first.accepted.joined());
  EXPECT_TRUE(second.accepted.joined());
  EXPECT_EQ(first.accepted.job(), second.accepted.job());
  // What does not change results does not keep them apart.
  v1::TuneRequest same = Request();
  same.mutable_search()->set_parallel(1);
  EXPECT_TRUE(Tune(same).accepted.joined());
  v1::TuneRequest wider = Request();
  wider.mutable_search()->set_width(9);
  EXPECT_FALSE(Tune(wider).accepted.joined());
  released_ = true;
  EXPECT_TRUE(End(second.watch->job()).ok());
}

TEST_F(TunerTest, AJobIsCancelledWhenTheLastWatcherLeaves) {
  Tuner::Answer first = Tune(Request());
  Tuner::Answer second = Tune(Request());
  AwaitSearches(1);
  const auto job = first.watch->job().shared_from_this();
  first.watch.reset();
  EXPECT_FALSE(job->token().cancelled());
  second.watch->Leave(StopReason::kDeadline);
  EXPECT_EQ(job->token().reason(), StopReason::kDeadline);
  End(*job).IgnoreError();
  EXPECT_EQ((*store_->FindJob(job->id()))->state(), internal::StoredJob::CANCELLED);
  EXPECT_FALSE(*store_->FindRecord(*Digest::FromHex(job->key()))) << "cut short, yet stored";
}

TEST_F(TunerTest, NobodyJoinsAJobThatIsBeingCancelled) {
  fails_ = true;
  Tuner::Answer first = Tune(Request());
  AwaitSearches(1);
  const auto job = first.watch->job().shared_from_this();
  first.watch.reset();
  const Tuner::Answer second = Tune(Request());
  EXPECT_FALSE(second.accepted.joined());
  EXPECT_NE(second.accepted.job(), job->id());
  EXPECT_EQ(End(*job).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*store_->FindJob(job->id()))->state(), internal::StoredJob::CANCELLED);
}

TEST_F(TunerTest, TheJobIsWrittenBeforeItIsAcknowledged) {
  const Tuner::Answer answer = Tune(Request());
  const auto stored = *store_->FindJob(answer.accepted.job());
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->state(), internal::StoredJob::ACCEPTED);
  EXPECT_EQ(stored->request().graph().nodes_size(), 1);
  EXPECT_EQ(stored->trace(), "trace");
  EXPECT_EQ(stored->key(), answer.accepted.key());
}

TEST_F(TunerTest, JobsThatAnEarlierDaemonLeftAreMarked) {
  internal::StoredJob job;
  job.set_id("left");
  job.set_state(internal::StoredJob::ACCEPTED);
  ASSERT_TRUE(store_->PutJob(job).ok());
  ASSERT_TRUE(tuner_->MarkInterruptedJobs().ok());
  EXPECT_EQ((*store_->FindJob("left"))->state(), internal::StoredJob::INTERRUPTED);
  EXPECT_TRUE(store_->UnfinishedJobs()->empty());
}

TEST_F(TunerTest, ABudgetEndsTheSearchWithItsBest) {
  v1::TuneRequest request = Request();
  request.mutable_budget()->set_nanos(20'000'000);
  const absl::StatusOr<v1::TuneResult> result = End(Tune(request).watch->job());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->record().end(), v1::SEARCH_END_BUDGET);
  EXPECT_TRUE(result->persisted());
}

TEST_F(TunerTest, WhatABudgetCutShortBeforeItWasCheckedIsNotStored) {
  verifies_ = false;
  v1::TuneRequest request = Request();
  request.mutable_budget()->set_nanos(20'000'000);
  EXPECT_FALSE(End(Tune(request).watch->job())->persisted());
  EXPECT_TRUE(store_->ListRecords(std::nullopt, 10)->empty());
}

TEST_F(TunerTest, ABudgetThatIsNoTimeIsRefused) {
  v1::TuneRequest request = Request();
  request.mutable_budget()->set_seconds(-5);
  const absl::Status status = tuner_->Tune(request, "", [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(status)->field, "budget");
}

TEST_F(TunerTest, TheBudgetCountsRunningNotQueueing) {
  const Tuner::Answer running = Tune(Request(1));
  AwaitSearches(1);
  v1::TuneRequest request = Request(2);
  request.mutable_budget()->set_seconds(3600);
  const Tuner::Answer queued = Tune(request);
  absl::SleepFor(absl::Milliseconds(20));
  const absl::Time left_the_queue = absl::Now();
  released_ = true;
  ASSERT_TRUE(End(queued.watch->job()).ok());
  EXPECT_GE(deadline_, left_the_queue + absl::Hours(1));
}

TEST_F(TunerTest, RefreshSearchesAgainAndWritesTheNextGeneration) {
  released_ = true;
  const Tuner::Answer first = Tune(Request());
  End(first.watch->job()).IgnoreError();
  v1::TuneRequest request = Request();
  request.set_mode(v1::TUNE_MODE_REFRESH);
  const Tuner::Answer second = Tune(request);
  EXPECT_EQ(second.accepted.miss(), v1::MISS_REASON_REFRESH);
  ASSERT_NE(second.watch, nullptr);
  EXPECT_EQ(End(second.watch->job())->record().generation(), 2);
  EXPECT_TRUE(refresh_) << "the search doesn't know that it starts afresh";
}

TEST_F(TunerTest, LookupOnlyNeverSearches) {
  v1::TuneRequest request = Request();
  request.set_mode(v1::TUNE_MODE_LOOKUP_ONLY);
  const absl::Status status = tuner_->Tune(request, "", [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetErrorDetail(status)->reason, "MISS_REASON_NO_RECORD");

  v1::LookupQuery query;
  *query.mutable_graph() = request.graph();
  EXPECT_EQ(tuner_->Lookup(query)->miss().reason(), v1::MISS_REASON_NO_RECORD);
  released_ = true;
  const Tuner::Answer answer = Tune(Request());
  End(answer.watch->job()).IgnoreError();
  const v1::LookupAnswer found = *tuner_->Lookup(query);
  EXPECT_EQ(found.hit().match(), v1::MATCH_STRICT);
  EXPECT_EQ(found.key(), answer.accepted.key());
  EXPECT_EQ(searches_, 1);
}

TEST_F(TunerTest, NoStoreKeepsTheResultToItself) {
  released_ = true;
  v1::TuneRequest request = Request();
  request.set_no_store(true);
  const Tuner::Answer answer = Tune(request);
  EXPECT_FALSE(End(answer.watch->job())->persisted());
  EXPECT_TRUE(store_->ListRecords(std::nullopt, 10)->empty());
}

TEST_F(TunerTest, AFailedSearchIsToldAndNotStored) {
  released_ = true;
  fails_ = true;
  const Tuner::Answer answer = Tune(Request());
  EXPECT_EQ(End(answer.watch->job()).status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(store_->ListRecords(std::nullopt, 10)->empty());
  const auto stored = *store_->FindJob(answer.accepted.job());
  EXPECT_EQ(stored->state(), internal::StoredJob::FAILED);
  EXPECT_THAT(stored->error(), HasSubstr("scripted"));
}

TEST_F(TunerTest, BadRequestsNameTheField) {
  EXPECT_EQ(GetErrorDetail(tuner_->Tune({}, "", [] {}).status())->field, "graph.nodes");
  v1::TuneRequest request = Request();
  request.mutable_device()->set_id("cuda:7");
  const absl::Status status = tuner_->Tune(request, "", [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(status)->reason, "NO_SUCH_DEVICE");
}

TEST_F(TunerTest, AQueuedJobKnowsItsPlaceAndAFullQueueIsRefused) {
  const Tuner::Answer running = Tune(Request(1));
  AwaitSearches(1);
  const Tuner::Answer second = Tune(Request(2));
  const Tuner::Answer third = Tune(Request(3));
  EXPECT_EQ(second.watch->job().Look(0).progress->queue_position(), 1);
  EXPECT_EQ(third.watch->job().Look(0).progress->queue_position(), 2);
  EXPECT_EQ(third.watch->job().Look(0).progress->phase(), v1::PHASE_QUEUED);
  const absl::Status status = tuner_->Tune(Request(4), "", [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetail(status)->limit, 2);
  released_ = true;
  EXPECT_TRUE(End(third.watch->job()).ok());
}

TEST_F(TunerTest, WatchersAreCalledAndLookOnlyAtWhatIsNew) {
  std::atomic<int> calls = 0;
  const Tuner::Answer answer = *tuner_->Tune(Request(), "", [&] { ++calls; });
  AwaitSearches(1);
  const Job& job = answer.watch->job();
  while (job.Look(0).progress->phase() != v1::PHASE_SEARCHING) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(job.Look(0).progress->debug(), "line");
  EXPECT_FALSE(job.Look(job.Look(0).number).progress);
  const int before = calls;
  EXPECT_GT(before, 0);
  released_ = true;
  EXPECT_TRUE(End(job).ok());
  while (calls == before) absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(TunerTest, DrainingLetsJobsEndUntilItsDeadlineAndRefusesNewOnes) {
  const Tuner::Answer answer = Tune(Request(1));
  const Tuner::Answer queued = Tune(Request(2));
  AwaitSearches(1);
  tuner_->Drain(absl::Now() + absl::Milliseconds(20));
  EXPECT_EQ(tuner_->Tune(Request(3), "", [] {}).status().code(), absl::StatusCode::kUnavailable);
  const absl::StatusOr<v1::TuneResult> best_so_far = End(answer.watch->job());
  ASSERT_TRUE(best_so_far.ok());
  EXPECT_EQ(best_so_far->record().end(), v1::SEARCH_END_SHUTDOWN);
  EXPECT_FALSE(best_so_far->persisted());
  EXPECT_EQ(End(queued.watch->job()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*store_->FindJob(queued.accepted.job()))->state(), internal::StoredJob::INTERRUPTED);
}

}  // namespace
}  // namespace beamd

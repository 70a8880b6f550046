#include "server/tuning/tuner.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/mutex.h"
#include "engine/base/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuning/options.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Nothing is ever submitted to it: the scripted searches don't compile.
class IdlePipeline final : public CandidatePipeline {
 public:
  IdlePipeline(CancelToken& token, const std::atomic<bool>& hangs) : token_(token), hangs_(hangs) {}
  void Submit(CompileTask) override {}
  void Submit(TimeTask) override {}
  void Submit(VerifyTask) override {}
  int compile_parallelism() const override { return 1; }
  std::optional<Completion> Next(absl::Time) override {
    while (hangs_ && !token_.cancelled()) absl::SleepFor(absl::Milliseconds(1));
    return std::nullopt;
  }
  bool cancelled() const override { return token_.cancelled(); }

 private:
  CancelToken& token_;
  const std::atomic<bool>& hangs_;
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
    TuningDevice device{.id = device_id_};
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
        .quarantine =
            [this](const TuningDevice&) {
              MutexLock lock(mutex_);
              return quarantine_;
            },
        .heuristic = [](const ParsedKernel&,
                        const TargetCaps&) -> absl::StatusOr<std::vector<Opt>> {
          return std::vector<Opt>{{OptOp::kUpcast, 0, 4}};
        },
        .estimate = [](const ParsedKernel&) { return 1.0; },
        .make_pipeline = [this](const ParsedKernel&, const TuningDevice&, const v1::SearchOptions&,
                                PipelineUse use,
                                CancelToken& token) -> std::unique_ptr<CandidatePipeline> {
          use.charge(device_time_);
          MutexLock lock(mutex_);
          late_charge_ = use.charge;
          haste_ = use.haste;
          return std::make_unique<IdlePipeline>(token, hangs_);
        },
        .search = [this](const SearchJob& job,
                         CandidatePipeline& pipeline) { return Search(job, pipeline); }};
    tuner_ = std::make_unique<Tuner>(
        *store_, std::vector<TuningDevice>{device}, std::move(parts),
        TunerOptions{.defaults = DefaultSearchOptions(),
                     .queue = {.queued_max = 2, .principal_jobs = principal_jobs_, .grace = grace_},
                     .device_seconds_a_day = 100,
                     .retry = retry_,
                     .host = "here"});
  }

  // The next daemon finds what this one had written when it died.
  void DieAndStart() {
    const std::string left = absl::StrCat(directory_, ".");
    std::filesystem::remove_all(left);
    ASSERT_TRUE(store_->Checkpoint(left).ok());
    directory_ = left;
    StartTuner();
  }

  Haste LastHaste() {
    MutexLock lock(mutex_);
    return *haste_;
  }
  std::function<void(absl::Duration)> LateCharge() {
    MutexLock lock(mutex_);
    return late_charge_;
  }

  // Says once that it runs, then waits to be released, cancelled, or out of budget.
  absl::StatusOr<v1::Record> Search(const SearchJob& job, CandidatePipeline& pipeline) {
    ++searches_;
    {
      MutexLock lock(mutex_);
      order_.push_back(job.kernel.canonical.nodes_size());
      budget_ = job.budget;
      refresh_ = job.refresh;
    }
    const absl::Time deadline = absl::Now() + job.budget;
    v1::TuneProgress progress;
    progress.set_phase(v1::PHASE_SEARCHING);
    progress.set_debug("line");
    job.progress(progress);
    v1::Record record;
    record.set_best_s(0.5);
    record.mutable_verification()->set_verified(verifies_);
    record.set_end(v1::SEARCH_END_CONVERGED);
    while (!released_ && !pipeline.cancelled()) {
      if (absl::Now() > deadline) {
        record.set_end(v1::SEARCH_END_BUDGET);
        return record;
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
    if (fails_) return absl::InternalError("scripted");
    if (away_) return absl::UnavailableError("scripted: no device");
    return record;
  }

  static v1::TuneRequest Request(int kernel = 1) {
    v1::TuneRequest request;
    for (int i = 0; i < kernel; ++i) request.mutable_graph()->add_nodes()->set_op(v1::OP_SINK);
    return request;
  }
  static Caller From(const std::string& principal) {
    return {.principal = principal, .trace = "trace"};
  }
  static v1::TuneRequest Request(int kernel, v1::Priority priority) {
    v1::TuneRequest request = Request(kernel);
    request.set_priority(priority);
    return request;
  }
  Tuner::Answer Tune(const v1::TuneRequest& request, const std::string& principal = "me") {
    absl::StatusOr<Tuner::Answer> answer = tuner_->Tune(request, From(principal), [] {});
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
  void Quarantine(const std::string& why) {
    MutexLock lock(mutex_);
    quarantine_ = why;
  }
  v1::JobState StateOf(const Tuner::Answer& answer) {
    return tuner_->GetJob(answer.accepted.job())->state();
  }
  // And told so.
  void AwaitAllEnded() {
    while (!store_->UnfinishedJobs()->empty() || tuner_->load().running > 0) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  void AwaitSearches(int count) {
    while (searches_ < count) absl::SleepFor(absl::Milliseconds(1));
  }

  std::string directory_ = absl::StrCat(
      testing::TempDir(), "tuner.", testing::UnitTest::GetInstance()->current_test_info()->name());
  std::atomic<bool> released_ = false;
  std::atomic<bool> fails_ = false;
  std::atomic<bool> away_ = false;
  std::atomic<bool> hangs_ = false;  // pipelines do, until they are cancelled
  std::atomic<bool> verifies_ = true;
  std::atomic<int> searches_ = 0;
  absl::Duration device_time_;
  int principal_jobs_ = 0;
  absl::Duration grace_ = absl::Milliseconds(20);
  absl::Duration retry_ = absl::Milliseconds(5);
  std::string device_id_ = "cpu:0";
  Mutex mutex_;
  // Of the pipeline that was made last, and of the search that began last.
  std::function<void(absl::Duration)> late_charge_ BEAMD_GUARDED_BY(mutex_);
  const std::atomic<Haste>* haste_ BEAMD_GUARDED_BY(mutex_) = nullptr;
  absl::Duration budget_ BEAMD_GUARDED_BY(mutex_);
  bool refresh_ BEAMD_GUARDED_BY(mutex_) = false;
  std::string quarantine_ BEAMD_GUARDED_BY(mutex_);
  std::vector<int> order_ BEAMD_GUARDED_BY(mutex_);  // kernels, as they were searched
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

TEST_F(TunerTest, AJobIsCancelledAWhileAfterTheLastWatcherLeft) {
  Tuner::Answer first = Tune(Request());
  Tuner::Answer second = Tune(Request());
  AwaitSearches(1);
  const auto job = first.watch->job().shared_from_this();
  first.watch.reset();
  absl::SleepFor(absl::Milliseconds(150));
  EXPECT_FALSE(job->token().cancelled());
  second.watch->Leave(StopReason::kCancelled);
  EXPECT_FALSE(job->token().cancelled());
  const absl::StatusOr<v1::TuneResult> end = End(*job);
  EXPECT_EQ(job->token().reason(), StopReason::kCancelled);
  EXPECT_EQ(end->record().end(), v1::SEARCH_END_CANCELLED);
  EXPECT_FALSE(*store_->FindRecord(*Digest::FromHex(job->key()))) << "cut short, yet stored";
  // The best so far is the job's.
  const v1::Job known = *tuner_->GetJob(job->id());
  EXPECT_EQ(known.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(known.result().record().best_s(), 0.5);
}

TEST_F(TunerTest, WhoComesBackInTimeKeepsTheJob) {
  grace_ = absl::Seconds(5);
  StartTuner();
  Tuner::Answer first = Tune(Request());
  AwaitSearches(1);
  for (int i = 0; i < 20; ++i) {
    first.watch.reset();
    absl::SleepFor(absl::Milliseconds(5));
    first = *tuner_->WatchJob(first.accepted.job(), [] {});
    ASSERT_NE(first.watch, nullptr);
  }
  released_ = true;
  EXPECT_EQ(End(first.watch->job())->record().end(), v1::SEARCH_END_CONVERGED);
}

TEST_F(TunerTest, TheLastToLeaveForItsDeadlineEndsTheJobAtOnce) {
  const Tuner::Answer first = Tune(Request());
  AwaitSearches(1);
  first.watch->Leave(StopReason::kDeadline);
  EXPECT_EQ(first.watch->job().token().reason(), StopReason::kDeadline);
}

TEST_F(TunerTest, ADetachedJobGoesOnAloneAndIsFoundByItsId) {
  v1::TuneRequest request = Request();
  request.set_detach(true);
  Tuner::Answer answer = Tune(request);
  answer.watch.reset();
  AwaitSearches(1);
  absl::SleepFor(absl::Milliseconds(150));
  const v1::Job running = *tuner_->GetJob(answer.accepted.job());
  EXPECT_EQ(running.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(running.principal(), "me");
  EXPECT_TRUE(running.kept());
  EXPECT_EQ(running.watchers(), 0);
  EXPECT_EQ(running.progress().phase(), v1::PHASE_SEARCHING);
  EXPECT_EQ(running.mode(), v1::TUNE_MODE_TUNE);
  EXPECT_EQ(running.miss(), v1::MISS_REASON_NO_RECORD);
  const Tuner::Answer watched = *tuner_->WatchJob(answer.accepted.job(), [] {});
  EXPECT_EQ(watched.accepted.key(), answer.accepted.key());
  EXPECT_EQ(watched.accepted.miss(), v1::MISS_REASON_NO_RECORD);
  released_ = true;
  const v1::TuneResult result = *End(watched.watch->job());
  // One that has ended tells its result.
  const Tuner::Answer later = *tuner_->WatchJob(answer.accepted.job(), [] {});
  EXPECT_EQ(later.watch, nullptr);
  EXPECT_EQ(later.result->record().DebugString(), result.record().DebugString());
  EXPECT_EQ(tuner_->WatchJob("none", [] {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(tuner_->ListJobs("", 10)->size(), 1);
  EXPECT_EQ(tuner_->ListJobs("", 10)->at(0).state(), v1::JOB_STATE_FINISHED);
}

TEST_F(TunerTest, CancelEndsAJobWhoeverWatches) {
  const Tuner::Answer running = Tune(Request(1));
  AwaitSearches(1);
  const Tuner::Answer queued = Tune(Request(2));
  // Queued behind a search that goes on: it ends all the same.
  ASSERT_TRUE(tuner_->CancelJob(queued.accepted.job()).ok());
  EXPECT_EQ(End(queued.watch->job()).status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(tuner_->CancelJob(running.accepted.job()).ok());
  EXPECT_EQ(End(running.watch->job())->record().end(), v1::SEARCH_END_CANCELLED);
  while (tuner_->CancelJob(running.accepted.job()).ok()) absl::SleepFor(absl::Milliseconds(1));
  const absl::Status status = tuner_->CancelJob(running.accepted.job()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status)->reason, "JOB_ENDED");
  EXPECT_EQ(searches_, 1);
}

TEST_F(TunerTest, NobodyJoinsAJobThatIsBeingCancelled) {
  fails_ = true;
  Tuner::Answer first = Tune(Request());
  AwaitSearches(1);
  const auto job = first.watch->job().shared_from_this();
  first.watch->Leave(StopReason::kDeadline);
  const Tuner::Answer second = Tune(Request());
  EXPECT_FALSE(second.accepted.joined());
  EXPECT_NE(second.accepted.job(), job->id());
  EXPECT_EQ(End(*job).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*store_->FindJob(job->id()))->state(), internal::StoredJob::CANCELLED);
}

TEST_F(TunerTest, WhoWantsARecordGetsItFromAJobThatWasNotToWriteOne) {
  v1::TuneRequest request = Request();
  request.set_no_store(true);
  const Tuner::Answer first = Tune(request);
  const Tuner::Answer second = Tune(Request());
  EXPECT_TRUE(second.accepted.joined());
  released_ = true;
  EXPECT_TRUE(End(second.watch->job())->persisted());
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

TEST_F(TunerTest, JobsThatAnEarlierDaemonLeftAreTakenUp) {
  const Tuner::Answer left = Tune(Request());
  AwaitSearches(1);
  const Tuner::Answer behind = Tune(Request(2));
  StartTuner();
  EXPECT_EQ(store_->UnfinishedJobs()->size(), 2);
  released_ = true;
  tuner_->ResumeJobs();
  const Tuner::Answer again = *tuner_->WatchJob(left.accepted.job(), [] {});
  if (again.watch != nullptr) {
    EXPECT_TRUE(End(again.watch->job()).ok());
  }
  AwaitAllEnded();
  for (const Tuner::Answer* answer : {&left, &behind}) {
    const v1::Job job = *tuner_->GetJob(answer->accepted.job());
    EXPECT_EQ(job.state(), v1::JOB_STATE_FINISHED);
    EXPECT_EQ(job.resumes(), 1);
    EXPECT_TRUE(job.result().persisted());
  }
}

TEST_F(TunerTest, AJobWhoseRecordWasWrittenIsNotSearchedAgain) {
  released_ = true;
  const Tuner::Answer answer = Tune(Request());
  ASSERT_TRUE(End(answer.watch->job()).ok());
  internal::StoredJob job = **store_->FindJob(answer.accepted.job());
  while (job.state() == internal::StoredJob::ACCEPTED) {
    job = **store_->FindJob(answer.accepted.job());
  }
  job.set_state(internal::StoredJob::ACCEPTED);
  job.clear_generation();
  ASSERT_TRUE(store_->PutJob(job).ok());
  StartTuner();
  tuner_->ResumeJobs();
  EXPECT_EQ(tuner_->GetJob(job.id())->state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(tuner_->GetJob(job.id())->result().record().generation(), 1);
  EXPECT_EQ(searches_, 1);
}

TEST_F(TunerTest, AJobThatEndsItsDaemonEachTimeIsGivenUp) {
  const std::string id = Tune(Request()).accepted.job();
  for (int daemon = 0; daemon < 11; ++daemon) {
    AwaitSearches(daemon + 1);
    DieAndStart();
    tuner_->ResumeJobs();
  }
  const v1::Job job = *tuner_->GetJob(id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job.error(), HasSubstr("given up"));
}

TEST_F(TunerTest, DaemonsThatEndInOrderOrBeforeAJobsTurnDoNotCountAgainstIt) {
  const Tuner::Answer runs = Tune(Request(1));
  const Tuner::Answer waits = Tune(Request(2));
  int searches = 1;
  for (int daemon = 0; daemon < 12; ++daemon) {
    AwaitSearches(searches++);
    StartTuner();
    tuner_->ResumeJobs();
  }
  for (int daemon = 0; daemon < 11; ++daemon) {
    EXPECT_NE(tuner_->GetJob(runs.accepted.job())->state(), v1::JOB_STATE_FAILED);
    AwaitSearches(searches++);
    DieAndStart();
    tuner_->ResumeJobs();
  }
  EXPECT_EQ(tuner_->GetJob(runs.accepted.job())->state(), v1::JOB_STATE_FAILED);
  EXPECT_NE(tuner_->GetJob(waits.accepted.job())->state(), v1::JOB_STATE_FAILED);
}

TEST_F(TunerTest, AJobWhoseDeviceIsGoneStaysOpenForALaterDaemon) {
  v1::TuneRequest request = Request();
  request.mutable_device()->set_id("cpu:0");
  const Tuner::Answer left = Tune(request);
  const Tuner::Answer other = Tune([] {
    v1::TuneRequest request = Request(2);
    request.mutable_device()->set_id("cpu:0");
    return request;
  }());
  device_id_ = "cpu:1";
  StartTuner();
  tuner_->ResumeJobs();
  EXPECT_EQ(StateOf(left), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(tuner_->GetJob(left.accepted.job())->error(), HasSubstr("no device here fits"));
  EXPECT_EQ(tuner_->WatchJob(left.accepted.job(), [] {}).status().code(),
            absl::StatusCode::kUnavailable);
  // Who doesn't want it any more says so.
  EXPECT_EQ(tuner_->CancelJob(other.accepted.job())->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(tuner_->CancelJob(other.accepted.job()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  device_id_ = "cpu:0";
  StartTuner();
  released_ = true;
  tuner_->ResumeJobs();
  AwaitAllEnded();
  EXPECT_EQ(StateOf(left), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(StateOf(other), v1::JOB_STATE_CANCELLED);
}

TEST_F(TunerTest, AJobThatIsTakenUpWaitsUntilItsDeviceIsReleased) {
  const Tuner::Answer left = Tune(Request());
  AwaitSearches(1);
  Quarantine("quarantined: scripted");
  StartTuner();
  released_ = true;
  tuner_->ResumeJobs();
  absl::SleepFor(absl::Milliseconds(30));
  EXPECT_EQ(StateOf(left), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(searches_, 1);
  Quarantine("");
  AwaitAllEnded();
  EXPECT_EQ(StateOf(left), v1::JOB_STATE_FINISHED);
}

TEST_F(TunerTest, ADetachedJobOutlivesThatItsDeviceWentAway) {
  away_ = true;
  released_ = true;
  v1::TuneRequest request = Request();
  request.set_detach(true);
  const Tuner::Answer detached = Tune(request);
  EXPECT_EQ(End(detached.watch->job()).status().code(), absl::StatusCode::kUnavailable);
  AwaitSearches(3);
  EXPECT_NE(StateOf(detached), v1::JOB_STATE_FAILED);
  // Who waits hears of it, and nobody is left who wants the job.
  const Tuner::Answer attached = Tune(Request(2));
  EXPECT_EQ(End(attached.watch->job()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StateOf(attached), v1::JOB_STATE_FAILED);
  away_ = false;
  AwaitAllEnded();
  EXPECT_EQ(StateOf(detached), v1::JOB_STATE_FINISHED);
}

TEST_F(TunerTest, NoMoreJobsStayOpenThanMayBeQueued) {
  away_ = true;
  released_ = true;
  retry_ = absl::Hours(1);
  StartTuner();
  std::vector<v1::JobState> states;
  for (int kernel = 1; kernel <= 3; ++kernel) {
    v1::TuneRequest request = Request(kernel);
    request.set_detach(true);
    const Tuner::Answer answer = Tune(request);
    EXPECT_EQ(End(answer.watch->job()).status().code(), absl::StatusCode::kUnavailable);
    states.push_back(StateOf(answer));
  }
  EXPECT_THAT(states,
              ElementsAre(v1::JOB_STATE_QUEUED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED));
}

TEST_F(TunerTest, OfTwoOpenJobsOfAKeyTheNewerSearchesForBoth) {
  const Tuner::Answer older = Tune(Request());
  AwaitSearches(1);
  StartTuner();
  internal::StoredJob job = **store_->FindJob(older.accepted.job());
  const std::string newer = job.id() + "0";
  job.set_id(newer);
  ASSERT_TRUE(store_->PutJob(job).ok());
  tuner_->ResumeJobs();
  AwaitSearches(2);
  EXPECT_EQ(tuner_->GetJob(newer)->state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(StateOf(older), v1::JOB_STATE_QUEUED);
  released_ = true;
  AwaitAllEnded();
  EXPECT_EQ(tuner_->GetJob(newer)->state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(StateOf(older), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(tuner_->GetJob(older.accepted.job())->result().record().job(), newer);
  EXPECT_EQ(searches_, 2);
}

TEST_F(TunerTest, PrincipalsTakeTurnsByWhatTheyUsed) {
  device_time_ = absl::Seconds(1);
  principal_jobs_ = 10;
  StartTuner();
  std::vector<Tuner::Answer> answers;
  answers.push_back(Tune(Request(1), "a"));
  AwaitSearches(1);
  answers.push_back(Tune(Request(2), "a"));
  answers.push_back(Tune(Request(3), "b"));
  EXPECT_EQ(answers[2].watch->job().Look(0).progress->queue_position(), 1)
      << "b has had nothing yet";
  EXPECT_EQ(answers[1].watch->job().Look(0).progress->queue_position(), 2);
  released_ = true;
  for (const Tuner::Answer& answer : answers) End(answer.watch->job()).IgnoreError();
  MutexLock lock(mutex_);
  EXPECT_THAT(order_, ElementsAre(1, 3, 2));
}

TEST_F(TunerTest, PriorityDecidesInsideAPrincipal) {
  std::vector<Tuner::Answer> answers;
  answers.push_back(Tune(Request(1)));
  AwaitSearches(1);
  answers.push_back(Tune(Request(2, v1::PRIORITY_BATCH)));
  answers.push_back(Tune(Request(3)));
  released_ = true;
  for (const Tuner::Answer& answer : answers) End(answer.watch->job()).IgnoreError();
  MutexLock lock(mutex_);
  EXPECT_THAT(order_, ElementsAre(1, 3, 2));
}

TEST_F(TunerTest, AnInteractiveRequestDoesNotWaitForASearchToEnd) {
  const Tuner::Answer batch = Tune(Request(1, v1::PRIORITY_BATCH));
  AwaitSearches(1);
  const Tuner::Answer waits = Tune(Request(2, v1::PRIORITY_BATCH));
  const Tuner::Answer now = Tune(Request(3, v1::PRIORITY_INTERACTIVE));
  AwaitSearches(2);
  {
    MutexLock lock(mutex_);
    EXPECT_THAT(order_, ElementsAre(1, 3));
  }
  // One that joins a queued job in haste takes it along.
  released_ = true;
  EXPECT_TRUE(End(now.watch->job()).ok());
}

TEST_F(TunerTest, InteractiveRequestsDoNotKeepOthersFromStarting) {
  principal_jobs_ = 10;
  StartTuner();
  const Tuner::Answer first = Tune(Request(1, v1::PRIORITY_INTERACTIVE), "a");
  const Tuner::Answer second = Tune(Request(2, v1::PRIORITY_INTERACTIVE), "a");
  AwaitSearches(2);
  const Tuner::Answer normal = Tune(Request(3), "b");
  const Tuner::Answer third = Tune(Request(4, v1::PRIORITY_INTERACTIVE), "a");
  ASSERT_TRUE(tuner_->CancelJob(first.accepted.job()).ok());
  AwaitSearches(3);
  ASSERT_TRUE(tuner_->CancelJob(second.accepted.job()).ok());
  AwaitSearches(4);
  {
    MutexLock lock(mutex_);
    EXPECT_EQ(order_[2], 3) << "it waits for as long as there are interactive ones";
    EXPECT_EQ(order_[3], 4);
  }
  released_ = true;
  EXPECT_TRUE(End(third.watch->job()).ok());
}

TEST_F(TunerTest, JoiningInHasteHastensTheJob) {
  const Tuner::Answer first = Tune(Request(1));
  AwaitSearches(1);
  const Tuner::Answer queued = Tune(Request(2, v1::PRIORITY_BATCH));
  const Tuner::Answer joined = Tune(Request(2, v1::PRIORITY_INTERACTIVE));
  EXPECT_TRUE(joined.accepted.joined());
  AwaitSearches(2);
  released_ = true;
  EXPECT_TRUE(End(queued.watch->job()).ok());
}

TEST_F(TunerTest, JoiningInHasteHastensASearchUnderWay) {
  const Tuner::Answer first = Tune(Request(1, v1::PRIORITY_BATCH));
  AwaitSearches(1);
  EXPECT_LT(LastHaste(), Haste::kInteractive);
  const Tuner::Answer joined = Tune(Request(1, v1::PRIORITY_INTERACTIVE));
  EXPECT_TRUE(joined.accepted.joined());
  EXPECT_EQ(LastHaste(), Haste::kInteractive);
  EXPECT_TRUE(Tune(Request(1, v1::PRIORITY_BATCH)).accepted.joined());
  EXPECT_EQ(LastHaste(), Haste::kInteractive);
}

TEST_F(TunerTest, APrincipalHasOnlySoManyJobs) {
  principal_jobs_ = 1;
  StartTuner();
  const Tuner::Answer first = Tune(Request(1), "a");
  const absl::Status refused = tuner_->Tune(Request(2), From("a"), [] {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetail(refused)->reason, "QUOTA_JOBS");
  EXPECT_EQ(GetErrorDetail(refused)->limit, 1);
  // Joining costs nothing, and others have their own.
  EXPECT_TRUE(Tune(Request(1), "a").accepted.joined());
  EXPECT_TRUE(tuner_->Tune(Request(2), From("b"), [] {}).ok());
}

TEST_F(TunerTest, APrincipalHasOnlySoMuchDeviceTimeADay) {
  device_time_ = absl::Seconds(150);
  released_ = true;
  EXPECT_TRUE(End(Tune(Request(1), "a").watch->job()).ok());
  absl::Status refused = tuner_->Tune(Request(2), From("a"), [] {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetail(refused)->reason, "QUOTA_DEVICE_SECONDS");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("resets at"));
  // What is stored is free, and others have their own.
  EXPECT_TRUE(Tune(Request(1), "a").result);
  EXPECT_TRUE(tuner_->Tune(Request(2), From("b"), [] {}).ok());
  // A restart forgets nothing.
  AwaitAllEnded();
  StartTuner();
  refused = tuner_->Tune(Request(3), From("a"), [] {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(TunerTest, AQuotaThatWasUsedUpMeanwhileEndsWhatWasAccepted) {
  device_time_ = absl::Seconds(150);
  const Tuner::Answer other = Tune(Request(1), "b");
  AwaitSearches(1);
  const Tuner::Answer first = Tune(Request(2), "a");
  const Tuner::Answer second = Tune(Request(3), "a");
  released_ = true;
  EXPECT_TRUE(End(first.watch->job()).ok());
  const absl::Status refused = End(second.watch->job()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetail(refused)->reason, "QUOTA_DEVICE_SECONDS");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("resets at"));
  EXPECT_EQ(searches_, 2);
  // One candidate is a use of the device too.
  v1::ReplayRequest replay;
  replay.set_key(first.accepted.key());
  const auto token = std::make_shared<CancelToken>();
  EXPECT_EQ(tuner_->Replay(replay, From("a"), token).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(tuner_->Replay(replay, From("c"), token).ok());
}

TEST_F(TunerTest, AReplayEndsWithItsCallAndWithTheDaemon) {
  released_ = true;
  v1::ReplayRequest replay;
  replay.set_key(Tune(Request()).accepted.key());
  AwaitAllEnded();
  hangs_ = true;
  for (const absl::StatusCode end :
       {absl::StatusCode::kCancelled, absl::StatusCode::kUnavailable}) {
    const auto token = std::make_shared<CancelToken>();
    absl::Status status;
    std::thread replays([&] { status = tuner_->Replay(replay, From("me"), token).status(); });
    absl::SleepFor(absl::Milliseconds(20));
    if (end == absl::StatusCode::kCancelled) {
      token->Cancel(StopReason::kCancelled);
    } else {
      tuner_->Drain(absl::InfiniteFuture());
    }
    replays.join();
    EXPECT_EQ(status.code(), end);
  }
}

TEST_F(TunerTest, WhatATaskUsedThatEndsAfterItsJobIsCharged) {
  released_ = true;
  ASSERT_TRUE(End(Tune(Request(1), "a").watch->job()).ok());
  LateCharge()(absl::Seconds(150));
  EXPECT_EQ(tuner_->Tune(Request(2), From("a"), [] {}).status().code(),
            absl::StatusCode::kResourceExhausted);
  // It may end after the tuner too; what was charged before is known to the next.
  tuner_.reset();
  LateCharge()(absl::Seconds(1));
  StartTuner();
  EXPECT_EQ(tuner_->Tune(Request(2), From("a"), [] {}).status().code(),
            absl::StatusCode::kResourceExhausted);
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
  const absl::Status status = tuner_->Tune(request, {}, [] {}).status();
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
  released_ = true;
  ASSERT_TRUE(End(queued.watch->job()).ok());
  MutexLock lock(mutex_);
  EXPECT_EQ(budget_, absl::Hours(1));
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
  EXPECT_EQ(tuner_->WatchJob(second.accepted.job(), [] {})->accepted.miss(),
            v1::MISS_REASON_REFRESH);
  EXPECT_EQ(tuner_->GetJob(second.accepted.job())->mode(), v1::TUNE_MODE_REFRESH);
  EXPECT_EQ(End(second.watch->job())->record().generation(), 2);
  MutexLock lock(mutex_);
  EXPECT_TRUE(refresh_) << "the search doesn't know that it starts afresh";
}

TEST_F(TunerTest, LookupOnlyNeverSearches) {
  v1::TuneRequest request = Request();
  request.set_mode(v1::TUNE_MODE_LOOKUP_ONLY);
  const absl::Status status = tuner_->Tune(request, {}, [] {}).status();
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

TEST_F(TunerTest, NowAnswersAtOnceAndTunesInTheBackground) {
  v1::TuneRequest request = Request();
  request.set_mode(v1::TUNE_MODE_NOW);
  const Tuner::Answer guess = Tune(request);
  ASSERT_TRUE(guess.result);
  EXPECT_EQ(guess.watch, nullptr);
  EXPECT_EQ(guess.result->match(), v1::MATCH_HEURISTIC);
  EXPECT_FALSE(guess.result->persisted());
  EXPECT_EQ(guess.result->record().opts_size(), 1);
  EXPECT_EQ(guess.result->record().key(), guess.accepted.key());
  ASSERT_FALSE(guess.accepted.job().empty());
  EXPECT_EQ(tuner_->GetJob(guess.accepted.job())->priority(), v1::PRIORITY_BATCH);
  // The upgrade is told to who watches.
  const Tuner::Answer watched = *tuner_->WatchJob(guess.accepted.job(), [] {});
  released_ = true;
  if (watched.watch != nullptr) {
    EXPECT_TRUE(End(watched.watch->job())->persisted());
  }
  AwaitAllEnded();
  const Tuner::Answer exact = Tune(request);
  EXPECT_EQ(exact.result->match(), v1::MATCH_STRICT);
  EXPECT_TRUE(exact.accepted.job().empty());
}

TEST_F(TunerTest, NowTakesARecordThatOtherOptionsFound) {
  released_ = true;
  const v1::TuneResult known = *End(Tune(Request()).watch->job());
  released_ = false;
  v1::TuneRequest request = Request();
  request.set_mode(v1::TUNE_MODE_NOW);
  request.mutable_search()->set_width(7);
  const Tuner::Answer answer = Tune(request);
  EXPECT_EQ(answer.result->match(), v1::MATCH_SAME_ARCH);
  EXPECT_EQ(answer.result->record().key(), known.record().key());
  // And tunes with those that were asked for.
  EXPECT_NE(answer.accepted.key(), known.record().key());
  EXPECT_FALSE(answer.accepted.job().empty());
}

TEST_F(TunerTest, NowAnswersWhereAQuotaForbidsTheSearch) {
  principal_jobs_ = 1;
  StartTuner();
  const Tuner::Answer other = Tune(Request(2));
  v1::TuneRequest request = Request(1);
  request.set_mode(v1::TUNE_MODE_NOW);
  const Tuner::Answer guess = Tune(request);
  EXPECT_EQ(guess.result->match(), v1::MATCH_HEURISTIC);
  EXPECT_TRUE(guess.accepted.job().empty());
}

TEST_F(TunerTest, AnImportIsNotAnExactAnswerUntilItIsMeasuredHere) {
  released_ = true;
  const v1::TuneResult here = *End(Tune(Request()).watch->job());
  v1::Record record = here.record();
  v1::TuneRequest request = Request();
  request.mutable_search()->set_seed(7);
  v1::TuneRequest lookup = request;
  lookup.set_mode(v1::TUNE_MODE_LOOKUP_ONLY);
  const absl::Status miss = tuner_->Tune(lookup, {}, [] {}).status();
  EXPECT_EQ(GetErrorDetail(miss)->reason, "MISS_REASON_OPTIONS_CHANGED");
  // As if another daemon had found it.
  v1::LookupQuery query;
  *query.mutable_graph() = request.graph();
  *query.mutable_search() = request.search();
  record.set_key(tuner_->Lookup(query)->key());
  record.mutable_search()->set_seed(7);
  ASSERT_TRUE(*store_->ImportRecord(record, Request().graph()));
  EXPECT_EQ(tuner_->Lookup(query)->miss().reason(), v1::MISS_REASON_IMPORTED);
  query.set_match(v1::MATCH_POLICY_SAME_ARCH);
  EXPECT_EQ(tuner_->Lookup(query)->hit().match(), v1::MATCH_SAME_ARCH);
  const v1::TuneResult measured = *End(Tune(request).watch->job());
  EXPECT_EQ(measured.record().generation(), 2);
  query.set_match(v1::MATCH_POLICY_STRICT);
  EXPECT_EQ(tuner_->Lookup(query)->hit().match(), v1::MATCH_STRICT);
}

TEST_F(TunerTest, ADeviceInQuarantineAnswersButDoesNotSearch) {
  released_ = true;
  ASSERT_TRUE(End(Tune(Request(1)).watch->job()).ok());
  Quarantine("quarantined: scripted");
  EXPECT_TRUE(Tune(Request(1)).result);
  const absl::Status status = tuner_->Tune(Request(2), {}, [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetErrorDetail(status)->reason, "DEVICE_QUARANTINED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("scripted"));
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
  EXPECT_EQ(GetErrorDetail(tuner_->Tune({}, {}, [] {}).status())->field, "graph.nodes");
  v1::TuneRequest request = Request();
  request.mutable_device()->set_id("cuda:7");
  const absl::Status status = tuner_->Tune(request, {}, [] {}).status();
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
  const absl::Status status = tuner_->Tune(Request(4), {}, [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetail(status)->limit, 2);
  released_ = true;
  EXPECT_TRUE(End(third.watch->job()).ok());
}

TEST_F(TunerTest, WatchersAreCalledAndLookOnlyAtWhatIsNew) {
  std::atomic<int> calls = 0;
  const Tuner::Answer answer = *tuner_->Tune(Request(), {}, [&] { ++calls; });
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
  tuner_->Drain(SteadyNow() + absl::Milliseconds(20));
  EXPECT_EQ(tuner_->Tune(Request(3), {}, [] {}).status().code(), absl::StatusCode::kUnavailable);
  const absl::StatusOr<v1::TuneResult> best_so_far = End(answer.watch->job());
  ASSERT_TRUE(best_so_far.ok());
  EXPECT_EQ(best_so_far->record().end(), v1::SEARCH_END_SHUTDOWN);
  EXPECT_FALSE(best_so_far->persisted());
  EXPECT_EQ(End(queued.watch->job()).status().code(), absl::StatusCode::kUnavailable);
  // The next daemon's.
  EXPECT_EQ((*store_->FindJob(queued.accepted.job()))->state(), internal::StoredJob::ACCEPTED);
}

}  // namespace
}  // namespace beamd

// A tuner in the test's process, on a store whose files may fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/error_detail.h"
#include "gtest/gtest.h"
#include "server/store/store.h"
#include "server/tuning/options.h"
#include "server/tuning/tuner.h"
#include "tests/testing/faulty_files.h"

namespace beamd::testing {

inline std::string TestDirectory() {
  const auto& info = *::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = absl::StrCat(info.test_suite_name(), ".", info.name());
  std::replace(name.begin(), name.end(), '/', '.');
  std::string directory = ::testing::TempDir() + name;
  std::filesystem::remove_all(directory);
  return directory;
}

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

// A store of the test's own, and a tuner on it whose searches do as they are told.
class ScriptedTuner : public ::testing::Test {
 protected:
  void Open() {
    if (store_ != nullptr) store_->SetWatcher(nullptr);
    tuner_.reset();
    store_.reset();
    absl::StatusOr<std::unique_ptr<Store>> store =
        Store::Open(directory_, {.env = files_.env(), .retry = absl::Milliseconds(20)});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  // What it searches waits for `released_`.
  void StartTuner(JobQueueOptions queue = {}, double device_seconds_a_day = 0) {
    TuningDevice device{.id = "cpu:0"};
    device.environment.set_kind("cpu");
    TunerParts parts{
        .parse = [this](const v1::Graph& graph) -> absl::StatusOr<ParsedKernel> {
          if (!parses_) return InvalidArgument("no kernel", {.reason = "EMPTY"});
          ParsedKernel kernel{.graph = std::make_unique<UOpGraph>(), .canonical = graph};
          kernel.hash = HashBytes(graph.SerializeAsString());
          return kernel;
        },
        .applies = [](const ParsedKernel&, const TargetCaps&,
                      const std::vector<Opt>&) { return true; },
        .quarantine = [](const TuningDevice&) { return ""; },
        .heuristic = [](const ParsedKernel&, const TargetCaps&)
            -> absl::StatusOr<std::vector<Opt>> { return std::vector<Opt>{}; },
        .estimate = [](const ParsedKernel&) { return 1.0; },
        .make_pipeline = [this](const ParsedKernel&, const TuningDevice&, const v1::SearchOptions&,
                                PipelineUse use,
                                CancelToken& token) -> std::unique_ptr<CandidatePipeline> {
          use.charge(device_time_);
          return std::make_unique<IdlePipeline>(token);
        },
        .search =
            [this](const SearchJob& job, CandidatePipeline& pipeline) {
              ++searches_;
              if (best_s_ > 0) {
                v1::TuneProgress progress;
                progress.set_best_s(best_s_);
                job.progress(std::move(progress));
              }
              while (!released_ && !pipeline.cancelled()) absl::SleepFor(absl::Milliseconds(1));
              v1::Record record;
              record.set_best_s(0.5);
              record.mutable_verification()->set_verified(true);
              record.set_end(v1::SEARCH_END_CONVERGED);
              return record;
            }};
    tuner_ = std::make_unique<Tuner>(*store_, std::vector<TuningDevice>{device}, std::move(parts),
                                     TunerOptions{.defaults = DefaultSearchOptions(),
                                                  .queue = std::move(queue),
                                                  .device_seconds_a_day = device_seconds_a_day});
    store_->SetWatcher([this](bool writable) {
      if (writable) tuner_->StoreRecovered();
    });
    tuner_->ResumeJobs();
  }
  void TearDown() override {
    released_ = true;
    if (store_ != nullptr) store_->SetWatcher(nullptr);
    tuner_.reset();
  }

  Tuner::Answer Tune(int kernel) {
    v1::TuneRequest request;
    for (int i = 0; i < kernel; ++i) request.mutable_graph()->add_nodes()->set_op(v1::OP_SINK);
    absl::StatusOr<Tuner::Answer> answer =
        tuner_->Tune(request, {.principal = "me", .trace = "trace"}, [] {});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return *std::move(answer);
  }
  static v1::TuneResult End(Tuner::Answer& answer) {
    if (answer.result) return *answer.result;
    while (true) {
      const Job::News news = answer.watch->job().Look(0);
      if (news.end) {
        EXPECT_TRUE(news.end->ok()) << news.end->status();
        return news.end->ok() ? **news.end : v1::TuneResult();
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  template <typename Condition>
  static void Await(Condition condition) {
    const absl::Time limit = absl::Now() + absl::Seconds(30);
    while (!condition()) {
      ASSERT_LT(absl::Now(), limit);
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  const std::string directory_ = TestDirectory();
  FaultyFiles files_;
  std::atomic<bool> released_ = true;
  std::atomic<bool> parses_ = true;
  std::atomic<int> searches_ = 0;
  std::atomic<double> best_s_ = 0;  // that each search tells at once; 0: none
  absl::Duration device_time_;      // that each search is charged
  std::unique_ptr<Store> store_;
  std::unique_ptr<Tuner> tuner_;
};

}  // namespace beamd::testing

// Answers tuning requests: from the store, from the job that already searches, or by a new job.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/opt.h"
#include "engine/search/pipeline.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/store.h"
#include "server/tuning/job.h"
#include "server/tuning/match.h"
#include "server/tuning/parse_kernel.h"
#include "server/workers/supervisor.h"

namespace beamd {

// A device that kernels are timed on.
struct TuningDevice {
  std::string id;
  TargetCaps caps;
  v1::Environment environment;
  PoolId runner = 0;
};

// What a search works with.
struct SearchJob {
  const ParsedKernel& kernel;
  const TuningDevice& device;
  const v1::SearchOptions& options;  // resolved
  // The search ends with the best so far.
  absl::Time deadline;
  // Nothing that was remembered of candidates counts.
  bool refresh = false;
  std::function<void(v1::TuneProgress)> progress;
};

// What the tuner leaves to others; tests put scripts in their place.
struct TunerParts {
  std::function<absl::StatusOr<ParsedKernel>(const v1::Graph&)> parse;
  // Whether the opts are legal on this kernel there.
  std::function<bool(const ParsedKernel&, const TargetCaps&, const std::vector<Opt>&)> applies;
  std::function<std::unique_ptr<CandidatePipeline>(const ParsedKernel&, const TuningDevice&,
                                                   const v1::SearchOptions&, std::string trace,
                                                   CancelToken&)>
      make_pipeline;
  // Fills in what a search finds out; the tuner adds key, environment, times and names.
  std::function<absl::StatusOr<v1::Record>(const SearchJob&, CandidatePipeline&)> search;
};

struct TunerOptions {
  v1::SearchOptions defaults;
  // Searches that run at once; others queue.
  int concurrent_jobs = 1;
  int max_queued_jobs = 1024;
  std::string host;
  std::string build;
};

// Thread-safe.
class Tuner {
 public:
  Tuner(Store& store, std::vector<TuningDevice> devices, TunerParts parts, TunerOptions options);
  // Stops without draining: running jobs end as interrupted.
  ~Tuner();

  // Marks the jobs that an earlier daemon accepted and did not end. Call before serving.
  absl::Status MarkInterruptedJobs();

  struct Answer {
    v1::TuneAccepted accepted;
    // Either the store answered, or there is a job to watch.
    std::optional<v1::TuneResult> result;
    std::unique_ptr<JobWatch> watch;
  };
  // NOT_FOUND where the request forbids a search and the store has no answer. `changed` is the
  // watch's (Job::Watch).
  absl::StatusOr<Answer> Tune(const v1::TuneRequest& request, const std::string& trace,
                              std::function<void()> changed);

  // Never compiles.
  absl::StatusOr<v1::LookupAnswer> Lookup(const v1::LookupQuery& query);

  // The first that fits; InvalidArgument where none does.
  absl::StatusOr<const TuningDevice*> SelectDevice(const v1::DeviceSelector& selector) const;
  const std::vector<TuningDevice>& devices() const { return devices_; }
  const TunerParts& parts() const { return parts_; }

  // Refuses new work, lets jobs end until `deadline`, then cancels them.
  void Drain(absl::Time deadline);

 private:
  struct Plan;
  struct Task;
  absl::StatusOr<Plan> MakePlan(const v1::Graph& graph, const v1::SearchOptions& search,
                                const v1::DeviceSelector& selector, v1::MatchPolicy policy) const;
  absl::StatusOr<MatchAnswer> Match(const Plan& plan) const;
  absl::Status CheckRoom() const BEAMD_REQUIRES(mutex_);
  absl::Status Enqueue(Plan plan, const v1::TuneRequest& request, const std::string& trace,
                       std::shared_ptr<Job> job) BEAMD_REQUIRES(mutex_);
  void TellPositions() BEAMD_REQUIRES(mutex_);
  void Work();
  void RunTask(Task& task);
  absl::StatusOr<v1::TuneResult> Search(Task& task);
  void Settle(Task& task, const absl::StatusOr<v1::TuneResult>& result);

  Store& store_;
  const std::vector<TuningDevice> devices_;
  const TunerParts parts_;
  const TunerOptions options_;

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::shared_ptr<Job>> in_flight_ BEAMD_GUARDED_BY(mutex_);  // by key
  std::deque<std::unique_ptr<Task>> queue_ BEAMD_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Job>> running_ BEAMD_GUARDED_BY(mutex_);  // by id
  bool draining_ BEAMD_GUARDED_BY(mutex_) = false;
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace beamd

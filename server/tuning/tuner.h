// Answers tuning requests: from the store, from the job that already searches, or by a new job.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
#include "proto/beamd/v1/jobs.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/auth/caller.h"
#include "server/store/store.h"
#include "server/tuning/device_usage.h"
#include "server/tuning/job.h"
#include "server/tuning/job_queue.h"
#include "server/tuning/match.h"
#include "server/tuning/parse_kernel.h"
#include "server/workers/cancel.h"
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
  // Of the record that it is for.
  std::string key;
  // What it tries is kept under this, and what was tried under it before is not tried again.
  std::string id;
  const ParsedKernel& kernel;
  const TuningDevice& device;
  const v1::SearchOptions& options;  // resolved
  // How long it may run, what it ran in a daemon before this one included; then it ends with the
  // best so far.
  absl::Duration budget;
  // Nothing that was remembered of candidates counts.
  bool refresh = false;
  std::function<void(v1::TuneProgress)> progress;
};

// For whom a pipeline works.
struct PipelineUse {
  std::string trace;
  Claim claim;
  // Where it is more than the claim's, it counts for what is submitted from then on. May be null;
  // outlives the pipeline.
  const std::atomic<Haste>* haste = nullptr;
  // Told what the device was used for the job, on any thread, also after the pipeline's end.
  std::function<void(absl::Duration)> charge;
};

// What the tuner leaves to others; tests put scripts in their place.
struct TunerParts {
  std::function<absl::StatusOr<ParsedKernel>(const v1::Graph&)> parse;
  // Whether the opts are legal on this kernel there.
  std::function<bool(const ParsedKernel&, const TargetCaps&, const std::vector<Opt>&)> applies;
  // Why nothing is timed on the device now; empty: it serves.
  std::function<std::string(const TuningDevice&)> quarantine;
  // What the heuristics choose there.
  std::function<absl::StatusOr<std::vector<Opt>>(const ParsedKernel&, const TargetCaps&)> heuristic;
  // About how long a launch takes, from its arithmetic and its traffic: to compare kernels with.
  std::function<double(const ParsedKernel&)> estimate;
  std::function<std::unique_ptr<CandidatePipeline>(const ParsedKernel&, const TuningDevice&,
                                                   const v1::SearchOptions&, PipelineUse,
                                                   CancelToken&)>
      make_pipeline;
  // Fills in what a search finds out; the tuner adds key, environment, times and names.
  std::function<absl::StatusOr<v1::Record>(const SearchJob&, CandidatePipeline&)> search;
};

struct TunerOptions {
  v1::SearchOptions defaults;
  JobQueueOptions queue;
  // That a principal may use in a day (UTC); 0: no limit.
  double device_seconds_a_day = 0;
  // After how long what a job waits for is looked at again; twice that after the next try, and so on
  // up to some minutes.
  absl::Duration retry = absl::Seconds(1);
  std::string host;
  std::string build;
};

// Thread-safe.
class Tuner {
 public:
  Tuner(Store& store, std::vector<TuningDevice> devices, TunerParts parts, TunerOptions options);
  // Stops without draining: the next daemon takes up the jobs that run.
  ~Tuner();

  // Takes up the jobs that an earlier daemon accepted and did not end. Call once the daemon can't
  // fail to start any more. One that asks for what isn't there now, be it a device or what the store
  // can't tell, stays as it is, and is taken up once that is there, or by a later daemon.
  void ResumeJobs();

  // The store takes writes again, or was repaired: writes what it did not take.
  void StoreRecovered();

  struct Answer {
    v1::TuneAccepted accepted;
    // The store answered, or the job has ended, or both; else there is a job to watch.
    std::optional<v1::TuneResult> result;
    std::unique_ptr<JobWatch> watch;
  };
  // NOT_FOUND where the request forbids a search and the store has no answer. `changed` is the
  // watch's (Job::Watch).
  absl::StatusOr<Answer> Tune(const v1::TuneRequest& request, const Caller& caller,
                              std::function<void()> changed);

  // About how long a launch of the request's kernel takes: the newest time that is stored of it, or
  // an estimate. The error of what is no kernel.
  absl::StatusOr<double> ExpectedSeconds(const v1::TuneRequest& request) const;

  // One candidate again: blocks for as long as that takes, or until `token` is cancelled or this
  // drains.
  absl::StatusOr<v1::ReplayResponse> Replay(const v1::ReplayRequest& request, const Caller& caller,
                                            const std::shared_ptr<CancelToken>& token);

  // Never compiles.
  absl::StatusOr<v1::LookupAnswer> Lookup(const v1::LookupQuery& query);

  // A job that runs, or what became of one that ended; the latter's error where it failed.
  // NOT_FOUND where there was none.
  absl::StatusOr<Answer> WatchJob(const std::string& id, std::function<void()> changed);
  absl::StatusOr<v1::Job> GetJob(const std::string& id) const;
  // Up to `limit` jobs, newest first, from the one before `before`; empty: from the newest.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const std::string& before, int limit) const;
  // Ends it, whoever watches. FAILED_PRECONDITION where it has ended.
  absl::StatusOr<v1::Job> CancelJob(const std::string& id);

  // The first that fits; InvalidArgument where none does.
  absl::StatusOr<const TuningDevice*> SelectDevice(const v1::DeviceSelector& selector) const;
  // Unavailable where the device is in quarantine.
  absl::Status CheckServes(const TuningDevice& device) const;
  const std::vector<TuningDevice>& devices() const { return devices_; }
  const TunerParts& parts() const { return parts_; }
  const v1::SearchOptions& defaults() const { return options_.defaults; }

  // Refuses new work, stops replays, lets jobs end until `deadline`, then stops them.
  void Drain(absl::Time deadline);
  JobQueue::Load load() const { return queue_.load(); }

 private:
  struct Plan;
  struct Task;
  // A job whose last state the store did not take.
  struct Unwritten {
    internal::StoredJob job;
    // Of the result that it has and that should be a record of the store's.
    std::optional<v1::Graph> graph;
  };
  absl::StatusOr<Plan> MakePlan(const v1::Graph& graph, const v1::SearchOptions& search,
                                const v1::DeviceSelector& selector, v1::MatchPolicy policy) const;
  MatchAnswer Match(const Plan& plan) const;
  absl::StatusOr<Answer> TuneNow(Plan plan, const v1::TuneRequest& request, const Caller& caller);
  // True where the store answers.
  bool AnswerFromStore(const Plan& plan, Answer& answer) const;
  // Whether the job was written.
  absl::StatusOr<bool> Accept(Plan plan, const v1::TuneRequest& request, v1::MissReason miss,
                              const Caller& caller, std::shared_ptr<Job> job)
      BEAMD_REQUIRES(mutex_);
  // What an open job waits for that isn't in the queue.
  struct Waiting {
    std::string why;
    std::string device;  // it serves again; empty: not for that
    std::string key;     // nothing else searches it; empty: not for that
    int tries = 0;       // that were in vain
    // Not before.
    absl::Time next = absl::InfinitePast();
  };
  void ResumeOpenJobs() BEAMD_REQUIRES(resuming_);
  // An open job that nothing runs; what can't be mended ends it.
  void TakeUp(const std::string& id, int tries) BEAMD_REQUIRES(resuming_);
  absl::Status Resume(internal::StoredJob stored, int tries) BEAMD_REQUIRES(resuming_);
  void Wait(const std::string& id, Waiting waiting);
  std::optional<Waiting> FindWaiting(const std::string& id) const;
  absl::Time NextTry(int tries) const;
  // Now and then does what is due.
  void Keep();
  // Takes up what waited, once what it waited for is there.
  void TakeUpWaiting();
  void Enqueue(std::shared_ptr<Task> task) BEAMD_REQUIRES(mutex_);
  void RunTask(Task& task);
  absl::StatusOr<v1::TuneResult> Search(Task& task);
  // It waits for its device, and is the store's to keep.
  bool StaysOpen(const Task& task, const absl::StatusOr<v1::TuneResult>& result) const;
  void Settle(Task& task, const absl::StatusOr<v1::TuneResult>& result);
  // To the store; where it doesn't take it, it is kept here until the store does. True if written.
  bool WriteJob(Unwritten unwritten);
  // So that the next daemon knows whether this one died with it. A note that is lost counts nothing.
  void NoteBegun(Task& task, bool begun);
  // Its last state, wherever that is.
  absl::StatusOr<internal::StoredJob> ReadJob(const std::string& id) const;
  // A result for the key that waits to be written.
  std::optional<v1::TuneResult> UnwrittenResult(const std::string& key) const;
  // A job that has not ended.
  std::optional<JobQueue::Entry> FindLive(const std::string& id) const;
  v1::Job Describe(const internal::StoredJob& stored) const;
  absl::StatusOr<v1::TuneResult> StoredResult(const internal::StoredJob& stored) const;

  Store& store_;
  const std::vector<TuningDevice> devices_;
  const TunerParts parts_;
  const TunerOptions options_;

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Job>> in_flight_ BEAMD_GUARDED_BY(mutex_);  // by key
  const std::shared_ptr<DeviceUsage> usage_;
  mutable Mutex unwritten_mutex_;
  std::map<std::string, Unwritten> unwritten_ BEAMD_GUARDED_BY(unwritten_mutex_);  // by id
  Mutex replays_mutex_;
  std::set<std::shared_ptr<CancelToken>> replays_ BEAMD_GUARDED_BY(replays_mutex_);
  bool draining_ BEAMD_GUARDED_BY(replays_mutex_) = false;
  Mutex recovering_;  // held by StoreRecovered
  // Held while jobs are taken up, or ended that nothing runs; before mutex_.
  Mutex resuming_;
  mutable Mutex waiting_mutex_;
  CondVar wake_;
  std::map<std::string, Waiting> waiting_ BEAMD_GUARDED_BY(waiting_mutex_);  // by id
  // What is open could not be read.
  bool resume_again_ BEAMD_GUARDED_BY(waiting_mutex_) = false;
  bool stopping_ BEAMD_GUARDED_BY(waiting_mutex_) = false;
  JobQueue queue_;  // its threads use all of the above
  std::thread keeper_;
};

}  // namespace beamd

// Which job runs next, and when one is over before it ran: the daemon's jobs between being accepted
// and having ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/base/steady_clock.h"
#include "server/tuning/job.h"
#include "server/workers/fair_share.h"

namespace beamd {

struct JobQueueOptions {
  // Jobs that run at once, and interactive ones besides those: these take the others' slots too, but
  // not while one of the others waits. Where they have none, they are like the others.
  int concurrent = 1;
  int interactive = 1;
  int queued_max = 1024;
  // Queued and running jobs of one principal; 0: no limit.
  int principal_jobs = 0;
  // What an abandoned job gets before it is cancelled: who lost a connection comes back.
  absl::Duration grace = absl::Seconds(5);
  std::map<std::string, double> weights;  // FairShare's
};

// Thread-safe.
class JobQueue {
 public:
  explicit JobQueue(JobQueueOptions options);
  // Drains without a grace.
  ~JobQueue();

  // ResourceExhausted naming the limit, or Unavailable while draining, where another job of this
  // principal can't be accepted.
  absl::Status CheckRoom(const std::string& principal) const;
  // `run` is called once on a thread of the queue, when it is the job's turn or once it is cancelled
  // before that.
  void Add(std::shared_ptr<Job> job, Claim claim, std::function<void()> run);

  struct Entry {
    std::shared_ptr<Job> job;
    Claim claim;
    bool running = false;
  };
  std::optional<Entry> Find(const std::string& id) const;
  struct Load {
    int waiting = 0;
    int running = 0;
    absl::Duration oldest;  // how long the first of those that wait does
  };
  Load load() const;
  // Of a job that is there: from now on it has that haste, if it had less.
  void Hasten(const std::string& id, Haste haste);
  // Device time that a job of this principal used.
  void Charge(const std::string& principal, double seconds);

  // Accepts no more, lets jobs end until `deadline`, then cancels them. Returns once all are gone.
  void Drain(absl::Time deadline);

 private:
  struct Item {
    Entry entry;
    uint64_t number = 0;
    std::function<void()> run;
    absl::Time queued = SteadyNow();
  };
  using Items = std::list<Item>;

  void Work();
  void Keep();
  Items::iterator Next() BEAMD_REQUIRES(mutex_);
  // Runs the item, unlocked, and forgets it.
  void Run(Items::iterator item) BEAMD_REQUIRES(mutex_);
  Claim Possible(Claim claim) const;
  void TellPositions() BEAMD_REQUIRES(mutex_);

  const JobQueueOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar keeper_;
  FairShare share_ BEAMD_GUARDED_BY(mutex_);
  Items waiting_ BEAMD_GUARDED_BY(mutex_);
  Items running_ BEAMD_GUARDED_BY(mutex_);
  std::map<std::string, int> jobs_of_ BEAMD_GUARDED_BY(mutex_);  // by principal
  uint64_t last_number_ BEAMD_GUARDED_BY(mutex_) = 0;
  bool draining_ BEAMD_GUARDED_BY(mutex_) = false;
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace beamd

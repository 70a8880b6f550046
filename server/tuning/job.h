// One search, owned by the daemon: what it says while it runs, who watches, and how it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/workers/cancel.h"
#include "server/workers/fair_share.h"

namespace beamd {

class JobWatch;

// What a request wants of the job that it starts or joins.
struct Wish {
  bool keep = false;  // it goes on when nobody watches
  bool store = true;  // its record is written
};

// Thread-safe.
class Job : public std::enable_shared_from_this<Job> {
 public:
  Job(std::string id, std::string key) : id_(std::move(id)), key_(std::move(key)) {}

  const std::string& id() const { return id_; }
  const std::string& key() const { return key_; }
  CancelToken& token() { return token_; }

  // Adds to what the job is for. False where nobody may join any more: it is being cancelled.
  bool Join(const Wish& wish);
  // Of all that it is for, the most; it only grows.
  const std::atomic<Haste>& haste() const { return haste_; }
  void Hasten(Haste haste);
  bool wants_store() const;
  bool kept() const;

  // `changed` is called on any thread, without a lock of the job's, whenever there is news, and may
  // be called once more after the watch is gone.
  std::unique_ptr<JobWatch> Watch(std::function<void()> changed);
  int watchers() const;
  // Cancels it if the last watcher of a job that isn't kept left before `before`.
  void CancelIfAbandoned(absl::Time before);

  // News are numbered. A watcher that is slow misses progress, but no debug line and never the end.
  struct News {
    uint64_t number = 0;
    std::optional<v1::TuneProgress> progress;
    std::optional<absl::StatusOr<v1::TuneResult>> end;
  };
  // What is new since news `seen`; `progress` and `end` are empty where nothing is.
  News Look(uint64_t seen) const;

  void Publish(v1::TuneProgress progress);
  // Once.
  void End(absl::StatusOr<v1::TuneResult> end);

 private:
  friend class JobWatch;
  void Unwatch(int64_t id, StopReason reason);
  void Tell();

  const std::string id_;
  const std::string key_;
  CancelToken token_;
  std::atomic<Haste> haste_ = Haste::kBatch;
  mutable Mutex mutex_;
  Wish wish_ BEAMD_GUARDED_BY(mutex_){.keep = false, .store = false};
  uint64_t number_ BEAMD_GUARDED_BY(mutex_) = 0;
  uint64_t progress_number_ BEAMD_GUARDED_BY(mutex_) = 0;
  v1::TuneProgress progress_ BEAMD_GUARDED_BY(mutex_);
  std::deque<std::pair<uint64_t, std::string>> debug_ BEAMD_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<v1::TuneResult>> end_ BEAMD_GUARDED_BY(mutex_);
  std::map<int64_t, std::shared_ptr<const std::function<void()>>> watchers_
      BEAMD_GUARDED_BY(mutex_);
  int64_t last_watcher_ BEAMD_GUARDED_BY(mutex_) = 0;
  // When the last watcher left.
  absl::Time abandoned_ BEAMD_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool closing_ BEAMD_GUARDED_BY(mutex_) = false;  // about to be cancelled
};

// A client's view of a job. A job whose last view is left before its end, and that isn't kept, is
// abandoned: whoever runs it cancels it in a while.
class JobWatch {
 public:
  JobWatch(std::shared_ptr<Job> job, int64_t id) : job_(std::move(job)), id_(id) {}
  ~JobWatch() { Leave(StopReason::kCancelled); }
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  Job& job() const { return *job_; }
  // The client is gone, for this reason. A deadline says that nobody wants the answer later: the
  // last to leave for it cancels at once.
  void Leave(StopReason reason) {
    if (id_ != 0) job_->Unwatch(id_, reason);
    id_ = 0;
  }

 private:
  const std::shared_ptr<Job> job_;
  int64_t id_;
};

}  // namespace beamd

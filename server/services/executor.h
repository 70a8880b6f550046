// Threads on which requests are handled: gRPC's own must stay free to poll. Work waits in queues,
// one for each name, which take turns: whoever posts much holds up nobody but himself.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/base/steady_clock.h"

namespace beamd {

// Thread-safe.
class Executor {
 public:
  explicit Executor(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  // Runs what was posted, then ends.
  ~Executor() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Post(std::function<void()> work) { Post("", std::move(work)); }
  void Post(const std::string& queue, std::function<void()> work) {
    MutexLock lock(mutex_);
    Add(queue, std::move(work));
    changed_.NotifyOne();
  }
  // Not before `pause` has passed, unless this ends.
  void PostAfter(absl::Duration pause, std::function<void()> work) {
    MutexLock lock(mutex_);
    later_.emplace(SteadyNow() + pause, std::move(work));
    changed_.NotifyOne();
  }

  // For how long work has waited and none has begun or ended; zero: none waits.
  absl::Duration Stalled() const {
    MutexLock lock(mutex_);
    return turns_.empty() ? absl::ZeroDuration() : SteadyNow() - moved_;
  }

 private:
  void Work() {
    while (std::function<void()> work = Next()) {
      work();
      MutexLock lock(mutex_);
      moved_ = SteadyNow();
    }
  }

  void Add(const std::string& queue, std::function<void()> work) BEAMD_REQUIRES(mutex_) {
    if (turns_.empty()) moved_ = SteadyNow();
    std::deque<std::function<void()>>& waiting = queues_[queue];
    if (waiting.empty()) turns_.push_back(queue);
    waiting.push_back(std::move(work));
  }

  // Of the queue whose turn it is, which is last then.
  std::function<void()> Take() BEAMD_REQUIRES(mutex_) {
    moved_ = SteadyNow();
    const auto queue = queues_.find(turns_.front());
    std::function<void()> work = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) {
      queues_.erase(queue);
    } else {
      turns_.push_back(std::move(turns_.front()));
    }
    turns_.pop_front();
    return work;
  }

  // Null at the end.
  std::function<void()> Next() {
    MutexLock lock(mutex_);
    while (true) {
      const bool due = !later_.empty() && (stopping_ || later_.begin()->first <= SteadyNow());
      if (due) Add("", std::move(later_.extract(later_.begin()).mapped()));
      if (!turns_.empty()) {
        // This thread may be the one that was to wake for it.
        if (!later_.empty()) changed_.NotifyOne();
        return Take();
      }
      if (stopping_) return nullptr;
      changed_.WaitUntil(mutex_, later_.empty() ? absl::InfiniteFuture() : later_.begin()->first);
    }
  }

  mutable Mutex mutex_;
  CondVar changed_;
  // None is empty; each has one turn.
  std::map<std::string, std::deque<std::function<void()>>> queues_ BEAMD_GUARDED_BY(mutex_);
  std::deque<std::string> turns_ BEAMD_GUARDED_BY(mutex_);
  absl::Time moved_ BEAMD_GUARDED_BY(mutex_);
  std::multimap<absl::Time, std::function<void()>> later_ BEAMD_GUARDED_BY(mutex_);  // by when
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace beamd

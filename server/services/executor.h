// Threads on which requests are handled: gRPC's own must stay free to poll.
#pragma once

#include <deque>
#include <functional>
#include <map>
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

  void Post(std::function<void()> work) {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.NotifyOne();
  }
  // Not before `pause` has passed, unless this ends.
  void PostAfter(absl::Duration pause, std::function<void()> work) {
    MutexLock lock(mutex_);
    later_.emplace(SteadyNow() + pause, std::move(work));
    changed_.NotifyOne();
  }

 private:
  void Work() {
    while (std::function<void()> work = Next()) work();
  }

  // Null at the end.
  std::function<void()> Next() {
    MutexLock lock(mutex_);
    while (true) {
      const bool due = !later_.empty() && (stopping_ || later_.begin()->first <= SteadyNow());
      if (due) queue_.push_back(std::move(later_.extract(later_.begin()).mapped()));
      if (!queue_.empty()) {
        std::function<void()> work = std::move(queue_.front());
        queue_.pop_front();
        // This thread may be the one that was to wake for it.
        if (!later_.empty()) changed_.NotifyOne();
        return work;
      }
      if (stopping_) return nullptr;
      changed_.WaitUntil(mutex_, later_.empty() ? absl::InfiniteFuture() : later_.begin()->first);
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ BEAMD_GUARDED_BY(mutex_);
  std::multimap<absl::Time, std::function<void()>> later_ BEAMD_GUARDED_BY(mutex_);  // by when
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace beamd

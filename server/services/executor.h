// Threads on which requests are handled: gRPC's own must stay free to poll.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

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

 private:
  void Work() {
    while (true) {
      std::function<void()> work;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ BEAMD_GUARDED_BY(mutex_);
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace beamd

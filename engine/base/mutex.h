// std::mutex with Clang's thread-safety attributes, because ThreadSanitizer does not see through
// Debian's Abseil. Spec: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
//
//   Mutex mutex_;
//   int value_ BEAMD_GUARDED_BY(mutex_);
//   { MutexLock lock(mutex_); ++value_; }
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"
#include "engine/base/steady_clock.h"

#if defined(__clang__)
#define BEAMD_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define BEAMD_THREAD_ATTRIBUTE(x)
#endif
#define BEAMD_GUARDED_BY(x) BEAMD_THREAD_ATTRIBUTE(guarded_by(x))
#define BEAMD_REQUIRES(...) BEAMD_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define BEAMD_EXCLUDES(...) BEAMD_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace beamd {

class BEAMD_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void Lock() BEAMD_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void Unlock() BEAMD_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class BEAMD_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) BEAMD_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() BEAMD_THREAD_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Wakes spuriously: wait in a loop over the condition.
class CondVar {
 public:
  void Wait(Mutex& mutex) BEAMD_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns once notified or at `deadline` (of SteadyNow), whichever is first.
  void WaitUntil(Mutex& mutex, absl::Time deadline) BEAMD_REQUIRES(mutex) {
    if (deadline == absl::InfiniteFuture()) return Wait(mutex);
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    // Chopped to a day, since chrono overflows on what absl::Duration can hold.
    const absl::Duration left = std::min(deadline - SteadyNow(), absl::Hours(24));
    condition_.wait_for(lock, absl::ToChronoNanoseconds(left));
    lock.release();
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace beamd

// How work learns that nobody wants it any more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "engine/base/mutex.h"

namespace beamd {

enum class StopReason : uint8_t {
  kNone,
  kCancelled,  // the last client that waited is gone
  kDeadline,   // the request's deadline passed
  kShutdown,   // the daemon drains
};

// One a job, shared by everything that works for it. Thread-safe.
class CancelToken {
 public:
  // The first reason stands. Runs the callbacks, on this thread.
  void Cancel(StopReason reason) {
    MutexLock lock(mutex_);
    if (reason_ != StopReason::kNone) return;
    reason_ = reason;
    for (const auto& [id, callback] : callbacks_) callback();
  }

  StopReason reason() const {
    MutexLock lock(mutex_);
    return reason_;
  }
  bool cancelled() const { return reason() != StopReason::kNone; }

  // Runs `callback` once cancelled, at once if that is so already. It must not call this token.
  int64_t OnCancel(std::function<void()> callback) {
    MutexLock lock(mutex_);
    if (reason_ != StopReason::kNone) callback();
    callbacks_.emplace(++last_id_, std::move(callback));
    return last_id_;
  }
  // Once this returns the callback is not running and won't.
  void Remove(int64_t id) {
    MutexLock lock(mutex_);
    callbacks_.erase(id);
  }

 private:
  mutable Mutex mutex_;
  StopReason reason_ BEAMD_GUARDED_BY(mutex_) = StopReason::kNone;
  std::map<int64_t, std::function<void()>> callbacks_ BEAMD_GUARDED_BY(mutex_);
  int64_t last_id_ BEAMD_GUARDED_BY(mutex_) = 0;
};

}  // namespace beamd

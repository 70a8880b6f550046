// Transfers give way to runs: on the cores that serve, a chunk delays what other clients ask.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace beamd {

class Session;

// Thread-safe. Times are of SteadyNow.
class TransferPace {
 public:
  // What all transfers move together while another session runs graphs; 0: no bound.
  explicit TransferPace(int64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // A run of `session` came, or ended.
  void Ran(const Session* session, absl::Time now) {
    MutexLock lock(mutex_);
    if (session != session_) other_at_ = ran_at_;
    session_ = session;
    ran_at_ = now;
  }

  // How long a transfer of `session` pauses that has just moved `bytes`. A session's own runs don't
  // slow its transfers: what it waits for is its own to choose.
  absl::Duration Spend(const Session* session, int64_t bytes, absl::Time now) {
    MutexLock lock(mutex_);
    const absl::Time ran_at = session == session_ ? other_at_ : ran_at_;
    if (bytes_per_second_ == 0 || now - ran_at > kLately) return absl::ZeroDuration();
    free_at_ =
        std::max(free_at_, now) +
        absl::Seconds(1) * (static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
    return free_at_ - now;
  }

 private:
  // Who runs small graphs one after the other has this much between two at most.
  static constexpr absl::Duration kLately = absl::Milliseconds(20);

  const int64_t bytes_per_second_;
  Mutex mutex_;
  const Session* session_ BEAMD_GUARDED_BY(mutex_) = nullptr;  // the last one that ran
  absl::Time ran_at_ BEAMD_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time other_at_ BEAMD_GUARDED_BY(mutex_) = absl::InfinitePast();  // another one before it
  absl::Time free_at_ BEAMD_GUARDED_BY(mutex_) = absl::InfinitePast();   // what was spent is paid
};

}  // namespace beamd

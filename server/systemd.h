// What systemd is told: sd_notify(3)'s protocol, without its library. Nothing where the daemon
// wasn't started by systemd.
#pragma once

#include <thread>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace beamd {

// "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=...".
void NotifySystemd(absl::string_view state);
// How often it wants a WATCHDOG=1, halved, as sd_watchdog_enabled(3) advises; infinite: never.
absl::Duration WatchdogInterval();

// While it lives, asks systemd for more time to start in, again and again: what opens a store that
// is damaged may take longer than any fixed limit.
class LongStart {
 public:
  explicit LongStart(absl::Duration every = absl::Seconds(10));
  ~LongStart();
  LongStart(const LongStart&) = delete;
  LongStart& operator=(const LongStart&) = delete;

 private:
  void Ask();

  const absl::Duration every_;
  Mutex mutex_;
  CondVar ends_;
  bool ended_ BEAMD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace beamd

// What systemd is told: sd_notify(3)'s protocol, without its library. Nothing where the daemon
// wasn't started by systemd.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace beamd {

// "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=...".
void NotifySystemd(absl::string_view state);
// How often it wants a WATCHDOG=1, halved, as sd_watchdog_enabled(3) advises; infinite: never.
absl::Duration WatchdogInterval();

}  // namespace beamd

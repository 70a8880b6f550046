// The system's clock, set by a test: what links this sees CLOCK_REALTIME as it says.
#pragma once

#include "absl/time/time.h"

namespace beamd::testing {

// Forward, or back, from what the machine's says. Any thread.
void StepClock(absl::Duration offset);

}  // namespace beamd::testing

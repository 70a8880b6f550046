// Time that never steps: for deadlines, limits and how long something took. The system's clock is
// for what people read.
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace beamd {

// As the system's clock was when it was first asked for, and what has passed since.
inline absl::Time SteadyNow() {
  using Clock = std::chrono::steady_clock;
  static const absl::Time begin = absl::Now();
  static const Clock::time_point steady_begin = Clock::now();
  return begin + absl::FromChrono(Clock::now() - steady_begin);
}

}  // namespace beamd

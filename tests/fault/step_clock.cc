#include "tests/fault/step_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace beamd::testing {
namespace {

std::atomic<int64_t> offset_seconds = 0;

}  // namespace

void StepClock(absl::Duration offset) { offset_seconds = absl::ToInt64Seconds(offset); }

}  // namespace beamd::testing

// In place of the C library's, for the libraries too.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && clock == CLOCK_REALTIME) {
    now->tv_sec += beamd::testing::offset_seconds.load(std::memory_order_relaxed);
  }
  return result;
}

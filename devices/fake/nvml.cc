// libnvidia-ml.so.1 for tests: the entry points of devices/cuda/nvml.def.
//
//   BEAMD_FAKE_FOREIGN  how many processes besides the caller have the GPU open
//   BEAMD_FAKE_BUSY     "3-4": one more computes when this is asked for the third and fourth time
//   BEAMD_FAKE_HOT      its clocks are held down
//   BEAMD_FAKE_CONTAINER  process ids are of another name space
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "devices/fake/busy.h"

namespace {

uint32_t Self() {
  return static_cast<uint32_t>(getpid()) +
         (std::getenv("BEAMD_FAKE_CONTAINER") == nullptr ? 0 : 1u << 30);
}

}  // namespace

extern "C" {

struct FakeNvmlUtilization {
  uint32_t pid;
  uint64_t at_us;
  uint32_t sm_percent;
  uint32_t others_percent[3];
};
struct FakeNvmlProcess {
  uint32_t pid;
  uint64_t memory_bytes;
  uint32_t instances[2];
};

int nvmlInit_v2() { return 0; }
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  std::snprintf(version, size, "550.54.15");
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  static int gpu;
  *device = &gpu;
  return std::strstr(id, ":00.0") != nullptr ? 0 : 2;
}
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* megahertz) {
  *megahertz = clock == 1 ? 1395 : 1215;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int clock, unsigned* megahertz) {
  *megahertz = clock == 1 ? 1980 : 2619;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 41;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  // Idle, capped in power; too hot.
  *reasons = std::getenv("BEAMD_FAKE_HOT") == nullptr ? 0x1 | 0x4 : 0x20;
  return 0;
}
int nvmlDeviceGetProcessUtilization(void*, FakeNvmlUtilization* samples, unsigned* count,
                                    unsigned long long since) {
  const unsigned room = *count;
  const unsigned filled = beamd::fake::AskedAndBusy() ? 3 : 2;
  *count = filled;
  if (room < filled) return 7;
  timeval now{};
  gettimeofday(&now, nullptr);
  const auto now_us =
      static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_usec);
  if (since > now_us) return 6;  // NVML_ERROR_NOT_FOUND
  const uint32_t self = Self();
  // This process; one that did something before `since`, as the real library may tell; another.
  samples[0] = {self, now_us, 90, {}};
  samples[1] = {1, since - 1, 90, {}};
  if (filled == 3) samples[2] = {1, now_us, 50, {}};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, FakeNvmlProcess* processes) {
  const char* const text = std::getenv("BEAMD_FAKE_FOREIGN");
  const unsigned foreign = text == nullptr ? 0 : static_cast<unsigned>(std::atoi(text));
  const uint32_t self = Self();
  const unsigned room = *count;
  *count = foreign + 1;
  if (room < foreign + 1) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  for (unsigned i = 0; i <= foreign; ++i) processes[i].pid = self + i;
  return 0;
}

}  // extern "C"

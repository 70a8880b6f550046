// libnvidia-ml.so.1 for tests: the entry points of devices/cuda/nvml.def. BEAMD_FAKE_FOREIGN says
// how many processes besides the caller compute on the GPU.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {

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
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, FakeNvmlProcess* processes) {
  const char* const text = std::getenv("BEAMD_FAKE_FOREIGN");
  const unsigned foreign = text == nullptr ? 0 : static_cast<unsigned>(std::atoi(text));
  const auto self = static_cast<uint32_t>(getpid());
  const unsigned room = *count;
  *count = foreign + 1;
  if (room < foreign + 1) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  for (unsigned i = 0; i <= foreign; ++i) processes[i].pid = self + i;
  return 0;
}

}  // extern "C"

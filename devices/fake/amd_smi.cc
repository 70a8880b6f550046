// libamd_smi.so for tests: the entry points of devices/hip/amd_smi.def; the environment variables
// are those of nvml.cc.
#include <cstdint>
#include <cstdlib>

#include "devices/fake/busy.h"

namespace {

bool g_busy = false;

}  // namespace

extern "C" {

int amdsmi_init(uint64_t flags) { return flags == 2 ? 0 : 1; }
int amdsmi_get_processor_handle_from_bdf(uint64_t place, void** gpu) {
  static int one;
  *gpu = &one;
  // 0000:c1:00.0 and those behind it.
  return place >= 0xc1 << 8 ? 0 : 1;
}
int amdsmi_get_clock_info(void*, int clock, uint32_t* info) {
  info[0] = clock == 0 ? 2304 : 1124;
  info[1] = 500;
  info[2] = clock == 0 ? 2482 : 1249;
  return 0;
}
int amdsmi_get_temp_metric(void*, int, int metric, int64_t* value) {
  const bool hot = std::getenv("BEAMD_FAKE_HOT") != nullptr;
  *value = metric == 5 ? 100000 : hot ? 101000 : 43000;
  return 0;
}
int amdsmi_get_gpu_activity(void*, uint32_t* activity) {
  activity[0] = g_busy ? 80 : 1;
  return 0;
}
int amdsmi_get_gpu_process_list(void*, uint32_t* count, void*) {
  const char* const text = std::getenv("BEAMD_FAKE_FOREIGN");
  g_busy = beamd::fake::AskedAndBusy();
  *count = 1 + (text == nullptr ? 0 : static_cast<uint32_t>(std::atoi(text))) + (g_busy ? 1 : 0);
  return 0;
}

}  // extern "C"

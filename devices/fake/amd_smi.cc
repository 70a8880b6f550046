// libamd_smi.so for tests: the entry points of devices/hip/amd_smi.def. BEAMD_FAKE_FOREIGN says how
// many processes besides the caller compute on the GPU.
#include <cstdint>
#include <cstdlib>

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
int amdsmi_get_temp_metric(void*, int, int, int64_t* value) {
  *value = 43000;
  return 0;
}
int amdsmi_get_gpu_process_list(void*, uint32_t* count, void*) {
  const char* const text = std::getenv("BEAMD_FAKE_FOREIGN");
  *count = 1 + (text == nullptr ? 0 : static_cast<uint32_t>(std::atoi(text)));
  return 0;
}

}  // extern "C"

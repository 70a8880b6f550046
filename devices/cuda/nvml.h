// NVIDIA's management library, opened while the process runs: clocks, temperature, who else
// computes on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/device.h"

namespace beamd {

// nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3.
struct NvmlProcess {
  uint32_t pid;
  uint64_t memory_bytes;
  uint32_t gpu_instance;
  uint32_t compute_instance;
};

// nvmlProcessUtilizationSample_t.
struct NvmlUtilization {
  uint32_t pid;
  uint64_t at_us;  // since 1970
  uint32_t sm_percent;
  uint32_t others_percent[3];
};

// Thread-safe.
class Nvml {
 public:
  // Unavailable where there is no library, or it doesn't start.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const char* library = "libnvidia-ml.so.1");

  // "580.95.05"; empty where it doesn't say.
  std::string DriverVersion() const;
  // The GPU at this place on the bus ("00000000:1A:00.0"), which CUDA may number otherwise.
  absl::StatusOr<void*> Find(const std::string& pci_bus_id) const;
  DeviceCondition Condition(void* device) const;
  // Device::Disturbed. The library samples who computes a few times a second. The daemon's own
  // processes, which take turns, aren't others; in a container, where the library's process ids
  // are none of ours, the busiest process is taken for this one.
  bool Disturbed(void* device) const;
  // Fills in the two limits of the clocks.
  void Describe(void* device, DeviceInfo& info) const;

 private:
  Nvml() = default;
  bool KnowsProcess(void* device, uint32_t pid) const;

#define NVML_ENTRY(name, ...) int (*name##_)(__VA_ARGS__) = nullptr;
#include "devices/cuda/nvml.def"
#undef NVML_ENTRY
};

}  // namespace beamd

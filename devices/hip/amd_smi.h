// AMD's management library, opened while the process runs: clocks, temperature, who else computes
// on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/device.h"

namespace beamd {

// The part of amdsmi_clk_info_t that its versions share, and room for the rest. MHz.
struct AmdSmiClock {
  uint32_t now;
  uint32_t least;
  uint32_t most;
  uint32_t rest[13];
};

// amdsmi_engine_usage_t. Percent.
struct AmdSmiActivity {
  uint32_t gfx;
  uint32_t memory;
  uint32_t media;
  uint32_t rest[13];
};

// Thread-safe.
class AmdSmi {
 public:
  // Unavailable where there is no library, or it doesn't start.
  static absl::StatusOr<std::unique_ptr<AmdSmi>> Open(const char* library = "libamd_smi.so");

  // The GPU at this place on the bus ("0000:c1:00.0").
  absl::StatusOr<void*> Find(const std::string& pci_bus_id) const;
  DeviceCondition Condition(void* gpu) const;
  // Device::Disturbed. How busy the GPU is isn't told by process: where others have it open, it
  // waits a moment in which this process does nothing, and asks whether the GPU is busy still.
  bool Disturbed(void* gpu) const;
  // Fills in the two limits of the clocks.
  void Describe(void* gpu, DeviceInfo& info) const;

 private:
  AmdSmi() = default;
  // 0 where it doesn't tell.
  int64_t Celsius(void* gpu, int metric) const;
  int64_t ForeignProcesses(void* gpu) const;

#define AMD_SMI_ENTRY(name, ...) int (*name##_)(__VA_ARGS__) = nullptr;
#include "devices/hip/amd_smi.def"
#undef AMD_SMI_ENTRY
};

}  // namespace beamd

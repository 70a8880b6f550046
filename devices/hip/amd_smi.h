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

// Thread-safe.
class AmdSmi {
 public:
  // Unavailable where there is no library, or it doesn't start.
  static absl::StatusOr<std::unique_ptr<AmdSmi>> Open(const char* library = "libamd_smi.so");

  // The GPU at this place on the bus ("0000:c1:00.0").
  absl::StatusOr<void*> Find(const std::string& pci_bus_id) const;
  DeviceCondition Condition(void* gpu) const;
  // Fills in the two limits of the clocks.
  void Describe(void* gpu, DeviceInfo& info) const;

 private:
  AmdSmi() = default;

#define AMD_SMI_ENTRY(name, ...) int (*name##_)(__VA_ARGS__) = nullptr;
#include "devices/hip/amd_smi.def"
#undef AMD_SMI_ENTRY
};

}  // namespace beamd

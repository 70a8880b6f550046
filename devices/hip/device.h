// AMD's GPUs, through HIP.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "devices/hip/api.h"

namespace beamd {

// At least 1. Unavailable, with what is wrong, where there is none that can be used.
absl::StatusOr<int> CountHipDevices(const HipApi& api);

// Unavailable where the runtime refuses. `api` outlives the device.
absl::StatusOr<std::unique_ptr<Device>> OpenHipDevice(const HipApi& api, int ordinal);

// Whether `code` is a whole ELF file: the runtime is told no length and reads what the header
// names. InvalidArgument where it isn't.
absl::Status CheckCodeObject(const std::string& code);

}  // namespace beamd

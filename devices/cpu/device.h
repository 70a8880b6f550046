// The CPU that the process runs on, as a device. A launch runs on the calling thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/device.h"

namespace beamd {

// Internal if LLVM's loader can't start.
absl::StatusOr<std::unique_ptr<Device>> OpenCpuDevice();

}  // namespace beamd

// NVIDIA's GPUs, through CUDA's driver API.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/cuda/api.h"
#include "devices/device.h"

namespace beamd {

// At least 1. Unavailable, with what is wrong, where there is none that can be used.
absl::StatusOr<int> CountCudaDevices(const CudaApi& api);

// Retains the primary context. Unavailable where the driver refuses, or is too old for this GPU.
// `api` outlives the device.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaApi& api, int ordinal);

}  // namespace beamd

// A GPU as a device, over its driver's calls: CUDA's and HIP's devices are this one.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "devices/gpu/context.h"
#include "engine/base/target_caps.h"

namespace beamd {

// Takes over the context. With CodeForm::kBitcode its driver is given packed images. The driver's
// error where the events that it times with can't be made.
absl::StatusOr<std::unique_ptr<Device>> MakeGpuDevice(std::unique_ptr<GpuContext> context,
                                                      TargetCaps caps, DeviceInfo info);

}  // namespace beamd

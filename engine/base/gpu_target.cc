#include "engine/base/gpu_target.h"

namespace beamd {
namespace {

constexpr int kCudaDriver = 13000;
constexpr int kHipRuntime = 6;

}  // namespace

absl::StatusOr<TargetCaps> GpuByName(absl::string_view arch) {
  if (const int capability = ComputeCapability(arch); capability != 0) {
    return CudaTarget(capability / 10, capability % 10, kCudaDriver);
  }
  return HipTarget(arch, kHipRuntime);
}

}  // namespace beamd

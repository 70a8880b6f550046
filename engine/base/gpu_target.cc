#include "engine/base/gpu_target.h"

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace beamd {
namespace {

constexpr int kCudaDriver = 13000;
constexpr int kHipRuntime = 6;

}  // namespace

absl::StatusOr<TargetCaps> GpuByName(absl::string_view arch) {
  absl::string_view number = arch;
  int capability = 0;
  if (absl::ConsumePrefix(&number, "sm_") && absl::SimpleAtoi(number, &capability)) {
    return CudaTarget(capability / 10, capability % 10, kCudaDriver);
  }
  return HipTarget(arch, kHipRuntime);
}

}  // namespace beamd

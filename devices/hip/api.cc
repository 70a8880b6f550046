#include "devices/hip/api.h"

#include "devices/gpu/library.h"
#include "devices/gpu/status.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Of gcnArchName in hipDeviceProp_tR0600 and in the hipDeviceProp_t before ROCm 6.
constexpr size_t kArchOffsetR0600 = 1160, kArchOffsetR0000 = 396;

}  // namespace

absl::StatusOr<std::unique_ptr<const HipApi>> HipApi::Load(std::span<const char* const> libraries) {
  BEAMD_ASSIGN_OR_RETURN(const SharedLibrary runtime, SharedLibrary::Open(libraries));
  auto api = std::make_unique<HipApi>();
#define HIP_ENTRY(result, name, ...) BEAMD_RETURN_IF_ERROR(runtime.Bind(#name, api->name));
#include "devices/hip/api.def"
#undef HIP_ENTRY
  api->properties_arch_offset = kArchOffsetR0600;
  if (!runtime.Bind("hipGetDevicePropertiesR0600", api->properties).ok()) {
    BEAMD_RETURN_IF_ERROR(runtime.Bind("hipGetDeviceProperties", api->properties));
    api->properties_arch_offset = kArchOffsetR0000;
  }
  api->takes_bitcode = runtime.Find("beamd_takes_bitcode") != nullptr;
  return api;
}

absl::Status HipApi::Check(int result, const char* entry) const {
  if (result == 0) return absl::OkStatus();
  const char* const name = hipGetErrorName(result);
  const char* const text = hipGetErrorString(result);
  return GpuStatus(result, entry, name == nullptr ? "" : name, text == nullptr ? "" : text);
}

}  // namespace beamd

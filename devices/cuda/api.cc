#include "devices/cuda/api.h"

#include "devices/gpu/library.h"
#include "devices/gpu/status.h"
#include "engine/base/status.h"

namespace beamd {

absl::StatusOr<std::unique_ptr<const CudaApi>> CudaApi::Load(const char* library) {
  BEAMD_ASSIGN_OR_RETURN(const SharedLibrary driver, SharedLibrary::Open({&library, 1}));
  auto api = std::make_unique<CudaApi>();
#define CUDA_ENTRY(name, ...) BEAMD_RETURN_IF_ERROR(driver.Bind(#name, api->name));
#include "devices/cuda/api.def"
#undef CUDA_ENTRY
  api->takes_bitcode = driver.Find("beamd_takes_bitcode") != nullptr;
  return api;
}

absl::Status CudaApi::Check(int result, const char* entry) const {
  if (result == 0) return absl::OkStatus();
  // A stub library leaves them as they are.
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  return GpuStatus(result, entry, name == nullptr ? "" : name, text == nullptr ? "" : text);
}

}  // namespace beamd

#include <cstdlib>
#include <memory>
#include <utility>

#include "devices/cuda/api.h"
#include "devices/cuda/device.h"
#include "devices/registry.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

class CudaDriver final : public Driver {
 public:
  std::string name() const override { return "cuda"; }

  absl::StatusOr<int> Count() override {
    BEAMD_ASSIGN_OR_RETURN(const CudaApi* const api, Api());
    return CountCudaDevices(*api);
  }

  absl::StatusOr<std::unique_ptr<Device>> Open(int ordinal) override {
    BEAMD_ASSIGN_OR_RETURN(const CudaApi* const api, Api());
    return OpenCudaDevice(*api, ordinal);
  }

 private:
  absl::StatusOr<const CudaApi*> Api() {
    const MutexLock lock(mutex_);
    if (api_ == nullptr) {
      // The driver would keep each candidate's code on disk, and no candidate comes twice.
      setenv("CUDA_CACHE_DISABLE", "1", /*overwrite=*/0);
      BEAMD_ASSIGN_OR_RETURN(api_, CudaApi::Load());
    }
    return api_.get();
  }

  Mutex mutex_;
  std::unique_ptr<const CudaApi> api_ BEAMD_GUARDED_BY(mutex_);
};

[[maybe_unused]] const bool registered = RegisterDriver(std::make_unique<CudaDriver>());

}  // namespace
}  // namespace beamd

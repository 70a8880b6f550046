#include <memory>
#include <utility>

#include "devices/hip/api.h"
#include "devices/hip/device.h"
#include "devices/registry.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

class HipDriver final : public Driver {
 public:
  std::string name() const override { return "hip"; }

  absl::StatusOr<int> Count() override {
    BEAMD_ASSIGN_OR_RETURN(const HipApi* const api, Api());
    return CountHipDevices(*api);
  }

  absl::StatusOr<std::unique_ptr<Device>> Open(int ordinal) override {
    BEAMD_ASSIGN_OR_RETURN(const HipApi* const api, Api());
    return OpenHipDevice(*api, ordinal);
  }

 private:
  absl::StatusOr<const HipApi*> Api() {
    const MutexLock lock(mutex_);
    if (api_ == nullptr) {
      BEAMD_ASSIGN_OR_RETURN(api_, HipApi::Load());
    }
    return api_.get();
  }

  Mutex mutex_;
  std::unique_ptr<const HipApi> api_ BEAMD_GUARDED_BY(mutex_);
};

[[maybe_unused]] const bool registered = RegisterDriver(std::make_unique<HipDriver>());

}  // namespace
}  // namespace beamd

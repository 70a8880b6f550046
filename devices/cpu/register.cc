#include "devices/cpu/device.h"
#include "devices/registry.h"

namespace beamd {
namespace {

class CpuDriver : public Driver {
 public:
  std::string name() const override { return "cpu"; }
  absl::StatusOr<int> Count() override { return 1; }
  absl::StatusOr<std::unique_ptr<Device>> Open(int) override { return OpenCpuDevice(); }
};

[[maybe_unused]] const bool registered = RegisterDriver(std::make_unique<CpuDriver>());

}  // namespace
}  // namespace beamd

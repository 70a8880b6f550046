// The drivers linked into this binary. Each registers itself before main (its register.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/device.h"

namespace beamd {

class Driver {
 public:
  virtual ~Driver() = default;
  // "cpu", "cuda": the first half of a device's name.
  virtual std::string name() const = 0;
  // How many devices there are now; 0 where the driver's library is absent.
  virtual int Count() = 0;
  virtual absl::StatusOr<std::unique_ptr<Device>> Open(int ordinal) = 0;
};

// For register.cc; before main only.
bool RegisterDriver(std::unique_ptr<Driver> driver);

// "cpu:0", "cuda:1", ... of all drivers, sorted by driver name.
std::vector<std::string> DeviceNames();
// NotFound for a name that DeviceNames doesn't give.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(absl::string_view name);

}  // namespace beamd

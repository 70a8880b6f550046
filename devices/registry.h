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
  // How many devices there are now, at least one. Unavailable where there is none, saying why: no
  // library, one that is no driver, a driver that is too old.
  virtual absl::StatusOr<int> Count() = 0;
  virtual absl::StatusOr<std::unique_ptr<Device>> Open(int ordinal) = 0;
};

// For register.cc; before main only.
bool RegisterDriver(std::unique_ptr<Driver> driver);
// Of devices that are opened by name alone and never listed: `open` is given what stands behind
// "prefix:".
using OpenUnlisted = absl::StatusOr<std::unique_ptr<Device>> (*)(absl::string_view which);
bool RegisterUnlisted(std::string prefix, OpenUnlisted open);

// What a driver has to offer.
struct DriverState {
  std::string name;                  // "cuda"
  std::vector<std::string> devices;  // "cuda:0", "cuda:1"
  absl::Status status;               // why there is no device
};

// Of all drivers, sorted by name.
std::vector<DriverState> DriverStates();
// "cpu:0", "cuda:1", ... of all drivers, sorted by driver name.
std::vector<std::string> DeviceNames();
// One of those or an unlisted one. NotFound for a name of no device of a driver that has some, or of
// no driver; Unavailable, with the driver's reason, where it has none.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(absl::string_view name);

}  // namespace beamd

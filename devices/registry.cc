#include "devices/registry.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace beamd {
namespace {

std::vector<std::unique_ptr<Driver>>& Drivers() {
  static auto* drivers = new std::vector<std::unique_ptr<Driver>>;
  return *drivers;
}

}  // namespace

bool RegisterDriver(std::unique_ptr<Driver> driver) {
  Drivers().push_back(std::move(driver));
  std::ranges::sort(Drivers(), {}, [](const auto& d) { return d->name(); });
  return true;
}

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const auto& driver : Drivers()) {
    const int count = driver->Count();
    for (int i = 0; i < count; ++i) names.push_back(absl::StrCat(driver->name(), ":", i));
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(absl::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(name, ':');
  int ordinal = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &ordinal)) {
    for (const auto& driver : Drivers()) {
      if (driver->name() == parts[0] && ordinal >= 0 && ordinal < driver->Count()) {
        return driver->Open(ordinal);
      }
    }
  }
  return absl::NotFoundError(absl::StrCat("no device \"", name, "\""));
}

}  // namespace beamd

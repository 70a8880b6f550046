#include "devices/registry.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

std::vector<std::unique_ptr<Driver>>& Drivers() {
  static auto* drivers = new std::vector<std::unique_ptr<Driver>>;
  return *drivers;
}

std::map<std::string, OpenUnlisted, std::less<>>& Unlisted() {
  static auto* openers = new std::map<std::string, OpenUnlisted, std::less<>>;
  return *openers;
}

}  // namespace

bool RegisterUnlisted(std::string prefix, OpenUnlisted open) {
  return Unlisted().emplace(std::move(prefix), open).second;
}

bool RegisterDriver(std::unique_ptr<Driver> driver) {
  Drivers().push_back(std::move(driver));
  std::ranges::sort(Drivers(), {}, [](const auto& d) { return d->name(); });
  return true;
}

std::vector<DriverState> DriverStates() {
  std::vector<DriverState> states;
  for (const auto& driver : Drivers()) {
    DriverState& state = states.emplace_back();
    state.name = driver->name();
    const absl::StatusOr<int> count = driver->Count();
    state.status = count.status();
    for (int i = 0; i < count.value_or(0); ++i) {
      state.devices.push_back(absl::StrCat(state.name, ":", i));
    }
  }
  return states;
}

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const DriverState& state : DriverStates()) {
    names.insert(names.end(), state.devices.begin(), state.devices.end());
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(absl::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(name, ':');
  int ordinal = 0;
  if (const auto it = Unlisted().find(parts[0]); it != Unlisted().end() && parts.size() == 2) {
    return it->second(parts[1]);
  }
  if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &ordinal) && ordinal >= 0) {
    for (const auto& driver : Drivers()) {
      if (driver->name() != parts[0]) continue;
      BEAMD_ASSIGN_OR_RETURN(const int count, driver->Count());
      if (ordinal < count) return driver->Open(ordinal);
    }
  }
  return absl::NotFoundError(absl::StrCat("no device \"", name, "\""));
}

}  // namespace beamd

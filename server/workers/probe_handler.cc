#include "server/workers/probe_handler.h"

#include <string>

#include "absl/status/status.h"
#include "devices/registry.h"

namespace beamd {

absl::Status ProbeHandler::Start(internal::Hello& hello) {
  for (const DriverState& state : DriverStates()) {
    v1::Driver& driver = *hello.add_drivers();
    driver.set_name(state.name);
    driver.mutable_devices()->Add(state.devices.begin(), state.devices.end());
    driver.set_why(std::string(state.status.message()));
  }
  return absl::OkStatus();
}

absl::Status ProbeHandler::AddContext(const internal::AddContext&) { return absl::OkStatus(); }
void ProbeHandler::DropContext(uint64_t) {}
absl::Status ProbeHandler::Handle(const internal::Frame&, internal::Frame&) {
  return absl::InvalidArgumentError("a probe takes no tasks");
}

}  // namespace beamd

#include "devices/emu/device.h"
#include "devices/registry.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

absl::StatusOr<std::unique_ptr<Device>> Open(absl::string_view arch) {
  BEAMD_ASSIGN_OR_RETURN(TargetCaps caps, EmuTarget(arch));
  return OpenEmuDevice(std::move(caps), EmuOptions());
}

[[maybe_unused]] const bool registered = RegisterUnlisted("emu", &Open);

}  // namespace
}  // namespace beamd

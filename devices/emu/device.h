// A GPU that this host plays: runs the modules that engine/llvm makes for NVPTX and AMDGPU, and
// checks every access that they make. For tests and development: its times say nothing of a GPU.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "engine/base/target_caps.h"

namespace beamd {

struct EmuOptions {
  // Of the order that work-groups and work-items run in: 0 ascending, 1 descending, else shuffled.
  // A right kernel computes the same in each.
  uint64_t seed = 0;
  // Of a launch only so many work-groups, the first in that order; 0: all. What a large kernel's
  // others would have stored stays as it was.
  int64_t most_groups = 0;
};

// "sm_80", "gfx1100", ...; "cuda" and "hip" stand for the conformance corpus' two. NotFound for
// another name.
absl::StatusOr<TargetCaps> EmuTarget(absl::string_view arch);

// A device whose caps are those, with CodeForm::kBitcode. What its kernels do wrong is Internal,
// with a report that begins with what it is (devices/emu/group_run.h); the device goes on.
// InvalidArgument where the caps are a CPU's.
absl::StatusOr<std::unique_ptr<Device>> OpenEmuDevice(TargetCaps caps, const EmuOptions& options);

}  // namespace beamd

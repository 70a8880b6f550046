// A GPU by name, for code that no device here runs: what is only built, for one.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/target_caps.h"

namespace beamd {

// "sm_90" under a driver of CUDA 13, or "gfx1100" under HIP 6. Unavailable for what isn't known.
absl::StatusOr<TargetCaps> GpuByName(absl::string_view arch);

}  // namespace beamd

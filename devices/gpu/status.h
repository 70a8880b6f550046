// What a driver's error code means. CUDA's driver API and HIP number the errors that matter alike.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace beamd {

// OK for 0. ResourceExhausted: memory, or what a launch takes, is not there; the device goes on.
// InvalidArgument: the image or the arguments are wrong; the device goes on. Unavailable: the
// context is lost, as after an illegal access: all that follows fails, until another process opens
// the device anew. Internal: everything else. `name` and `text` are the driver's own.
// Source: CUDA driver API, "CUresult"; HIP's hipError_t.
absl::Status GpuStatus(int code, absl::string_view entry, absl::string_view name,
                       absl::string_view text);

}  // namespace beamd

// From an AMDGPU object to the code object that a HIP runtime loads.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace beamd {

// As `ld.lld -shared --no-undefined` would. Thread-safe, one link at a time: lld has global state.
// Internal where lld refuses the object, with its reason; Unavailable where this process can't link
// any more.
absl::StatusOr<std::string> LinkCodeObject(absl::string_view object);

}  // namespace beamd

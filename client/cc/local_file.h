// Files of this machine. What goes wrong with one names its path and why, with the reason "FILE":
// NotFound where it, or its folder, isn't there, else FailedPrecondition. Never Unavailable, which
// says that no daemon answers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace beamd {

// `what`: "read", "write"; `error`: an errno.
absl::Status LocalError(absl::string_view what, absl::string_view path, int error);

absl::StatusOr<std::string> ReadLocalFile(const std::string& path);
// In place of what is there, which stays as it is where this fails.
absl::Status WriteLocalFile(const std::string& path, absl::string_view bytes);

}  // namespace beamd

// Texts that nobody guesses: tokens, ids of sessions.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace beamd {

// So many random bytes of the system's, in lower-case hexadecimal digits. Unavailable where the
// system has none.
absl::StatusOr<std::string> NewSecret(size_t size_bytes);

}  // namespace beamd

#include "server/auth/secret.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"

namespace beamd {

absl::StatusOr<std::string> NewSecret(size_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  // Up to 256 bytes come whole or not at all (getrandom(2)); more may come in parts.
  for (size_t filled = 0; filled < size_bytes;) {
    const ssize_t more = getrandom(bytes.data() + filled, size_bytes - filled, 0);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return absl::UnavailableError("the system has no random numbers");
    filled += static_cast<size_t>(more);
  }
  return absl::BytesToHexString(bytes);
}

}  // namespace beamd

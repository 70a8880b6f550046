// SHA-256 (FIPS 180-4), for numbers that other programs derive by it. What we name or compare
// ourselves is hashed by engine/base/hash.h.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace beamd {

std::array<uint8_t, 32> Sha256(absl::string_view bytes);

}  // namespace beamd

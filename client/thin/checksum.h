// Checksums of what travels.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace beamd::thin {

// CRC-32C (RFC 3720 B.4, Castagnoli) of `data`; the processor's instruction where it has one.
uint32_t Crc32c(absl::string_view data);
// The same by tables, for processors without.
uint32_t Crc32cByTables(absl::string_view data);
// SHA-256 (FIPS 180-4): 32 bytes.
std::string Sha256(absl::string_view data);

}  // namespace beamd::thin

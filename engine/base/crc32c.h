// CRC-32C (RFC 3720, B.4): what chunks of a client's buffers are checked by on their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace beamd {

// Of what came before (0: nothing) with `bytes` behind it.
uint32_t Crc32c(uint32_t before, std::span<const std::byte> bytes);

}  // namespace beamd

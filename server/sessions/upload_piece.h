// A piece of a buffer's content, as it lies in a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace beamd {

struct UploadPiece {
  int64_t offset = 0;
  std::vector<std::span<const std::byte>> data;
  int64_t size_bytes = 0;
  uint32_t crc32c = 0;
};

}  // namespace beamd

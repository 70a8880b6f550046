#include "engine/base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace beamd {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

uint32_t ByTable(uint32_t crc, std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  for (const std::byte b : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(b)) & 0xff];
  }
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc,
                                                         std::span<const std::byte> bytes) {
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  uint64_t wide = crc;
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; left > 0; --left, ++p) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*p));
  return crc;
}

}  // namespace

uint32_t Crc32c(uint32_t before, std::span<const std::byte> bytes) {
  static const bool instruction = __builtin_cpu_supports("sse4.2");
  return ~(instruction ? ByInstruction(~before, bytes) : ByTable(~before, bytes));
}

}  // namespace beamd

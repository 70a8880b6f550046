#include "engine/base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>
#include <vector>

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

// What kLane bytes of zeros behind it make of a CRC, a byte of it at a time. Multiplying by x^(8n)
// modulo the polynomial is linear over GF(2), so the four bytes' parts add up.
constexpr size_t kLane = 4096;
using Shift = std::array<std::array<uint32_t, 256>, 4>;

Shift MakeShift() {
  const std::vector<std::byte> zeros(kLane);
  Shift shift{};
  for (size_t place = 0; place < 4; ++place) {
    for (uint32_t bit = 0; bit < 8; ++bit) {
      shift[place][size_t{1} << bit] = ByTable(uint32_t{1} << (8 * place + bit), zeros);
    }
    for (size_t i = 0; i < 256; ++i) {
      const size_t low = i & (~i + 1);
      shift[place][i] = i == 0 ? 0 : shift[place][low] ^ shift[place][i ^ low];
    }
  }
  return shift;
}

uint32_t Shifted(const Shift& shift, uint32_t crc) {
  return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^
         shift[3][crc >> 24];
}

uint64_t Word(const std::byte* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// The instruction gives its result three cycles later and can begin each cycle: three lanes at once
// (V. Gopal and others, "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", 2011).
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc,
                                                         std::span<const std::byte> bytes) {
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  uint64_t wide = crc;
  if (left >= 3 * kLane) {
    static const Shift shift = MakeShift();
    for (; left >= 3 * kLane; left -= 3 * kLane, p += 3 * kLane) {
      uint64_t second = 0, third = 0;
      for (size_t i = 0; i < kLane; i += 8) {
        wide = _mm_crc32_u64(wide, Word(p + i));
        second = _mm_crc32_u64(second, Word(p + kLane + i));
        third = _mm_crc32_u64(third, Word(p + 2 * kLane + i));
      }
      const uint32_t two =
          Shifted(shift, static_cast<uint32_t>(wide)) ^ static_cast<uint32_t>(second);
      wide = Shifted(shift, two) ^ static_cast<uint32_t>(third);
    }
  }
  for (; left >= 8; left -= 8, p += 8) wide = _mm_crc32_u64(wide, Word(p));
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

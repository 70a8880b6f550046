#include "client/thin/checksum.h"

#include <array>
#include <cstring>

#include "openssl/sha.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace beamd::thin {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

// table[k][b]: the remainder of the byte b with k zero bytes behind it.
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}
constexpr std::array<std::array<uint32_t, 256>, 8> kTables = MakeTables();

uint32_t ByTables(uint32_t crc, const char* data, size_t size) {
  for (; size >= 8; size -= 8, data += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; size > 0; --size, ++data) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint8_t>(*data)) & 0xFF];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, const char* data,
                                                         size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; size -= 8, data += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; --size, ++data) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*data));
  return crc;
}
#endif

}  // namespace

uint32_t Crc32cByTables(absl::string_view data) {
  return ~ByTables(~uint32_t{0}, data.data(), data.size());
}

uint32_t Crc32c(absl::string_view data) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~ByInstruction(~uint32_t{0}, data.data(), data.size());
#endif
  return Crc32cByTables(data);
}

std::string Sha256(absl::string_view data) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace beamd::thin

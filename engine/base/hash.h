// BLAKE3-256 of bytes: the one hash that leaves the process (keys of records, kernels, images).
// Spec: https://github.com/BLAKE3-team/BLAKE3-specs. Implementation: the one that LLVM ships.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace beamd {

// 32 bytes. Ordered as bytes, so that it can be a store key.
struct Digest {
  std::array<uint8_t, 32> bytes{};

  // 64 lower-case hexadecimal digits.
  std::string Hex() const;
  // InvalidArgument unless `hex` is exactly 64 hexadecimal digits.
  static absl::StatusOr<Digest> FromHex(absl::string_view hex);
  // The first eight bytes, for in-memory tables.
  uint64_t Prefix() const;

  auto operator<=>(const Digest&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Digest& d) {
    return H::combine(std::move(h), d.bytes);
  }
};

Digest HashBytes(absl::string_view bytes);

// An incremental hash of typed fields. Integers go in little-endian, strings with their length
// before them, so that no two sequences of fields share a byte sequence by accident.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& Add(uint64_t value);
  Hasher& Add(absl::string_view text);
  Hasher& Add(const Digest& digest);
  Digest Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace beamd

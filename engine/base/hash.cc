#include "engine/base/hash.h"

#include <llvm-c/blake3.h>

#include <cstring>

#include "absl/strings/escaping.h"

namespace beamd {

std::string Digest::Hex() const {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

absl::StatusOr<Digest> Digest::FromHex(absl::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size() ||
      hex.find_first_not_of("0123456789abcdefABCDEF") != absl::string_view::npos) {
    return absl::InvalidArgumentError("a digest is 64 hexadecimal digits");
  }
  const std::string raw = absl::HexStringToBytes(hex);
  std::memcpy(digest.bytes.data(), raw.data(), raw.size());
  return digest;
}

uint64_t Digest::Prefix() const {
  uint64_t prefix = 0;
  for (int i = 0; i < 8; ++i) prefix = prefix << 8 | bytes[i];
  return prefix;
}

struct Hasher::State {
  llvm_blake3_hasher hasher;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { llvm_blake3_hasher_init(&state_->hasher); }
Hasher::~Hasher() = default;

Hasher& Hasher::Add(uint64_t value) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  llvm_blake3_hasher_update(&state_->hasher, bytes, sizeof(bytes));
  return *this;
}

Hasher& Hasher::Add(absl::string_view text) {
  Add(static_cast<uint64_t>(text.size()));
  llvm_blake3_hasher_update(&state_->hasher, text.data(), text.size());
  return *this;
}

Hasher& Hasher::Add(const Digest& digest) {
  llvm_blake3_hasher_update(&state_->hasher, digest.bytes.data(), digest.bytes.size());
  return *this;
}

Digest Hasher::Finish() const {
  Digest digest;
  llvm_blake3_hasher_finalize(&state_->hasher, digest.bytes.data(), digest.bytes.size());
  return digest;
}

Digest HashBytes(absl::string_view bytes) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init(&hasher);
  llvm_blake3_hasher_update(&hasher, bytes.data(), bytes.size());
  Digest digest;
  llvm_blake3_hasher_finalize(&hasher, digest.bytes.data(), digest.bytes.size());
  return digest;
}

}  // namespace beamd

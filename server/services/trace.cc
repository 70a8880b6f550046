#include "server/services/trace.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace beamd {
namespace {

bool IsLowerHex(absl::string_view s) {
  return std::all_of(s.begin(), s.end(), [](unsigned char c) {
    return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
  });
}

bool IsZero(absl::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return c == '0'; });
}

uint64_t Random() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  uint64_t value = 0;
  while (value == 0) value = random();
  return value;
}

std::string RandomHex() { return absl::StrFormat("%016x", Random()); }

}  // namespace

std::string Trace::Header() const {
  return absl::StrCat("00-", id, "-", span, sampled ? "-01" : "-00");
}

Trace TraceFromHeader(absl::string_view header) {
  constexpr size_t kLength = 55;  // 2 + 1 + 32 + 1 + 16 + 1 + 2; later versions may append
  const bool well_formed =
      header.size() >= kLength && header[2] == '-' && header[35] == '-' && header[52] == '-' &&
      IsLowerHex(header.substr(0, 2)) && header.substr(0, 2) != "ff" &&
      IsLowerHex(header.substr(3, 32)) && !IsZero(header.substr(3, 32)) &&
      IsLowerHex(header.substr(36, 16)) && !IsZero(header.substr(36, 16)) &&
      IsLowerHex(header.substr(53, 2)) &&
      (header.size() == kLength || (header.substr(0, 2) != "00" && header[55] == '-'));
  if (!well_formed) return {.id = RandomHex() + RandomHex(), .span = RandomHex()};
  const char flags = header[54];
  const int digit =
      absl::ascii_isdigit(static_cast<unsigned char>(flags)) ? flags - '0' : flags - 'a' + 10;
  return {.id = std::string(header.substr(3, 32)),
          .span = RandomHex(),
          .parent = std::string(header.substr(36, 16)),
          .sampled = (digit & 1) != 0};
}

}  // namespace beamd

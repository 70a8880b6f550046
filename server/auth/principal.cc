#include "server/auth/principal.h"

#include <array>

namespace beamd {
namespace {

constexpr std::array<absl::string_view, 4> kNames = {"reader", "submitter", "importer", "admin"};

}  // namespace

absl::string_view Name(Role role) { return kNames[static_cast<size_t>(role)]; }

std::optional<Role> ParseRole(absl::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

}  // namespace beamd

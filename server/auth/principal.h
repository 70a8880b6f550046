// Who asks, as a plain value: made in one place (Gate::Identify), taken by everything behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace beamd {

// What a principal may do; each may also do what stands before it.
enum class Role : uint8_t {
  kReader,     // look things up
  kSubmitter,  // have work done: tune, cancel its own jobs, show
  kImporter,   // bring records in
  kAdmin,      // run the daemon: devices, backups, log level, everybody's jobs
};

// "reader", "submitter", "importer", "admin".
absl::string_view Name(Role role);
std::optional<Role> ParseRole(absl::string_view name);

struct Principal {
  // Shares, quotas, lists of jobs and the audit go by this name: a token's, a certificate's,
  // "uid:1000", or a host that shows no credentials.
  std::string name;
  Role role = Role::kReader;
};

}  // namespace beamd

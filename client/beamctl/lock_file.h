// Lock files: which generation of which record a program takes, in a text that git can keep.
//
//   # beamd lock 1
//   KEY GENERATION OPTS
//
// One line a kernel, sorted by key: files of the same answers are the same files.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace beamd {

struct LockEntry {
  uint64_t generation = 0;
  std::string opts;  // OptsText

  bool operator==(const LockEntry&) const = default;
};
using Lock = std::map<std::string, LockEntry>;  // by key

std::string LockText(const Lock& lock);
// InvalidArgument naming the line that is none.
absl::StatusOr<Lock> ParseLock(absl::string_view text);

// Errors of files: client/cc/local_file.h.
absl::Status WriteLockFile(const std::string& path, const Lock& lock);
absl::StatusOr<Lock> ReadLockFile(const std::string& path);

}  // namespace beamd

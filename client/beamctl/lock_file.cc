#include "client/beamctl/lock_file.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cc/local_file.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

constexpr absl::string_view kHeader = "# beamd lock 1";

}  // namespace

std::string LockText(const Lock& lock) {
  std::string text = absl::StrCat(kHeader, "\n");
  for (const auto& [key, entry] : lock) {
    absl::StrAppend(&text, key, " ", entry.generation, " ", entry.opts, "\n");
  }
  return text;
}

absl::StatusOr<Lock> ParseLock(absl::string_view text) {
  Lock lock;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (number == 1 && line != kHeader) {
      return absl::InvalidArgumentError(absl::StrCat("a lock file begins with \"", kHeader, "\""));
    }
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    LockEntry entry;
    if (parts.size() != 3 || !Digest::FromHex(parts[0]).ok() ||
        !absl::SimpleAtoi(parts[1], &entry.generation) || entry.generation == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " of the lock file is no KEY GENERATION OPTS"));
    }
    entry.opts = std::string(parts[2]);
    if (!lock.emplace(std::string(parts[0]), std::move(entry)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " of the lock file has a key a second time"));
    }
  }
  return lock;
}

absl::Status WriteLockFile(const std::string& path, const Lock& lock) {
  return WriteLocalFile(path, LockText(lock));
}

absl::StatusOr<Lock> ReadLockFile(const std::string& path) {
  BEAMD_ASSIGN_OR_RETURN(const std::string text, ReadLocalFile(path));
  return ParseLock(text);
}

}  // namespace beamd

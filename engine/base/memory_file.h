// A file that is in memory only, for libraries that want a path.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace beamd {

// Not thread-safe. The path is this process' own, and is gone with the object.
class MemoryFile {
 public:
  MemoryFile() = default;
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Replaces the content at once: who opens the path sees all of one or all of the other. With an
  // error it stays as it was.
  absl::Status Set(absl::string_view content);
  // Stays the same from the first Set on.
  std::string path() const;

 private:
  int fd_ = -1;
};

}  // namespace beamd

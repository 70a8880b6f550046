#include "server/config/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace beamd {
namespace {

// The number that stands in a file; none where it says "max", or isn't there.
int64_t LimitIn(const std::string& path, int64_t otherwise) {
  std::string word;
  int64_t limit = 0;
  std::ifstream(path) >> word;
  return absl::SimpleAtoi(word, &limit) && limit > 0 ? limit : otherwise;
}

}  // namespace

int64_t MemoryBytes(const std::string& root) {
  int64_t least = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/a/b" is the unified hierarchy's, "7:memory:/a/b" the older controller's.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers != "memory") continue;
    const std::string mount = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* const file = unified ? "/memory.max" : "/memory.limit_in_bytes";
    // Each group is bounded by those above it. In a container the path may be the host's, and its
    // own group is the root that it sees.
    std::string group = line.substr(second + 1);
    while (true) {
      least = std::min(least, LimitIn(absl::StrCat(root, mount, group, file), least));
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return least;
}

}  // namespace beamd

// Who is behind a connection of the unix socket, by the name that gRPC gives it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/base/mutex.h"

namespace beamd {

// Thread-safe.
class LocalUsers {
 public:
  void Connected(int fd, uint32_t uid) {
    MutexLock lock(mutex_);
    users_[fd] = uid;
  }
  // Of a peer like "fd:17"; nullopt for any other.
  std::optional<uint32_t> Find(absl::string_view peer) const {
    int fd = 0;
    if (!absl::ConsumePrefix(&peer, "fd:") || !absl::SimpleAtoi(peer, &fd)) return std::nullopt;
    MutexLock lock(mutex_);
    const auto it = users_.find(fd);
    if (it == users_.end()) return std::nullopt;
    return it->second;
  }

 private:
  mutable Mutex mutex_;
  // An entry stays until its descriptor is another connection's; there are as many as descriptors.
  std::map<int, uint32_t> users_ BEAMD_GUARDED_BY(mutex_);
};

}  // namespace beamd

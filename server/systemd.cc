#include "server/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/steady_clock.h"

namespace beamd {

void NotifySystemd(absl::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un to{};
  if (path == nullptr || std::strlen(path) >= sizeof(to.sun_path) ||
      (path[0] != '/' && path[0] != '@')) {
    return;
  }
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, path, std::strlen(path));
  // An abstract address begins with a zero.
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to),
         size);
  close(fd);
}

absl::Duration WatchdogInterval() {
  const char* pid = std::getenv("WATCHDOG_PID");
  const char* usec = std::getenv("WATCHDOG_USEC");
  int64_t value = 0;
  if (usec == nullptr || !absl::SimpleAtoi(usec, &value) || value <= 0) {
    return absl::InfiniteDuration();
  }
  if (pid != nullptr && (!absl::SimpleAtoi(pid, &value) || value != getpid())) {
    return absl::InfiniteDuration();
  }
  if (!absl::SimpleAtoi(usec, &value)) return absl::InfiniteDuration();
  return absl::Microseconds(value) / 2;
}

LongStart::LongStart(absl::Duration every) : every_(every), thread_([this] { Ask(); }) {}

LongStart::~LongStart() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    ends_.NotifyAll();
  }
  thread_.join();
}

void LongStart::Ask() {
  MutexLock lock(mutex_);
  while (!ended_) {
    const absl::Time due = SteadyNow() + every_;
    while (!ended_ && SteadyNow() < due) ends_.WaitUntil(mutex_, due);
    // From now on, not on top of what is left.
    if (!ended_) {
      NotifySystemd(absl::StrCat("EXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(6 * every_)));
    }
  }
}

}  // namespace beamd

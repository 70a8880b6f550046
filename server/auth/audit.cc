#include "server/auth/audit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json_string.h"

namespace beamd {

absl::StatusOr<std::unique_ptr<Audit>> Audit::Open(std::string path) {
  std::unique_ptr<Audit> audit(new Audit(std::move(path)));
  if (absl::Status status = audit->Reopen(); !status.ok()) return status;
  return audit;
}

Audit::~Audit() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Audit::Reopen() {
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening the audit ", path_));
  MutexLock lock(mutex_);
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  return absl::OkStatus();
}

absl::Status Audit::Write(const AuditEntry& entry) {
  const std::string line = absl::StrCat(
      "{\"time\":", JsonString(absl::FormatTime(entry.at, absl::UTCTimeZone())),
      ",\"principal\":", JsonString(entry.principal), ",\"host\":", JsonString(entry.host),
      ",\"method\":", JsonString(entry.method), ",\"code\":", JsonString(entry.code),
      ",\"trace\":", JsonString(entry.trace), "}\n");
  MutexLock lock(mutex_);
  if (write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("writing the audit ", path_));
}

}  // namespace beamd

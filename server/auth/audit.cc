#include "server/auth/audit.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json_string.h"

namespace beamd {

void SetNamed(AuditObject& object, absl::string_view name, absl::string_view value) {
  if (value.empty()) return;
  const auto it = std::find_if(object.begin(), object.end(),
                               [&](const auto& member) { return member.first == name; });
  if (it == object.end()) {
    object.emplace_back(name, value);
  } else {
    it->second = std::string(value);
  }
}

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
  torn_ = false;
  return absl::OkStatus();
}

absl::Status Audit::Write(const AuditEntry& entry) {
  std::string line =
      absl::StrCat("{\"time\":", JsonString(absl::FormatTime(entry.at, absl::UTCTimeZone())),
                   ",\"principal\":", JsonString(entry.principal),
                   ",\"host\":", JsonString(entry.host), ",\"method\":", JsonString(entry.method),
                   ",\"code\":", JsonString(entry.code), ",\"trace\":", JsonString(entry.trace));
  if (!entry.reason.empty()) absl::StrAppend(&line, ",\"reason\":", JsonString(entry.reason));
  absl::StrAppend(&line, ",\"object\":{");
  const char* separator = "";
  for (const auto& [name, value] : entry.object) {
    absl::StrAppend(&line, separator, JsonString(name), ":", JsonString(value));
    separator = ",";
  }
  absl::StrAppend(&line, "}}\n");
  MutexLock lock(mutex_);
  // What a full disk cut off stays one bad line.
  if (torn_) line.insert(line.begin(), '\n');
  const ssize_t written = write(fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    torn_ = false;
    return absl::OkStatus();
  }
  const int error = written < 0 ? errno : ENOSPC;
  torn_ = torn_ || written > 0;
  ++failed_writes_;
  return absl::ErrnoToStatus(error, absl::StrCat("writing the audit ", path_));
}

}  // namespace beamd

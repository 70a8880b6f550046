// The audit: a file that only grows, a JSON line for each thing that somebody did or was refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace beamd {

// What somebody acted on, by names: "job" and its id, "device" and its name.
using AuditObject = std::vector<std::pair<std::string, std::string>>;
// In place of what has the name; nothing where the value is empty.
void SetNamed(AuditObject& object, absl::string_view name, absl::string_view value);

struct AuditEntry {
  absl::Time at;
  absl::string_view principal;
  absl::string_view host;
  absl::string_view method;
  absl::string_view code;    // "OK", "PERMISSION_DENIED"; "ACCEPTED": a job began
  absl::string_view trace;   // W3C trace id
  absl::string_view reason;  // of a refusal; may be empty
  AuditObject object;
};

// Thread-safe. Each entry is one write to a file opened for appending: lines of two daemons don't
// mix.
class Audit {
 public:
  // Makes the file, mode 0600, where there is none.
  static absl::StatusOr<std::unique_ptr<Audit>> Open(std::string path);
  ~Audit();

  absl::Status Write(const AuditEntry& entry);
  // Since it was opened: how many entries weren't written whole.
  int64_t failed_writes() const { return failed_writes_; }
  // The file was moved away: from now on, a new one at the same path.
  absl::Status Reopen();

 private:
  explicit Audit(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  Mutex mutex_;
  int fd_ BEAMD_GUARDED_BY(mutex_) = -1;
  std::atomic<int64_t> failed_writes_ = 0;
  bool torn_ BEAMD_GUARDED_BY(mutex_) = false;  // the last line has no end
};

}  // namespace beamd

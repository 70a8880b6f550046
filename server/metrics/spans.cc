#include "server/metrics/spans.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json_string.h"

namespace beamd {

absl::StatusOr<std::unique_ptr<SpanFile>> SpanFile::Open(std::string path) {
  std::unique_ptr<SpanFile> file(new SpanFile(std::move(path)));
  if (absl::Status status = file->Reopen(); !status.ok()) return status;
  return file;
}

SpanFile::~SpanFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SpanFile::Reopen() {
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening the spans ", path_));
  MutexLock lock(mutex_);
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  return absl::OkStatus();
}

void SpanFile::Write(const Span& span) {
  const std::string line = absl::StrCat(
      "{\"traceId\":", JsonString(span.trace), ",\"spanId\":", JsonString(span.id),
      ",\"parentSpanId\":", JsonString(span.parent), ",\"name\":", JsonString(span.name),
      ",\"startTimeUnixNano\":\"", absl::ToUnixNanos(span.begin), "\",\"endTimeUnixNano\":\"",
      absl::ToUnixNanos(span.end), "\",\"code\":", JsonString(span.code), "}\n");
  MutexLock lock(mutex_);
  [[maybe_unused]] const ssize_t written = write(fd_, line.data(), line.size());
}

}  // namespace beamd

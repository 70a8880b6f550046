// Spans of calls as JSON lines, for whoever collects traces; field names as in OTLP's JSON.
// Spec: https://opentelemetry.io/docs/specs/otlp (JSON encoding: ids in hexadecimal, times in
// nanoseconds as text).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace beamd {

struct Span {
  absl::string_view trace;
  absl::string_view id;
  absl::string_view parent;  // empty: the trace begins here
  absl::string_view name;
  absl::Time begin;
  absl::Time end;
  absl::string_view code;
};

// Thread-safe. A span that can't be written is lost: tracing must not hold a call up.
class SpanFile {
 public:
  static absl::StatusOr<std::unique_ptr<SpanFile>> Open(std::string path);
  ~SpanFile();

  void Write(const Span& span);
  // The file was moved away.
  absl::Status Reopen();

 private:
  explicit SpanFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  Mutex mutex_;
  int fd_ BEAMD_GUARDED_BY(mutex_) = -1;
};

}  // namespace beamd

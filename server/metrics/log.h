// The daemon's log: structured, one line an event, to standard error or to rotated files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace beamd {

struct LogOptions {
  std::string level = "info";
  std::string file;  // empty: standard error
  int64_t file_bytes = int64_t{64} << 20;
  int64_t files = 8;
};

// Takes spdlog's default logger. `time=... level=... MESSAGE`: what a client wrote into a message
// can't begin a line of its own. InvalidArgument for a level that isn't one, Unavailable where the
// file can't be had.
absl::Status StartLog(const LogOptions& options);
// At run time.
absl::Status SetLogLevel(absl::string_view level);

// `text` with control characters, as JSON escapes them: "\n" for a line feed.
std::string OneLine(absl::string_view text);

}  // namespace beamd

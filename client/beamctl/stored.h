// Commands on what a daemon has stored: carried elsewhere, explained, tried again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/beamctl/lock_file.h"
#include "client/cc/client.h"

namespace beamd {

// What a command put somewhere.
struct Written {
  uint64_t count = 0;  // records, files
  uint64_t bytes = 0;
};

// Records and their graphs as lines of JSON (ExportedRecord); "-" is standard output or input.
absl::StatusOr<Written> ExportTo(Client& client, const std::string& path,
                                 const std::string& kernel_hash, const CallOptions& options);

// What became of a file's lines.
struct Imported {
  uint64_t sent = 0;  // of them, how many the daemon got
  uint64_t imported = 0;
  uint64_t kept = 0;  // they were there already
  uint64_t refused = 0;
  uint64_t unnamed = 0;  // of those, how many the daemon didn't name
};
// Told of each line that is refused, here or by the daemon: its number, from 1, and why.
using OnRefusedLine = std::function<void(int64_t line, const absl::Status& why)>;
// Tries every line but empty ones. Errors are the file's and the call's; then of `imported` only
// what was sent and what was refused here is known.
absl::Status ImportFrom(Client& client, const std::string& path, const OnRefusedLine& on_refused,
                        const CallOptions& options, Imported& imported);

// A line that was refused, on standard error, and as JSON on standard output too.
void PrintRefusedLine(const std::string& path, int64_t line, const absl::Status& why, bool json);
// What was taken, what was there already, what was refused.
void PrintImported(const Imported& imported, bool json);

// The record that `lock` says answers `key`, as it was locked. NotFound where the lock, or the
// daemon, hasn't it; FailedPrecondition where the daemon's has other opts.
absl::StatusOr<v1::Record> Locked(Client& client, const Lock& lock, const std::string& key,
                                  const CallOptions& options);

// What was tried, why the winner won and by how much.
void PrintExplained(const v1::ExplainResponse& explained, bool json);
void PrintReplayed(const v1::ReplayResponse& replayed, bool json);

// "JOB/NUMBER" is a job's candidate, anything else a record's key.
v1::ReplayRequest ReplayOf(const std::string& what, uint64_t generation);

}  // namespace beamd

// Commands on what a daemon has stored: carried elsewhere, explained, tried again.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/beamctl/lock_file.h"
#include "client/cc/client.h"

namespace beamd {

// Records and their graphs as lines of JSON (ExportedRecord); "-" is standard output or input.
absl::Status ExportTo(Client& client, const std::string& path, const std::string& kernel_hash,
                      const CallOptions& options);
absl::StatusOr<v1::ImportResponse> ImportFrom(Client& client, const std::string& path,
                                              const CallOptions& options);

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

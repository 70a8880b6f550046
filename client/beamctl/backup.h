// Backups of a store on disk, and stores made of them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/beamctl/stored.h"
#include "client/cc/client.h"

namespace beamd {

// Writes a copy of the daemon's store into `directory`, which must not be there yet: the store's
// files, and `DIGESTS`, which `Restore` checks them by:
//
//   beamd-backup 2           older ones have neither this line nor the last
//   HASH NAME                BLAKE3 of each file
//   end COUNT HASH           how many files there are, and BLAKE3 of the lines above
absl::StatusOr<Written> Backup(Client& client, const std::string& directory,
                               const CallOptions& options);

// Makes a store in `directory`, which must not be there yet, or be empty, of a backup. DataLoss
// where a file isn't what was backed up, or `DIGESTS` was cut short; FailedPrecondition for a
// format that a newer beamctl wrote. Then nothing is there.
// `warning` says what couldn't be checked of a backup by an older beamctl; it may stay empty.
absl::Status Restore(const std::string& backup, const std::string& directory, std::string& warning);

}  // namespace beamd

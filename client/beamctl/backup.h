// Backups of a store on disk, and stores made of them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cc/client.h"

namespace beamd {

// Writes a copy of the daemon's store into `directory`, which must not be there yet: the store's
// files, and `DIGESTS`, which `Restore` checks them by.
absl::Status Backup(Client& client, const std::string& directory, const CallOptions& options);

// Makes a store in `directory`, which must not be there yet, or be empty, of a backup. DataLoss
// where a file isn't what was backed up; then nothing is there.
absl::Status Restore(const std::string& backup, const std::string& directory);

}  // namespace beamd

// What can be read of a table file that is damaged: all but its damaged blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rocksdb/options.h"

namespace beamd {

struct Salvaged {
  int64_t entries = 0;
  int64_t gaps = 0;  // damaged parts that were passed over
};

// Entries in the order of their keys; an error of `visit` ends it. DataLoss where the file can't be
// opened as a table.
absl::StatusOr<Salvaged> SalvageTable(
    const rocksdb::Options& options, const std::string& file,
    const std::function<absl::Status(absl::string_view key, absl::string_view value)>& visit);

}  // namespace beamd

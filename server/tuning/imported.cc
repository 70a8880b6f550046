#include "server/tuning/imported.h"

#include <cmath>

#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "server/store/tuning_key.h"
#include "server/tuning/options.h"

namespace beamd {

absl::Status CheckImported(const v1::Record& record, const ParsedKernel& kernel) {
  if (kernel.hash.Hex() != record.kernel_hash()) {
    return InvalidArgument("the graph has another hash",
                           {.reason = "KERNEL_HASH", .field = "record.kernel_hash"});
  }
  BEAMD_ASSIGN_OR_RETURN(const v1::SearchOptions search,
                         ResolveOptions(record.search(), DefaultSearchOptions()));
  const Digest key = HashTuningKey(kernel.hash, KeyOptions(search), record.environment());
  if (key.Hex() != record.key()) {
    return InvalidArgument("the record has another key", {.reason = "KEY", .field = "record.key"});
  }
  if (!std::isnormal(record.best_s()) || record.best_s() < 0) {
    return InvalidArgument("the record has no time", {.reason = "TIME", .field = "record.best_s"});
  }
  if (!record.verification().verified()) {
    return InvalidArgument("the record's answer was never checked",
                           {.reason = "UNVERIFIED", .field = "record.verification"});
  }
  return absl::OkStatus();
}

}  // namespace beamd

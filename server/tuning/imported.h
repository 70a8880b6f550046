// Whether a record of elsewhere is what it says it is.
#pragma once

#include "absl/status/status.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/tuning/parse_kernel.h"

namespace beamd {

// Its hashes are those of what it holds, and its answer was timed and checked there. InvalidArgument
// naming the record's field otherwise. `kernel` is its graph.
absl::Status CheckImported(const v1::Record& record, const ParsedKernel& kernel);

}  // namespace beamd

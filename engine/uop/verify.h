// What a graph must be before anything looks at what it means: typed, shaped, and inside its buffers.
//
// Errors are InvalidArgument, "node 7 (REDUCE_AXIS): ...", with an ErrorDetail (engine/base) that
// carries the node, the field and a stable reason.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/error_detail.h"
#include "engine/uop/uop.h"

namespace beamd {

// InvalidArgument about node `index`, an `op`; `detail.node` is filled in.
absl::Status NodeError(int64_t index, Op op, absl::string_view what, ErrorDetail detail);

// What one node must be by itself: number of sources, argument, dtypes, and for views the ranks and
// the numbers in them. Every op of the wire has its rule; ops of the lowering have none and are
// refused. `index` is the number that errors give the node.
absl::Status VerifyNode(UOp u, int64_t index);

}  // namespace beamd

// What a graph must be before anything looks at what it means: typed, shaped, and inside its
// buffers.
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

// What a kernel that a client submits must be: a SINK of STOREs over ops of kernels, each node as
// VerifyNode wants it, shapes that fit, and under SEMANTICS' "Memory":
//   * no index proven or enumerated to lie outside of its buffer, or of the view that it counts in,
//     for any value of the variables; sizes never negative;
//   * a load of a slot that the kernel stores reads what the same point stores, or what none does.
// Bounds decide first; what they can't is enumerated up to a fixed amount of work a kernel, and
// accepted where that doesn't reach: it must run with checked accesses.
//
// A node is named by its first place in `wire_nodes` (what FromProto gives), else by its place in
// Toposort, which is its number in the text form.
absl::Status VerifyKernel(UOp sink, std::span<const UOp> wire_nodes = {});

}  // namespace beamd

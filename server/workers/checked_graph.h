// The kernel of a context, in the child that works on it.
#pragma once

#include "absl/status/statusor.h"
#include "engine/uop/uop.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

// FromProto without limits of a child's own: the daemon has checked the graph by those that it was
// started with, which a child doesn't know.
absl::StatusOr<UOp> CheckedGraph(const v1::Graph& message, UOpGraph& graph);

}  // namespace beamd

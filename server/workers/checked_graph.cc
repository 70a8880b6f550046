#include "server/workers/checked_graph.h"

#include <algorithm>

#include "engine/uop/wire.h"

namespace beamd {

absl::StatusOr<UOp> CheckedGraph(const v1::Graph& message, UOpGraph& graph) {
  // The others can't be set above their defaults (server/config).
  GraphLimits limits;
  limits.max_nodes = std::max(limits.max_nodes, message.nodes_size());
  return FromProto(message, graph, limits);
}

}  // namespace beamd

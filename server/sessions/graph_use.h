// What a tensor graph on the wire wants of its session, read off the message alone: the runner
// parses and verifies it, and only where its structure is new.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "proto/beamd/v1/ast.pb.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

struct GraphInput {
  uint64_t handle = 0;
  // The first node that names it.
  int node = 0;
  v1::Scalar dtype = v1::SCALAR_VOID;
  std::vector<int64_t> shape;
  // An ASSIGN changes it.
  bool written = false;
};

struct GraphUse {
  // BUFFER nodes name `inputs` by their place.
  v1::Graph graph;
  std::vector<GraphInput> inputs;
  // Bounds, by name.
  absl::flat_hash_map<std::string, std::pair<int64_t, int64_t>> variables;
  // Of `graph`: graphs of one structure, whatever their handles, have one. Clients that write the
  // same graph in another order have another.
  Digest structure;
  // About what the graph takes in memory.
  int64_t size_bytes = 0;
};

// InvalidArgument naming a node: a handle whose BUFFERs differ; ResourceExhausted where the graph
// has more than `max_nodes`. Anything else that is wrong with the graph is left to who parses it.
absl::StatusOr<GraphUse> ReadGraphUse(v1::Graph graph, int64_t max_nodes);

}  // namespace beamd

// A client's graph as the engine wants it: parsed, checked, in canonical form, and named.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "engine/uop/uop.h"
#include "engine/uop/wire.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

// The graph is confined to the thread that holds this.
struct ParsedKernel {
  std::unique_ptr<UOpGraph> graph;
  UOp sink;  // canonical: requests for one kernel search the same graph, however they wrote it
  Digest hash;
  v1::Graph canonical;  // `sink` on the wire
};

struct KernelLimits {
  GraphLimits graph;
  // Of all buffers together, by bounds of what is touched.
  int64_t buffer_bytes = std::numeric_limits<int64_t>::max();
};

// InvalidArgument naming the node of `message` that is at fault.
absl::StatusOr<ParsedKernel> ParseKernel(const v1::Graph& message, const KernelLimits& limits = {});

}  // namespace beamd

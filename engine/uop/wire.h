// Graphs as they travel and are kept (proto/beamd/v1/ast.proto), and back.
//
// Order: KernelFromProto for what claims to be a kernel; FromProto alone for tensor graphs.
// Error: InvalidArgument naming the node by its index in the message, with an ErrorDetail; never a
//        crash, whatever the message holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/uop/uop.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

// What a client's graph may be at most.
struct GraphLimits {
  int max_nodes = 20000;
  int max_rank = 32;
  int max_views = 32;                       // in one node
  int64_t max_elements = int64_t{1} << 53;  // of one shape, and of one buffer
  int max_buffers = 1024;                   // and slots are below it
  int max_name_bytes = 256;
};

// The graph's root. Checks what the message says about structure (order, reachability, versions,
// enumerators, unknown fields, limits), then each node by VerifyNode. Nodes written twice become
// one; constants round or wrap to their dtype, as folded ones do. `nodes`, if given, gets the UOp
// of each message node.
absl::StatusOr<UOp> FromProto(const v1::Graph& message, UOpGraph& graph,
                              const GraphLimits& limits = {}, std::vector<UOp>* nodes = nullptr);

// FromProto, then VerifyKernel with the message's node numbers.
absl::StatusOr<UOp> KernelFromProto(const v1::Graph& message, UOpGraph& graph,
                                    const GraphLimits& limits = {});

// Nodes in the order of Toposort. The graph holds ops of the wire only.
v1::Graph ToProto(UOp root);

// A message from its bytes, or from protobuf's JSON mapping. InvalidArgument where it is neither or
// names a field or an enumerator that we don't know.
absl::StatusOr<v1::Graph> GraphFromBytes(absl::string_view bytes);
absl::StatusOr<v1::Graph> GraphFromJson(absl::string_view json);
std::string GraphToJson(const v1::Graph& message);

}  // namespace beamd

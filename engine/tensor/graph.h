// Tensor graphs (engine/shape/verify_tensor.h) to tensors and back: what a client sends becomes lazy
// values that can be scheduled, and what a program builds can be sent.
//
// Both ways go over lazy buffers, since a node of a graph is one operation of theirs; the tensors
// that come out are leaves to autograd.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/shape/verify_tensor.h"
#include "engine/tensor/tensor.h"
#include "engine/uop/uop.h"

namespace beamd {

struct GraphTensors {
  std::vector<Tensor> outputs;                    // the SINK's sources, or the root
  absl::flat_hash_map<uint64_t, Tensor> buffers;  // by BUFFER id: what was given, or made
};

// The values of the graph under `root`, which is verified first. A BUFFER is the tensor of its id in
// `inputs`, or else is made (Tensor::Empty), as every EMPTY is. Values that variables have by BIND
// are bound in the context. InvalidArgument names the node, as VerifyTensorGraph does: what that
// refuses; an input of another shape, dtype or device; an ASSIGN into an input that isn't realised.
absl::StatusOr<GraphTensors> TensorsFromGraph(
    LazyContext& context, UOp root, const absl::flat_hash_map<uint64_t, Tensor>& inputs = {},
    std::span<const UOp> wire_nodes = {}, const TensorGraphLimits& limits = {});

struct TensorGraph {
  UOp root;                         // a SINK of the outputs
  std::vector<LazyBuffer> buffers;  // by BUFFER id: the realised values that the graph begins with
};

// The graph that computes `outputs`, made in `graph`: a node a lazy operation, views as movements.
// A device is named where it isn't the context's; a variable that is bound is a BIND.
// Unimplemented: a symbolic view that no movements are proven to make. A failed output's status.
absl::StatusOr<TensorGraph> GraphFromTensors(std::span<const Tensor> outputs, UOpGraph& graph);

}  // namespace beamd

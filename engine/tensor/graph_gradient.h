// Gradients of a tensor graph (engine/shape/verify_tensor.h), as a tensor graph: reverse mode, a
// rule an op.
//
// The rules are engine/autograd's where an op has a Function there, edges included; the README's
// table has them all. Integers carry no gradient: nothing goes through a comparison, a cast to an
// integer, a bitcast, or a size.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/shape/verify_tensor.h"
#include "engine/uop/uop.h"

namespace beamd {

// A SINK, in the root's graph, of the outputs of `root` (its SINK's sources, or itself) and behind
// them the gradients of output 0 with respect to the BUFFERs of these ids, in order: each of its
// buffer's shape and dtype, zeros where output 0 doesn't depend on it. No gradient is a BUFFER or
// an ASSIGN itself. Where the graph assigns to a buffer, its gradient is that of what it held
// before.
//
// The root is verified first, with `limits` and `device` as VerifyTensorGraph takes them; the
// result passes it too, but has up to nine times as many nodes.
//
// InvalidArgument with an ErrorDetail (engine/uop/verify.h), naming the node: output 0 isn't one
// element of a float, or is memory that the graph assigns to. Naming "gradients[i]": an id that no
// BUFFER has, that stands there twice, or of a buffer that holds no floats. Unimplemented: an
// ASSIGN into a symbolic view that no movements are proven to make.
absl::StatusOr<UOp> GradientGraph(UOp root, std::span<const uint64_t> buffers,
                                  std::span<const UOp> wire_nodes = {},
                                  const TensorGraphLimits& limits = {},
                                  const std::string& device = "");

}  // namespace beamd

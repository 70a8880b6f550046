// What a tensor graph that a client submits must be, and the shapes of its nodes.
//
// A tensor graph is a value, or a SINK of values, over
//   * BUFFER (a client's, by id) and EMPTY (memory without content, by id too): their shape stands
//     in the argument. The same id is the same memory, so it has one description;
//   * CONST, DEFINE_VAR and BIND (a variable and the value it has): values without axes. Integer
//     arithmetic over them may be a size;
//   * RESHAPE, EXPAND, PERMUTE, PAD, SHRINK, FLIP, CONTIGUOUS, COPY, CAST, BITCAST, REDUCE_AXIS
//     (reduced axes stay, with size 1), and the ALU ops, whose sources have one shape: nothing is
//     broadcast silently;
//   * ASSIGN(target, value): writes the value into a BUFFER or EMPTY, or into a view of one, made by
//     RESHAPE, PERMUTE, SHRINK and FLIP; with view_arg, into that view of a BUFFER or EMPTY. Its
//     value is what the target, all of it, holds then. Memory is assigned once a graph: nothing
//     says which of two would be first. Other nodes read what was there before, but an output that
//     is the memory itself, or RESHAPEs of it, is what it holds in the end. Any other output reads
//     what was before, as the graph is written: a part, a permuted, expanded or padded view, a
//     CONTIGUOUS, and a node that computes nothing (a MUL by 1, a CAST to the same dtype).
//
// A size that is an expression must fit for every value of its variables: equal, inside or not
// negative where that is proven, refused where it is not.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/shape/view.h"
#include "engine/uop/uop.h"

namespace beamd {

struct TensorGraphLimits {
  int max_nodes = 20000;
  int max_rank = 32;
  int64_t max_elements = (int64_t{1} << 40) - 1;  // of one value
  int max_size_nodes = 64;                        // of one size that is an expression
};

// What VerifyTensorGraph finds about the nodes of one graph.
class TensorGraphInfo {
 public:
  struct Node {
    std::optional<Shape> shape;  // SINK has none
    int device = kAnyDevice;
    UOp buffer;                // what this is a view of that can be assigned to
    std::optional<SInt> size;  // of a value that may be a size
    int size_nodes = 0;        // of its expression
    int64_t index = -1;        // the number that errors give the node
  };
  static constexpr int kAnyDevice = -1;

  // Nodes of the graph, sources before users.
  const std::vector<UOp>& nodes() const { return nodes_; }
  const Node& of(UOp u) const { return table_[u.id()]; }
  const Shape& shape(UOp u) const { return *of(u).shape; }
  // Where the value lies; empty: wherever its user wants it (a constant), or where BUFFER says
  // nothing and the graph was verified without a device.
  const std::string& device(UOp u) const;
  // Values of variables that a BIND gives.
  const std::vector<UOp>& binds() const { return binds_; }

 private:
  friend class TensorCheck;
  std::vector<UOp> nodes_;
  std::vector<Node> table_;  // by id
  std::vector<std::string> devices_;
  std::vector<UOp> binds_;
};

// Each node as VerifyNode wants it, and all as above. `device` is the one that a BUFFER or an EMPTY
// without a device lies on. InvalidArgument with an ErrorDetail (engine/uop/verify.h): a node is
// named by its first place in `wire_nodes` (what FromProto gives), else by its place in Toposort.
absl::StatusOr<TensorGraphInfo> VerifyTensorGraph(UOp root, std::span<const UOp> wire_nodes = {},
                                                  const TensorGraphLimits& limits = {},
                                                  const std::string& device = "");

// Whether the graph under `root` claims to be a kernel (a SINK of STOREs) and no tensor graph.
bool IsKernelGraph(UOp root);

}  // namespace beamd

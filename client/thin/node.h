// What a Tensor is: an operation over others. For this folder's sources.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/thin/dtype.h"
#include "client/thin/session.h"
#include "client/thin/size.h"
#include "client/thin/tensor.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd::thin::internal {

// Values on a server, and what of them is known here.
struct Memory {
  explicit Memory(std::shared_ptr<Buffer> in) : buffer(std::move(in)) {}
  const std::shared_ptr<Buffer> buffer;
  std::mutex mutex;
  std::string content;  // guarded by mutex: all of it, or nothing
};

// Everything but `state` stays as it was made.
struct Node {
  Node() = default;
  ~Node();  // without recursion, however deep its sources are
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  absl::Status status;
  v1::Op op = v1::OP_UNSPECIFIED;  // BUFFER: memory, here or there
  DType dtype = v1::SCALAR_VOID;
  Shape shape;
  // RESHAPE, EXPAND: the new shape; PERMUTE: the order; FLIP: the axes; PAD, SHRINK: two an axis.
  Shape sizes;
  v1::Op reduce = v1::OP_UNSPECIFIED;  // REDUCE_AXIS
  std::vector<uint32_t> axes;
  double float_value = 0;  // CONST
  int64_t int_value = 0;
  bool weak = false;  // CONST: a number, whose dtype is what it meets
  Variable variable;  // DEFINE_VAR

  struct State {
    std::vector<NodePtr> src;                    // gone once there is memory
    std::shared_ptr<const std::string> content;  // of a BUFFER that wasn't sent yet
    std::shared_ptr<Memory> memory;              // of a BUFFER that was, or what was run
    NodePtr instead;                             // of an ASSIGN that happened: its target
  };
  State Look() const {
    const std::lock_guard lock(mutex);
    return state;
  }
  void Set(State to) const {
    const std::lock_guard lock(mutex);
    std::swap(state, to);
  }

  mutable std::mutex sending;  // held while the content is sent
  mutable std::mutex mutex;
  mutable State state;  // guarded by mutex
};

// A failed tensor: "matmul: ...".
Tensor Failed(absl::string_view operation, absl::string_view why);
// The tensor of `node`, checked for sizes that no server takes.
Tensor Made(absl::string_view operation, std::shared_ptr<Node> node);
// An operation over tensors that are ok.
Tensor Operation(absl::string_view name, v1::Op op, DType dtype, Shape shape,
                 const std::vector<Tensor>& src);
// Two operands as one dtype and shape; both failed where they aren't.
std::pair<Tensor, Tensor> Met(absl::string_view operation, const Tensor& a, const Tensor& b);
// nullopt where they don't broadcast.
std::optional<Shape> Broadcast(const Shape& a, const Shape& b);
// Each axis as a number of 0..ndim, sorted; all of them where none is named. Error: one that isn't
// there, or twice.
absl::StatusOr<std::vector<int>> CheckedAxes(const Axes& axes, int ndim, bool none_is_all);
// A size as an int32 tensor without axes.
Tensor TensorOf(const Size& size);

// The graph that computes `outputs`, a SINK of them. `id_of` gives the id of a BUFFER node's memory.
struct Written {
  v1::Graph graph;
  std::vector<NodePtr> assigns;  // the ASSIGNs that stand in it
};
absl::StatusOr<Written> WriteGraph(
    const std::vector<NodePtr>& outputs,
    const std::function<absl::StatusOr<uint64_t>(const NodePtr&)>& id_of);

}  // namespace beamd::thin::internal

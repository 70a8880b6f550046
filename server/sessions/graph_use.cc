#include "server/sessions/graph_use.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"

namespace beamd {
namespace {

bool IsMovement(v1::Op op) {
  return op == v1::OP_RESHAPE || op == v1::OP_PERMUTE || op == v1::OP_SHRINK || op == v1::OP_FLIP;
}

}  // namespace

absl::StatusOr<GraphUse> ReadGraphUse(v1::Graph graph, int64_t max_nodes) {
  if (graph.nodes_size() > max_nodes) {
    return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                          "the graph has ", graph.nodes_size(), " nodes, over ", max_nodes)),
                      {.reason = "NODES",
                       .field = "graph.nodes",
                       .limit = max_nodes,
                       .value = graph.nodes_size()});
  }
  GraphUse use;
  // By handle, and of EMPTYs by their id: those are other memory, so they get other numbers.
  absl::flat_hash_map<uint64_t, uint64_t> place_of, empty_of;
  constexpr int kNoInput = -1;
  // By node: the input that it is, or is a view of.
  std::vector<int> views(static_cast<size_t>(graph.nodes_size()), kNoInput);
  for (int i = 0; i < graph.nodes_size(); ++i) {
    v1::Node& node = *graph.mutable_nodes(i);
    if (node.op() == v1::OP_BUFFER && node.has_buffer_arg()) {
      v1::Buffer& buffer = *node.mutable_buffer_arg();
      const auto [at, fresh] = place_of.try_emplace(buffer.id(), use.inputs.size());
      GraphInput input{.handle = buffer.id(), .node = i, .dtype = node.dtype().scalar()};
      input.shape.assign(buffer.shape().values().begin(), buffer.shape().values().end());
      if (fresh) {
        use.inputs.push_back(std::move(input));
      } else if (const GraphInput& first = use.inputs[at->second];
                 first.dtype != input.dtype || first.shape != input.shape) {
        return InvalidArgument(absl::StrCat("node ", i, ": BUFFER ", buffer.id(),
                                            " is another one than at node ", first.node),
                               {.reason = "BUFFER", .node = i, .field = "buffer_arg"});
      }
      buffer.set_id(at->second);
      views[static_cast<size_t>(i)] = static_cast<int>(at->second);
    } else if (node.op() == v1::OP_DEFINE_VAR && node.has_var_arg()) {
      use.variables.try_emplace(node.var_arg().name(), node.var_arg().min(), node.var_arg().max());
    } else if (node.src_size() > 0 && node.src(0) < static_cast<uint32_t>(i) &&
               (IsMovement(node.op()) || node.op() == v1::OP_ASSIGN)) {
      const int input = views[node.src(0)];
      views[static_cast<size_t>(i)] = input;
      if (node.op() == v1::OP_ASSIGN && input != kNoInput) {
        use.inputs[static_cast<size_t>(input)].written = true;
      }
    }
  }
  for (v1::Node& node : *graph.mutable_nodes()) {
    if (node.op() != v1::OP_EMPTY || !node.has_buffer_arg()) continue;
    v1::Buffer& buffer = *node.mutable_buffer_arg();
    const uint64_t next = use.inputs.size() + empty_of.size();
    buffer.set_id(empty_of.try_emplace(buffer.id(), next).first->second);
  }
  const std::string bytes = graph.SerializeAsString();
  // A number is a byte there at least, and eight here; a node is a message.
  constexpr int64_t kNode = 256;
  use.size_bytes = kNode * graph.nodes_size() + 8 * static_cast<int64_t>(bytes.size());
  use.structure = HashBytes(bytes);
  use.graph = std::move(graph);
  return use;
}

}  // namespace beamd

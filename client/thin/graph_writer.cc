// Expressions as tensor graphs.
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/thin/macros.h"
#include "client/thin/node.h"

namespace beamd::thin::internal {
namespace {

class GraphWriter {
 public:
  explicit GraphWriter(const std::function<absl::StatusOr<uint64_t>(const NodePtr&)>& id_of)
      : id_of_(id_of) {}

  absl::StatusOr<Written> Write(const std::vector<NodePtr>& outputs) {
    std::vector<uint32_t> src;
    for (const NodePtr& output : outputs) {
      BEAMD_THIN_RETURN_IF_ERROR(WriteBelow(output));
      src.push_back(index_.at(output.get()));
    }
    v1::Node* const sink = written_.graph.add_nodes();
    sink->set_op(v1::OP_SINK);
    sink->mutable_dtype();
    sink->mutable_src()->Add(src.begin(), src.end());
    return std::move(written_);
  }

 private:
  // `output` and all that it needs, sources first.
  absl::Status WriteBelow(const NodePtr& output) {
    struct Visit {
      NodePtr node;
      Node::State state;
      size_t next = 0;
    };
    std::vector<Visit> path;
    const auto visit = [&](const NodePtr& node) {
      if (index_.contains(node.get())) return;
      Node::State state = node->Look();
      // What lies in memory is read there. A shape with a variable is another one in each run.
      const bool is_memory = node->op == v1::OP_BUFFER || (state.memory && AllNumbers(node->shape));
      if (is_memory) state.src.clear();
      if (state.instead) state.src = {state.instead};
      // It lives as long as what is written knows it by its address.
      kept_.push_back(node);
      path.push_back({node, std::move(state)});
    };
    visit(output);
    while (!path.empty()) {
      Visit& top = path.back();
      if (top.next < top.state.src.size()) {
        const NodePtr next = top.state.src[top.next++];
        visit(next);
        continue;
      }
      const Visit done = std::move(top);
      path.pop_back();
      if (index_.contains(done.node.get())) continue;
      if (done.state.instead) {
        index_[done.node.get()] = index_.at(done.state.instead.get());
        continue;
      }
      BEAMD_THIN_RETURN_IF_ERROR(WriteNode(done.node, done.state));
    }
    return absl::OkStatus();
  }

  absl::Status WriteNode(const NodePtr& at, const Node::State& state) {
    const Node& node = *at;
    if (node.op == v1::OP_BUFFER || (state.memory && AllNumbers(node.shape))) {
      return WriteBuffer(at);
    }
    if (node.op == v1::OP_DEFINE_VAR) {
      BEAMD_THIN_ASSIGN_OR_RETURN(index_[at.get()], Variable(node.variable));
      return absl::OkStatus();
    }
    v1::Node message;
    message.set_op(node.op);
    message.mutable_dtype()->set_scalar(node.dtype);
    for (const NodePtr& src : state.src) message.add_src(index_.at(src.get()));
    switch (node.op) {
      case v1::OP_CONST:
        if (IsFloat(node.dtype)) {
          message.set_float_arg(node.float_value);
        } else if (node.dtype == kBool) {
          message.set_bool_arg(node.float_value != 0);
        } else {
          message.set_int_arg(node.int_value);
        }
        break;
      case v1::OP_REDUCE_AXIS:
        message.mutable_reduce_arg()->set_op(node.reduce);
        message.mutable_reduce_arg()->mutable_axes()->Add(node.axes.begin(), node.axes.end());
        break;
      case v1::OP_RESHAPE:
      case v1::OP_EXPAND:
      case v1::OP_PERMUTE:
      case v1::OP_PAD:
      case v1::OP_SHRINK:
      case v1::OP_FLIP:
        BEAMD_THIN_RETURN_IF_ERROR(WriteSizes(node.sizes, message.mutable_ints_arg()));
        break;
      case v1::OP_ASSIGN:
        written_.assigns.push_back(at);
        break;
      default:
        break;
    }
    index_[at.get()] = Add(std::move(message));
    return absl::OkStatus();
  }

  // A memory has one node, however many tensors it is.
  absl::Status WriteBuffer(const NodePtr& at) {
    BEAMD_THIN_ASSIGN_OR_RETURN(const uint64_t id, id_of_(at));
    const auto [buffer, is_new] = buffers_.emplace(id, 0);
    if (is_new) {
      v1::Node message;
      message.set_op(v1::OP_BUFFER);
      message.mutable_dtype()->set_scalar(at->dtype);
      message.mutable_buffer_arg()->set_id(id);
      for (const int64_t size : Numbers(at->shape)) {
        message.mutable_buffer_arg()->mutable_shape()->add_values(size);
      }
      buffer->second = Add(std::move(message));
    }
    index_[at.get()] = buffer->second;
    return absl::OkStatus();
  }

  absl::Status WriteSizes(const Shape& sizes, v1::IntList* list) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Size& size = sizes[i];
      list->add_values(size.is_number() ? size.number() : 0);
      if (size.is_number()) continue;
      BEAMD_THIN_ASSIGN_OR_RETURN(const uint32_t node, Expression(size));
      v1::Symbolic* const symbolic = list->add_symbolic();
      symbolic->set_index(static_cast<uint32_t>(i));
      symbolic->set_node(node);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> Variable(const thin::Variable& variable) {
    const auto found = variables_.find(variable.name);
    if (found != variables_.end()) {
      if (found->second.first == variable) return found->second.second;
      return absl::InvalidArgumentError(
          absl::StrCat("the variable ", variable.name, " has two pairs of bounds"));
    }
    v1::Node message;
    message.set_op(v1::OP_DEFINE_VAR);
    message.mutable_dtype()->set_scalar(kInt32);
    message.mutable_var_arg()->set_name(variable.name);
    message.mutable_var_arg()->set_min(variable.min);
    message.mutable_var_arg()->set_max(variable.max);
    const uint32_t at = Add(std::move(message));
    variables_.emplace(variable.name, std::pair(variable, at));
    return at;
  }

  uint32_t Int(int64_t value) {
    v1::Node message;
    message.set_op(v1::OP_CONST);
    message.mutable_dtype()->set_scalar(kInt32);
    message.set_int_arg(value);
    return Add(std::move(message));
  }
  uint32_t IntAlu(v1::Op op, uint32_t a, uint32_t b) {
    v1::Node message;
    message.set_op(op);
    message.mutable_dtype()->set_scalar(kInt32);
    message.add_src(a);
    message.add_src(b);
    return Add(std::move(message));
  }

  // A size as int32 nodes.
  absl::StatusOr<uint32_t> Expression(const Size& size) {
    const std::string text = ToString(size);
    const auto found = sizes_.find(text);
    if (found != sizes_.end()) return found->second;
    if (size.max() > INT32_MAX || size.min() < INT32_MIN || size.constant() > INT32_MAX ||
        size.constant() < INT32_MIN) {
      return absl::InvalidArgumentError(absl::StrCat("the size ", text, " leaves 32 bits"));
    }
    std::optional<uint32_t> sum;
    for (const auto& [variable, factor] : size.terms()) {
      BEAMD_THIN_ASSIGN_OR_RETURN(uint32_t term, Variable(variable));
      if (factor != 1) term = IntAlu(v1::OP_MUL, term, Int(factor));
      sum = sum ? IntAlu(v1::OP_ADD, *sum, term) : term;
    }
    if (size.constant() != 0) sum = IntAlu(v1::OP_ADD, *sum, Int(size.constant()));
    sizes_.emplace(text, *sum);
    return *sum;
  }

  uint32_t Add(v1::Node message) {
    *written_.graph.add_nodes() = std::move(message);
    return static_cast<uint32_t>(written_.graph.nodes_size() - 1);
  }

  const std::function<absl::StatusOr<uint64_t>(const NodePtr&)>& id_of_;
  Written written_;
  std::vector<NodePtr> kept_;
  std::unordered_map<const Node*, uint32_t> index_;
  std::unordered_map<uint64_t, uint32_t> buffers_;  // by id
  std::unordered_map<std::string, std::pair<thin::Variable, uint32_t>> variables_;
  std::unordered_map<std::string, uint32_t> sizes_;  // by text
};

}  // namespace

absl::StatusOr<Written> WriteGraph(
    const std::vector<NodePtr>& outputs,
    const std::function<absl::StatusOr<uint64_t>(const NodePtr&)>& id_of) {
  return GraphWriter(id_of).Write(outputs);
}

}  // namespace beamd::thin::internal

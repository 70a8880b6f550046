// Running tensors: what they hold is sent, their graph is run, and they have buffers.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/thin/macros.h"
#include "client/thin/node.h"
#include "client/thin/tensor.h"

namespace beamd::thin {
namespace {

using internal::Memory;
using internal::Node;
using internal::NodePtr;
using internal::Written;

NodePtr WithoutInstead(NodePtr node) {
  for (;;) {
    const Node::State state = node->Look();
    if (!state.instead) return node;
    node = state.instead;
  }
}

absl::Status OtherSession() {
  return absl::FailedPreconditionError("a tensor's values lie in another session");
}

// The memory of a node in this session; sends what this program still holds. Null: it has none.
absl::StatusOr<std::shared_ptr<Memory>> MemoryOf(Session& session, const Node& node) {
  // Two threads that need it send it once.
  const std::lock_guard sending(node.sending);
  Node::State state = node.Look();
  if (state.memory) {
    if (state.memory->buffer->session() != session.id()) return OtherSession();
    return state.memory;
  }
  if (!state.content) return std::shared_ptr<Memory>();
  std::vector<int64_t> shape = Numbers(node.shape);
  BEAMD_THIN_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                              session.Upload(*state.content, node.dtype, shape));
  state.memory = std::make_shared<Memory>(std::move(buffer));
  state.content = nullptr;
  std::shared_ptr<Memory> memory = state.memory;
  node.Set(std::move(state));
  return memory;
}

class Runner {
 public:
  Runner(Session& session, const RunOptions& options) : session_(session), options_(options) {}

  absl::StatusOr<RunReport> Run(const std::vector<Tensor>& outputs) {
    BEAMD_THIN_ASSIGN_OR_RETURN(const std::vector<NodePtr> open, Open(outputs));
    RunReport report;
    if (open.empty()) return report;
    BEAMD_THIN_ASSIGN_OR_RETURN(
        const Written written,
        internal::WriteGraph(open, [this](const NodePtr& node) { return IdOf(node); }));
    v1::RunRequest request;
    *request.mutable_graph() = written.graph;
    for (const Tensor& t : options_.gradients_of) {
      BEAMD_THIN_ASSIGN_OR_RETURN(const uint64_t id, IdOf(WithoutInstead(t.node())));
      request.add_gradients(id);
    }
    for (const auto& [name, value] : options_.variables) {
      (*request.mutable_variables())[name] = value;
    }
    request.set_opts(options_.opts);
    request.set_match(options_.match);
    request.set_profile(options_.profile);
    request.set_inline_bytes(options_.inline_bytes);
    // What is known here of memory that is written is no longer so, whatever comes of the run.
    for (const NodePtr& assign : written.assigns) ForgetContent(assign);
    BEAMD_THIN_ASSIGN_OR_RETURN(v1::RunResponse response,
                                session_.Run(std::move(request), options_.timeout));
    const size_t wanted = open.size() + options_.gradients_of.size();
    if (static_cast<size_t>(response.outputs_size()) != wanted) {
      return absl::InternalError(
          absl::StrCat("the server gave ", response.outputs_size(), " outputs for ", wanted));
    }
    for (const NodePtr& assign : written.assigns) Happened(*assign);
    for (size_t i = 0; i < wanted; ++i) {
      const std::shared_ptr<Memory> memory = Take(*response.mutable_outputs(static_cast<int>(i)));
      if (i >= open.size()) {
        auto node = std::make_shared<Node>();
        node->op = v1::OP_BUFFER;
        node->dtype = memory->buffer->dtype();
        node->shape.assign(memory->buffer->shape().begin(), memory->buffer->shape().end());
        node->state.memory = memory;
        report.gradients.emplace_back(NodePtr(std::move(node)));
      } else if (open[i]->op != v1::OP_ASSIGN) {
        Computed(*open[i], memory);
      }
    }
    report.kernels.assign(std::make_move_iterator(response.mutable_kernels()->begin()),
                          std::make_move_iterator(response.mutable_kernels()->end()));
    report.statistics = std::move(*response.mutable_statistics());
    return report;
  }

 private:
  // The outputs that are to be computed, each once.
  absl::StatusOr<std::vector<NodePtr>> Open(const std::vector<Tensor>& outputs) {
    std::vector<NodePtr> open;
    for (const Tensor& output : outputs) BEAMD_THIN_RETURN_IF_ERROR(output.status());
    for (const Tensor& t : options_.gradients_of) {
      BEAMD_THIN_RETURN_IF_ERROR(t.status());
      const NodePtr node = WithoutInstead(t.node());
      if (node->op != v1::OP_BUFFER && !node->Look().memory) {
        return absl::InvalidArgumentError(
            "gradients are of memory: a tensor of this program's data, or one that was run");
      }
    }
    for (const Tensor& output : outputs) {
      const NodePtr node = WithoutInstead(output.node());
      // An ASSIGN that happened has no values of its own.
      if (node != output.node()) continue;
      const Node::State state = node->Look();
      const bool is_there = node->op == v1::OP_BUFFER || (state.memory && AllNumbers(node->shape));
      if (is_there && !options_.gradients_of.empty() && &output == &outputs[0]) {
        return absl::FailedPreconditionError(
            "gradients of a tensor that was run: what it was computed from is no longer known");
      }
      if (is_there) {
        BEAMD_THIN_RETURN_IF_ERROR(MemoryOf(session_, *node).status());
      } else if (std::ranges::find(open, node) == open.end()) {
        open.push_back(node);
      }
    }
    if (open.empty() && !options_.gradients_of.empty()) {
      return absl::InvalidArgumentError("gradients of nothing: there is no output");
    }
    return open;
  }

  absl::StatusOr<uint64_t> IdOf(const NodePtr& node) {
    BEAMD_THIN_ASSIGN_OR_RETURN(const std::shared_ptr<Memory> memory, MemoryOf(session_, *node));
    const uint64_t handle = memory->buffer->handle();
    known_.emplace(handle, memory);
    return handle;
  }

  // The memory that an ASSIGN's target is a part of.
  static void ForgetContent(const NodePtr& assign) {
    NodePtr node = assign;
    for (;;) {
      const Node::State state = node->Look();
      if (state.memory) {
        const std::lock_guard lock(state.memory->mutex);
        state.memory->content.clear();
        return;
      }
      if (state.instead) {
        node = state.instead;
      } else if (!state.src.empty()) {
        node = state.src[0];
      } else {
        return;
      }
    }
  }

  static void Happened(const Node& assign) {
    Node::State state = assign.Look();
    if (state.src.empty()) return;  // another thread's run was it
    state.instead = state.src[0];
    state.src.clear();
    assign.Set(std::move(state));
  }

  static void Computed(const Node& node, std::shared_ptr<Memory> memory) {
    Node::State state = node.Look();
    state.memory = std::move(memory);
    if (AllNumbers(node.shape)) state.src.clear();
    node.Set(std::move(state));
  }

  std::shared_ptr<Memory> Take(v1::RunOutput& output) {
    const auto found = known_.find(output.buffer().handle());
    std::shared_ptr<Memory> memory;
    if (found != known_.end()) {
      memory = found->second;
    } else {
      memory = std::make_shared<Memory>(session_.Adopt(output.buffer()));
      known_.emplace(output.buffer().handle(), memory);
    }
    if (output.has_data()) {
      const std::lock_guard lock(memory->mutex);
      memory->content = std::move(*output.mutable_data());
    }
    return memory;
  }

  Session& session_;
  const RunOptions& options_;
  std::unordered_map<uint64_t, std::shared_ptr<Memory>> known_;  // by handle
};

}  // namespace

absl::StatusOr<RunReport> Compute(Session& session, const std::vector<Tensor>& outputs,
                                  const RunOptions& options) {
  return Runner(session, options).Run(outputs);
}

std::future<absl::StatusOr<RunReport>> ComputeAsync(Session& session, std::vector<Tensor> outputs,
                                                    RunOptions options) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<RunReport>>>();
  std::future<absl::StatusOr<RunReport>> future = promise->get_future();
  session.Post(
      [&session, promise, outputs = std::move(outputs), options = std::move(options)](bool open) {
        promise->set_value(open ? Compute(session, outputs, options)
                                : absl::CancelledError("the session is closed"));
      });
  return future;
}

absl::StatusOr<std::string> Tensor::ToBytes(Session& session) const {
  BEAMD_THIN_RETURN_IF_ERROR(status());
  Node::State state = WithoutInstead(node_)->Look();
  if (!state.memory && state.content) return *state.content;
  if (!state.memory) {
    // An assigned part of memory is copied anew each time: it may be assigned to again.
    if (node_->op == v1::OP_ASSIGN) {
      BEAMD_THIN_RETURN_IF_ERROR(Compute(session, {*this}).status());
    }
    const NodePtr node = WithoutInstead(node_);
    state = node->Look();
    if (!state.memory) {
      const Tensor whole = node_->op == v1::OP_ASSIGN ? Tensor(node).Contiguous() : *this;
      BEAMD_THIN_RETURN_IF_ERROR(Compute(session, {whole}).status());
      state = whole.node()->Look();
    }
  }
  if (!state.memory) return absl::InternalError("what was run has no memory");
  if (state.memory->buffer->session() != session.id()) return OtherSession();
  {
    const std::lock_guard lock(state.memory->mutex);
    if (!state.memory->content.empty()) return state.memory->content;
  }
  return session.Download(*state.memory->buffer);
}

absl::StatusOr<v1::Graph> ToGraph(const std::vector<Tensor>& outputs) {
  std::vector<NodePtr> nodes;
  for (const Tensor& output : outputs) {
    BEAMD_THIN_RETURN_IF_ERROR(output.status());
    nodes.push_back(output.node());
  }
  std::unordered_map<const void*, uint64_t> ids;
  BEAMD_THIN_ASSIGN_OR_RETURN(
      Written written,
      internal::WriteGraph(nodes, [&ids](const NodePtr& node) -> absl::StatusOr<uint64_t> {
        const Node::State state = node->Look();
        const void* const memory = state.memory ? static_cast<const void*>(state.memory.get())
                                                : static_cast<const void*>(node.get());
        return ids.emplace(memory, ids.size()).first->second;
      }));
  return std::move(written.graph);
}

}  // namespace beamd::thin

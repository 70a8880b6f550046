#include "tests/testing/unfused.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/base/status.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/uop.h"

namespace beamd::testing {
namespace {

// The bytes of a buffer, which are made (as zeros) where there are none.
std::byte* Bytes(TensorBuffer& buffer) {
  TensorBuffer& owner = buffer.parent ? *buffer.parent : buffer;
  if (owner.memory == nullptr) {
    owner.memory = std::make_shared<HostMemory>(
        std::vector<std::byte>(static_cast<size_t>(owner.size_bytes())));
  }
  return static_cast<HostMemory&>(*owner.memory).bytes.data() + buffer.offset_bytes;
}

// The kernel that computes one base of what its sources hold.
class NodeKernel {
 public:
  explicit NodeKernel(const LazyBuffer& base) : base_(base) {}

  absl::Status Run() {
    const bool assigns = base_.op() == Op::kAssign;
    SlotOf(base_.buffer());
    std::vector<UOp> values;
    for (const LazyBuffer& source : base_.srcs()) values.push_back(Seen(source));
    // ASSIGN's first source is its target, whose place in memory is the result's.
    const LazyBuffer& shaped = assigns ? base_.srcs()[1] : base_;
    ShapeTracker stored = ShapeTracker::FromShape(shaped.shape());
    if (const auto* view = std::get_if<std::shared_ptr<const ShapeTracker>>(&base_.arg())) {
      stored = **view;
    }
    const UOp store =
        graph_.Make(Op::kStore, DType(),
                    {Global(0), stored.ToUOp(graph_), assigns ? values[1] : Value(values)});
    return Evaluate(graph_.Make(Op::kSink, DType(), {store}));
  }

 private:
  uint64_t SlotOf(const std::shared_ptr<TensorBuffer>& buffer) {
    const auto known = std::ranges::find(buffers_, buffer);
    if (known != buffers_.end()) return static_cast<uint64_t>(known - buffers_.begin());
    buffers_.push_back(buffer);
    return buffers_.size() - 1;
  }

  UOp Global(uint64_t slot) {
    BufferArg arg;
    arg.id = slot;
    return graph_.Make(Op::kDefineGlobal, buffers_[slot]->pointer(), {},
                       graph_.Intern(std::move(arg)));
  }

  UOp Seen(const LazyBuffer& source) {
    const LazyBuffer base = source.base();
    const UOp view = source.st().ToUOp(graph_);
    const Scalar s = base.dtype();
    if (base.op() != Op::kConst) {
      return graph_.Make(Op::kLoad, s, {Global(SlotOf(base.buffer())), view});
    }
    UOp value;
    if (const UOp* expression = std::get_if<UOp>(&base.arg())) {
      value = Cast(graph_.Import(*expression), s);
    } else {
      const ConstValue v = base.const_value();
      value = v.is_float() ? graph_.ConstFloat(s, v.as_float()) : graph_.Const(s, v.as_int());
    }
    return Where(graph_.Make(Op::kValid, Scalar::kBool, {view}), value, graph_.Const(s, 0));
  }

  UOp Value(const std::vector<UOp>& sources) {
    switch (base_.op()) {
      case Op::kContiguous:
      case Op::kCopy:
      case Op::kBufferView:
        return sources[0];
      case Op::kReduceAxis:
        return graph_.Make(Op::kReduceAxis, base_.dtype(), sources,
                           graph_.Intern(std::get<ReduceArg>(base_.arg())));
      default:
        return graph_.Make(base_.op(), base_.dtype(), sources);
    }
  }

  absl::Status Evaluate(UOp sink) {
    EvalInputs inputs;
    for (const auto& [name, value] : base_.context().bindings()) inputs.variables[name] = value;
    for (uint64_t slot = 0; slot < buffers_.size(); ++slot) {
      TensorBuffer& buffer = *buffers_[slot];
      inputs.buffers[slot] = {Bytes(buffer), buffer.size_elements, buffer.dtype};
    }
    BEAMD_ASSIGN_OR_RETURN(Evaluator evaluator, Evaluator::Create(sink, std::move(inputs)));
    BEAMD_ASSIGN_OR_RETURN(const std::vector<EvalValue> values, evaluator.EvaluateAll(0));
    const Scalar s = buffers_[0]->dtype;
    std::byte* at = Bytes(*buffers_[0]);
    for (const EvalValue& value : values) {
      if (IsFloat(s)) {
        StoreFloat(value.real, s, at);
      } else {
        StoreInt(value.integer, s, at);
      }
      at += SizeBytes(s);
    }
    return absl::OkStatus();
  }

  const LazyBuffer& base_;
  UOpGraph graph_;
  std::vector<std::shared_ptr<TensorBuffer>> buffers_;
};

}  // namespace

absl::Status UnfusedRealizer::Realize(std::span<const LazyBuffer> roots) {
  absl::flat_hash_set<const LazyNode*> seen;
  std::vector<LazyBuffer> needed, open;
  for (const LazyBuffer& root : roots) open.push_back(root.base());
  while (!open.empty()) {
    const LazyBuffer base = open.back();
    open.pop_back();
    if (base.is_realized() || base.op() == Op::kConst || !seen.insert(base.node()).second) continue;
    for (const LazyBuffer& source : base.srcs()) open.push_back(source.base());
    needed.push_back(base);
  }
  std::ranges::sort(needed, {}, &LazyBuffer::id);
  for (const LazyBuffer& base : needed) {
    BEAMD_RETURN_IF_ERROR(NodeKernel(base).Run());
    base.MarkRealized();
  }
  return absl::OkStatus();
}

absl::Status UnfusedRealizer::Write(TensorBuffer& buffer, std::span<const std::byte> bytes) {
  std::memcpy(Bytes(buffer), bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status UnfusedRealizer::Read(const TensorBuffer& buffer, std::span<std::byte> bytes) {
  if (!buffer.allocated()) return absl::FailedPreconditionError("the buffer has no memory");
  std::memcpy(bytes.data(), Bytes(const_cast<TensorBuffer&>(buffer)), bytes.size());
  return absl::OkStatus();
}

}  // namespace beamd::testing

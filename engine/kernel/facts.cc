#include "engine/kernel/facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

using TrackerPtr = std::shared_ptr<const ShapeTracker>;

// Nodes whose value at 0 isn't 0, as 0.10.0 sees it (ops.py, UnsafePad).
constexpr OpSet kUnsafePad = Op::kRecip | Op::kLog2 | Op::kExp2 | Op::kIdiv;

// Every node below `root`, each once: a node's sources, then what is below each of them. 0.10.0
// numbers buffers in this order (ops.py, UOp.parents).
std::vector<UOp> NodesBelow(UOp root) {
  std::vector<UOp> nodes, stack = {root};
  std::vector<bool> listed(root.graph().size()), opened(root.graph().size());
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (opened[u.id()]) continue;
    opened[u.id()] = true;
    for (UOp s : u.src()) {
      if (!listed[s.id()]) nodes.push_back(s);
      listed[s.id()] = true;
    }
    for (int i = u.src_count() - 1; i >= 0; --i) stack.push_back(u.src(i));
  }
  return nodes;
}

std::string Describe(const Shape& shape) {
  return absl::StrCat(
      "(",
      absl::StrJoin(shape, ", ",
                    [](std::string* out, const SInt& s) { absl::StrAppend(out, ToString(s)); }),
      ")");
}

absl::Status Misfit(UOp u, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(Name(u.op()), ": ", why));
}

// A variable is valid everywhere: a VALID of one is true, and is none of what has a view.
UOp WithoutValidVariables(UOp sink) {
  std::vector<UOp> asked;
  for (UOp u : Toposort(sink)) {
    if (u.is(Op::kValid) && u.src_count() == 1 && u.src(0).is(Op::kDefineVar)) asked.push_back(u);
  }
  if (asked.empty()) return sink;
  const std::vector<UOp> answers(asked.size(), sink.graph().Bool(true));
  return Substitute(sink, asked, answers);
}

// The tracker of every node that has a shape, by id; shared wherever one passes on its source's.
absl::StatusOr<std::vector<TrackerPtr>> Trackers(std::span<const UOp> nodes) {
  std::vector<TrackerPtr> trackers(nodes.back().graph().size());
  for (UOp u : nodes) {
    TrackerPtr& own = trackers[u.id()];
    if (u.is(Op::kView)) {
      own = std::make_shared<const ShapeTracker>(ShapeTracker::FromUOp(u));
      continue;
    }
    for (UOp s : u.src()) {
      const TrackerPtr& st = trackers[s.id()];
      if (st == nullptr) continue;
      if (own == nullptr) {
        own = st;
      } else if (own->shape() != st->shape() && !u.is(Op::kSink)) {
        return Misfit(u, absl::StrCat("sources of shapes ", Describe(own->shape()), " and ",
                                      Describe(st->shape())));
      }
    }
    if (u.is(kBufferOps) && !u.src(u.is(Op::kValid) ? 0 : 1).is(Op::kView)) {
      return Misfit(u, "no view where it belongs");
    }
    if (u.is(Op::kReduceAxis)) {
      if (own == nullptr) return Misfit(u, "a source without a shape");
      Shape shape = own->shape();
      for (int32_t axis : u.data<ReduceArg>().axes) {
        if (axis < 0 || axis >= static_cast<int>(shape.size())) return Misfit(u, "no such axis");
        shape[axis] = 1;
      }
      own = std::make_shared<const ShapeTracker>(ShapeTracker::FromShape(shape));
    }
  }
  return trackers;
}

// On each axis every node has size 1 or one common size.
absl::Status CheckCommonShape(std::span<const UOp> nodes, std::span<const TrackerPtr> trackers) {
  Shape common;
  bool first = true;
  for (UOp u : nodes) {
    const TrackerPtr& st = trackers[u.id()];
    if (st == nullptr) continue;
    const Shape& shape = st->shape();
    if (first) common = shape;
    first = false;
    if (shape.size() != common.size()) {
      return Misfit(u, absl::StrCat("rank ", shape.size(), " among rank ", common.size()));
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      if (ProvenEq(common[i], shape[i]) || shape[i] == SInt(1)) continue;
      if (!(common[i] == SInt(1))) {
        return Misfit(u, absl::StrCat("axis ", i, " has size ", ToString(shape[i]), " here and ",
                                      ToString(common[i]), " elsewhere"));
      }
      common[i] = shape[i];
    }
  }
  return absl::OkStatus();
}

// True if the value of `reduce`'s source is 0 where every load and every VALID below it is masked.
// THREEFRY of zeros is not zero, 0/0 is NaN, and the bits of -0.0 are not zero.
bool SourceIsZeroWhereMasked(UOp reduce) {
  const UOp source = reduce.src(0);
  std::vector<bool> zero(reduce.graph().size());
  for (UOp u : Toposort(source)) {
    auto all_zero = [&] {
      return std::all_of(u.src().begin(), u.src().end(), [&](UOp s) { return zero[s.id()]; });
    };
    switch (u.op()) {
      case Op::kLoad:
      case Op::kPreload:
      case Op::kValid:
        zero[u.id()] = true;
        break;
      case Op::kConst:
        zero[u.id()] =
            u.arg().kind() == Arg::Kind::kFloat ? u.float_value() == 0 : u.int_value() == 0;
        break;
      case Op::kWhere:
        zero[u.id()] = zero[u.src(2).id()] && (zero[u.src(0).id()] || zero[u.src(1).id()]);
        break;
      case Op::kBitcast:
        zero[u.id()] = all_zero() && (u.src(0).is(Op::kLoad) || !IsFloat(u.src(0).scalar()));
        break;
      case Op::kThreefry:
      case Op::kFdiv:
      case Op::kDefineVar:
        break;
      default:
        zero[u.id()] = !u.is(kUnsafePad) && u.src_count() > 0 && all_zero();
    }
  }
  return zero[source.id()];
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Kernel::Facts>> Kernel::Facts::Of(
    UOp sink, const TargetCaps& caps, std::vector<TrackerPtr>& trackers) {
  if (!sink.is(Op::kSink) || sink.src_count() == 0) {
    return absl::InvalidArgumentError("a kernel is a SINK of stores");
  }
  sink = WithoutValidVariables(sink);
  const std::vector<UOp> nodes = Toposort(sink);
  BEAMD_ASSIGN_OR_RETURN(const std::vector<TrackerPtr> node_trackers, Trackers(nodes));
  BEAMD_RETURN_IF_ERROR(CheckCommonShape(nodes, node_trackers));
  for (UOp store : sink.src()) {
    if (!store.is(Op::kStore)) return Misfit(store, "a kernel's outputs are stores");
    if (node_trackers[store.id()] == nullptr) return Misfit(store, "a store without a view");
    if (node_trackers[store.id()]->size().max() != node_trackers[sink.src(0).id()]->size().max()) {
      return Misfit(store, "outputs of different sizes");
    }
  }

  auto facts = std::make_shared<Facts>();
  facts->ast = sink;
  facts->caps = &caps;
  std::set<int32_t> reduced_axes;
  for (UOp u : nodes) {
    if (u.is(Op::kDefineVar)) facts->has_variables = true;
    if (!u.is(Op::kReduceAxis)) continue;
    facts->reduceops.push_back(u);
    facts->ignores_masked.push_back(u.data<ReduceArg>().op == Op::kAdd &&
                                    SourceIsZeroWhereMasked(u));
    for (int32_t axis : u.data<ReduceArg>().axes) {
      if (!reduced_axes.insert(axis).second) facts->parallel_reduces = true;
    }
  }
  for (UOp u : NodesBelow(sink)) {
    if (u.is(kBufferOps)) facts->bufs.push_back(u);
  }
  if (!facts->reduceops.empty()) {
    const UOp first = facts->reduceops[0];
    facts->accumulator_bytes = SizeBytes(first.scalar()) * first.lanes();
    facts->first_reduce_pads = first.data<ReduceArg>().op == Op::kAdd;
    UOp full;
    for (UOp u : NodesBelow(first)) {
      if (u.is(kUnsafePad)) facts->first_reduce_pads = false;
      if (!full && u.is(kBufferOps)) full = u;
    }
    if (!full) return Misfit(first, "a reduction of nothing that has a view");
    facts->full_buf_index = static_cast<int>(
        std::find(facts->bufs.begin(), facts->bufs.end(), full) - facts->bufs.begin());
  }

  for (UOp buf : facts->bufs) trackers.push_back(node_trackers[buf.id()]);
  for (UOp reduce : facts->reduceops) {
    trackers.push_back(node_trackers[reduce.id()]);
    trackers.push_back(node_trackers[reduce.src(0).id()]);
  }
  return facts;
}

}  // namespace beamd

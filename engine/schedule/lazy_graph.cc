#include "engine/schedule/lazy_graph.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace beamd {
namespace {

bool NeedsComputing(const LazyBuffer& base) {
  return !base.is_realized() && base.op() != Op::kConst;
}

// What no kernel fuses: its value lies in memory of its own.
constexpr OpSet kOwnMemory = Op::kAssign | Op::kContiguous | Op::kCopy | Op::kBufferView;

// Handles to every node that come from inside the graph.
class Holders {
 public:
  void AddBase(const LazyBase& base) {
    for (const LazyEdge& edge : base.sources) {
      ++count_[edge.source.node()];
      if (!edge.source.is_base() && seen_.insert(edge.source.node()).second) {
        ++count_[edge.base.node()];
        views_.push_back(&edge);
      }
    }
  }
  // `mine`: how many handles this graph's own lists hold to the node.
  bool HeldOutside(const LazyBuffer& b, int64_t mine) const {
    const auto it = count_.find(b.node());
    return b.use_count() - mine > (it == count_.end() ? 0 : it->second);
  }
  const std::vector<const LazyEdge*>& views() const { return views_; }

 private:
  absl::flat_hash_map<const LazyNode*, int64_t> count_;
  absl::flat_hash_set<const LazyNode*> seen_;
  std::vector<const LazyEdge*> views_;  // one edge a distinct view
};

// Counts the handles that LazyGraph itself keeps, to be left out of account.
absl::flat_hash_map<const LazyNode*, int64_t> OwnHandles(const LazyGraph& graph) {
  absl::flat_hash_map<const LazyNode*, int64_t> own;
  for (const LazyBase& base : graph.bases) {
    ++own[base.buffer.node()];
    for (const LazyEdge& edge : base.sources) {
      ++own[edge.source.node()];
      ++own[edge.base.node()];
    }
  }
  return own;
}

void FindHeld(LazyGraph& graph) {
  Holders holders;
  for (const LazyBase& base : graph.bases) holders.AddBase(base);
  const auto own = OwnHandles(graph);
  const auto mine = [&](const LazyBuffer& b) {
    const auto it = own.find(b.node());
    return it == own.end() ? 0 : it->second;
  };
  for (LazyBase& base : graph.bases) {
    base.held = holders.HeldOutside(base.buffer, mine(base.buffer));
  }
  for (const LazyEdge* view : holders.views()) {
    if (view->id != kNoBase && holders.HeldOutside(view->source, mine(view->source))) {
      graph.bases[view->id].held = true;
    }
  }
}

}  // namespace

std::vector<ShapeTracker> LazyGraph::ViewsOf(BaseId source, BaseId reader) const {
  std::vector<ShapeTracker> views;
  for (const LazyEdge& edge : bases[reader].sources) {
    if (edge.id != source) continue;
    if (std::find(views.begin(), views.end(), edge.source.st()) == views.end()) {
      views.push_back(edge.source.st());
    }
  }
  return views;
}

ShapeTracker SeenThrough(const ShapeTracker& inner, const ShapeTracker& outer) {
  // Row-major from the first element on may still be less than all.
  if (outer.contiguous() && ProvenEq(outer.size(), inner.size())) {
    if (outer.shape() == inner.shape()) return inner;
    return inner.Reshape(outer.shape());
  }
  if (inner.contiguous()) return outer;
  return inner.Compose(outer);
}

LazyGraph CollectLazyGraph(std::span<const LazyBuffer> roots) {
  LazyGraph graph;
  absl::flat_hash_map<const LazyNode*, BaseId> ids;
  struct Frame {
    LazyBuffer base;
    size_t next = 0;
  };
  std::vector<Frame> stack;
  const auto enter = [&](const LazyBuffer& base) {
    if (!NeedsComputing(base) || !ids.try_emplace(base.node(), kNoBase).second) return;
    stack.push_back({base});
  };
  for (const LazyBuffer& root : roots) {
    enter(root.base());
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const std::span<const LazyBuffer> srcs = frame.base.srcs();
      if (frame.next < srcs.size()) {
        enter(srcs[frame.next++].base());
        continue;
      }
      LazyBase made;
      made.buffer = std::move(frame.base);
      made.op = made.buffer.op();
      made.must_realize = made.buffer.forced_realize() || kOwnMemory.Has(made.op);
      made.sources.reserve(srcs.size());
      const auto id = static_cast<BaseId>(graph.bases.size());
      for (const LazyBuffer& s : srcs) {
        LazyEdge edge{s, s.base(), kNoBase};
        if (NeedsComputing(edge.base)) {
          edge.id = ids.at(edge.base.node());
          std::vector<BaseId>& readers = graph.bases[edge.id].children;
          if (readers.empty() || readers.back() != id) readers.push_back(id);
        }
        made.sources.push_back(std::move(edge));
      }
      ids[made.buffer.node()] = id;
      graph.bases.push_back(std::move(made));
      stack.pop_back();
    }
  }
  FindHeld(graph);
  return graph;
}

}  // namespace beamd

#include "engine/schedule/schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/schedule/grouping.h"
#include "engine/schedule/kernel_ast.h"
#include "engine/schedule/lazy_graph.h"

namespace beamd {
namespace {

// A window and what it is a window of overlap.
const TensorBuffer* Root(const std::shared_ptr<TensorBuffer>& b) {
  return b->parent ? b->parent.get() : b.get();
}

// What an item reads: buffers as they were before the schedule, and results of other items.
struct Reads {
  std::vector<const TensorBuffer*> old;
  std::vector<BaseId> results;
};

struct Draft {
  ScheduleItem item;
  Reads reads;
};

ScheduleItem::Kind KindOf(Op op) {
  if (op == Op::kCopy) return ScheduleItem::Kind::kCopy;
  return op == Op::kBufferView ? ScheduleItem::Kind::kView : ScheduleItem::Kind::kKernel;
}

absl::StatusOr<Draft> DraftItem(const LazyGraph& graph, const Grouping& grouping,
                                const KernelGroup& group, UOpGraph& uops) {
  Draft draft;
  draft.item.kind = KindOf(graph.bases[group.outputs[0]].op);
  for (BaseId id : group.outputs) draft.item.outputs.push_back(graph.bases[id].buffer);
  if (draft.item.kind != ScheduleItem::Kind::kKernel) {
    const LazyBase& base = graph.bases[group.outputs[0]];
    const LazyEdge& source = base.sources[0];
    draft.item.buffers = {base.buffer.buffer(), source.base.buffer()};
    draft.item.written = {true, false};
    if (source.id != kNoBase) {
      draft.reads.results.push_back(source.id);
    } else {
      draft.reads.old.push_back(Root(source.base.buffer()));
    }
    return draft;
  }
  BEAMD_ASSIGN_OR_RETURN(KernelAst ast, BuildKernelAst(graph, grouping.realized, group, uops));
  draft.item.ast = ast.sink;
  for (KernelAst::Buffer& buffer : ast.buffers) {
    if (buffer.read_old) draft.reads.old.push_back(Root(buffer.buffer));
    if (buffer.read_new != kNoBase) {
      draft.reads.results.push_back(buffer.read_new);
      // Through a window of a realised buffer the item reads that buffer.
      const LazyBase& made_by = graph.bases[buffer.read_new];
      if (made_by.op == Op::kBufferView && made_by.sources[0].id == kNoBase) {
        draft.reads.old.push_back(Root(buffer.buffer));
      }
    }
    if (buffer.read_old && buffer.read_new != kNoBase) {
      return absl::FailedPreconditionError(
          absl::StrCat("one kernel would read ", ToString(DType(buffer.buffer->dtype)), " x ",
                       buffer.buffer->size_elements,
                       " both before and after it is assigned to: put .Contiguous() behind the "
                       "part that reads it before"));
    }
    draft.item.written.push_back(buffer.written);
    draft.item.buffers.push_back(std::move(buffer.buffer));
  }
  return draft;
}

// The order in which items can run: breadth first, as they were drafted.
absl::StatusOr<std::vector<size_t>> Order(const LazyGraph& graph,
                                          const std::vector<Draft>& drafts) {
  absl::flat_hash_map<BaseId, size_t> makes;                    // by output
  absl::flat_hash_map<const TensorBuffer*, size_t> overwrites;  // by ASSIGN's target
  absl::flat_hash_map<const LazyNode*, BaseId> ids;
  for (size_t i = 0; i < graph.bases.size(); ++i) {
    ids[graph.bases[i].buffer.node()] = static_cast<BaseId>(i);
  }
  for (size_t i = 0; i < drafts.size(); ++i) {
    for (const LazyBuffer& output : drafts[i].item.outputs) {
      makes[ids.at(output.node())] = i;
      if (output.op() != Op::kAssign) continue;
      if (!overwrites.try_emplace(Root(output.buffer()), i).second) {
        return absl::FailedPreconditionError(
            "one buffer is assigned to twice: realise the first ASSIGN before the second is made");
      }
    }
  }
  std::vector<std::vector<size_t>> next(drafts.size());
  std::vector<int> waits(drafts.size(), 0);
  const auto before = [&](size_t a, size_t b) {
    if (a == b) return;
    next[a].push_back(b);
    ++waits[b];
  };
  for (size_t i = 0; i < drafts.size(); ++i) {
    for (const TensorBuffer* old : drafts[i].reads.old) {
      if (const auto it = overwrites.find(old); it != overwrites.end()) before(i, it->second);
    }
    for (BaseId id : drafts[i].reads.results) before(makes.at(id), i);
  }
  std::vector<size_t> order;
  order.reserve(drafts.size());
  for (size_t i = 0; i < drafts.size(); ++i) {
    if (waits[i] == 0) order.push_back(i);
  }
  for (size_t done = 0; done < order.size(); ++done) {
    for (size_t i : next[order[done]]) {
      if (--waits[i] == 0) order.push_back(i);
    }
  }
  if (order.size() == drafts.size()) return order;
  const auto stuck = std::find_if(waits.begin(), waits.end(), [](int n) { return n > 0; });
  const LazyBuffer& output = drafts[stuck - waits.begin()].item.outputs[0];
  return absl::FailedPreconditionError(
      absl::StrCat("the kernels need each other's results: an ASSIGN comes before a reader of the "
                   "old value that "
                   "comes before the ASSIGN; among them is the one that computes ",
                   Name(output.op()), " of ", ToString(DType(output.dtype())), " x ",
                   ToString(output.size()), "; realise what reads the old value first"));
}

std::vector<std::string> VariablesOf(const Schedule& schedule) {
  std::vector<std::string> names;
  absl::flat_hash_set<uint32_t> seen;
  for (const ScheduleItem& item : schedule.items) {
    if (!item.ast || !seen.insert(item.ast.id()).second) continue;
    for (UOp u : Toposort(item.ast)) {
      if (u.is(Op::kDefineVar)) names.push_back(u.data<VariableArg>().name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Buffers of bases that nobody outside holds. A window keeps what it is a window of.
std::vector<std::shared_ptr<TensorBuffer>> InternalBuffers(const LazyGraph& graph,
                                                           const Grouping& grouping) {
  absl::flat_hash_set<const TensorBuffer*> shown;
  for (const LazyBase& base : graph.bases) {
    if (base.op == Op::kBufferView) shown.insert(Root(base.buffer.buffer()));
  }
  std::vector<std::shared_ptr<TensorBuffer>> internal;
  for (size_t i = 0; i < graph.bases.size(); ++i) {
    const LazyBase& base = graph.bases[i];
    if (!grouping.realized[i] || base.held || base.op == Op::kAssign ||
        base.op == Op::kBufferView || shown.contains(base.buffer.buffer().get())) {
      continue;
    }
    internal.push_back(base.buffer.buffer());
  }
  return internal;
}

}  // namespace

int Schedule::kernel_count() const {
  return static_cast<int>(std::count_if(items.begin(), items.end(), [](const ScheduleItem& item) {
    return item.kind == ScheduleItem::Kind::kKernel;
  }));
}

absl::StatusOr<Schedule> CreateSchedule(std::span<const LazyBuffer> roots) {
  Schedule schedule;
  schedule.graph = std::make_unique<UOpGraph>();
  for (const LazyBuffer& root : roots) root.base().set_forced_realize();
  const LazyGraph graph = CollectLazyGraph(roots);
  const Grouping grouping = GroupKernels(graph);
  std::vector<Draft> drafts;
  drafts.reserve(grouping.groups.size());
  for (const KernelGroup& group : grouping.groups) {
    BEAMD_ASSIGN_OR_RETURN(Draft draft, DraftItem(graph, grouping, group, *schedule.graph));
    drafts.push_back(std::move(draft));
  }
  BEAMD_ASSIGN_OR_RETURN(const std::vector<size_t> order, Order(graph, drafts));
  schedule.items.reserve(order.size());
  for (size_t i : order) schedule.items.push_back(std::move(drafts[i].item));
  schedule.internal = InternalBuffers(graph, grouping);
  schedule.variables = VariablesOf(schedule);
  return schedule;
}

}  // namespace beamd

#include "engine/schedule/grouping.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "engine/base/option.h"
#include "engine/dtype/const_value.h"
#include "engine/uop/int_alu.h"

namespace beamd {
namespace {

// --- what has to be stored ---

// What a masked element comes to: a value where every element read is 0 and so is every constant,
// in the value's dtype. Nothing where targets may differ, and for NaN.
using KnownValue = std::optional<ConstValue>;

// All bits 0, as padding is.
bool IsZero(const KnownValue& v) { return v && v->Is(0) && !v->IsNegativeZero(); }

// Of a float: only what is exact, whatever approximates the function.
std::optional<double> FunctionOf(Op op, double x) {
  switch (op) {
    case Op::kExp2:
      if (x == 0) return 1;
      if (std::isinf(x)) return x < 0 ? 0 : x;
      return std::nullopt;
    case Op::kLog2:
      if (x == 0) return -std::numeric_limits<double>::infinity();
      if (x == 1) return 0;
      return std::nullopt;
    case Op::kSin:
      return x == 0 ? std::optional(x) : std::nullopt;
    case Op::kSqrt:
      return x == 0 || x == 1 ? std::optional(x) : std::nullopt;
    case Op::kRecip:
      // Of a power of two.
      return x == 0 || std::isinf(x) || std::abs(x) == std::exp2(std::ilogb(x))
                 ? std::optional(1 / x)
                 : std::nullopt;
    default:
      return std::nullopt;
  }
}

// Rounded to a dtype of up to float32 it is what that dtype's own operation gives: double has more
// than twice its bits.
std::optional<double> FloatAlu(Op op, std::span<const double> v) {
  switch (op) {
    case Op::kNeg:
      return -v[0];
    case Op::kAdd:
      return v[0] + v[1];
    case Op::kSub:
      return v[0] - v[1];
    case Op::kMul:
      return v[0] * v[1];
    case Op::kMax:
      if (v[0] == v[1]) return std::signbit(v[0]) ? v[1] : v[0];
      return std::max(v[0], v[1]);
    case Op::kCmpLt:
      return v[0] < v[1] ? 1 : 0;
    case Op::kCmpNe:
      return v[0] != v[1] ? 1 : 0;
    default:
      return FunctionOf(op, v[0]);
  }
}

KnownValue OfZeros(const LazyBase& base, std::span<const KnownValue> v) {
  const Scalar dtype = base.buffer.dtype();
  if (base.op == Op::kAnd && (IsZero(v[0]) || IsZero(v[1]))) return ConstValue(0).As(dtype);
  if (!std::ranges::all_of(v, [](const KnownValue& x) { return x.has_value(); })) {
    return std::nullopt;
  }
  const Scalar from = base.sources.back().base.dtype();
  KnownValue result;
  switch (base.op) {
    case Op::kCast:
      result = v[0]->As(dtype, from);
      break;
    case Op::kWhere:
      result = v[0]->Is(0) ? v[2] : v[1];
      break;
    // Of 0 only: what they make of another number isn't followed.
    case Op::kBitcast:
    case Op::kReduceAxis:
      if (IsZero(v[0])) result = ConstValue(0).As(dtype);
      break;
    default:
      if (IsFloat(from)) {
        absl::InlinedVector<double, 3> operands;
        for (const KnownValue& x : v) operands.push_back(x->as_float());
        if (const std::optional<double> value = FloatAlu(base.op, operands)) {
          result = ConstValue(*value).As(dtype);
        }
      } else if (kIntAlu.Has(base.op)) {
        const int64_t b = v.size() > 1 ? v[1]->as_int() : 0;
        result = ConstValue(IntAlu(base.op, from, v[0]->as_int(), b)).As(dtype);
      }
  }
  if (result && result->is_float() && std::isnan(result->as_float())) return std::nullopt;
  return result;
}

SInt MaskSize(const Mask& mask) {
  SInt size = 1;
  for (const auto& [begin, end] : mask) size = size * (end - begin);
  return size;
}

// Whether a base must be in memory because it is seen through `st`.
bool StoredBefore(const LazyBuffer& base, const ShapeTracker& st, bool zero_stays_zero) {
  const SInt size = base.size();
  if (st.views().size() == 1 && st.views()[0].mask && AllNumbers(base.shape()) &&
      ProvenLe(MaskSize(*st.views()[0].mask), size)) {
    return !zero_stays_zero;
  }
  // Else every copy of an element would be computed anew.
  if (!ProvenLe(st.size(), size)) return true;
  return st.masked() && !zero_stays_zero;
}

// The bases to store, in the order in which they are found.
class Realizes {
 public:
  explicit Realizes(size_t bases) : has_(bases, false) {}
  bool Has(BaseId id) const { return has_[id]; }
  void Add(BaseId id) {
    if (has_[id]) return;
    has_[id] = true;
    order_.push_back(id);
  }
  const std::vector<BaseId>& order() const { return order_; }
  std::vector<bool> TakeFlags() { return std::move(has_); }

 private:
  std::vector<bool> has_;
  std::vector<BaseId> order_;
};

Realizes FindRealizes(const LazyGraph& graph) {
  Realizes realizes(graph.bases.size());
  std::vector<KnownValue> of_zeros(graph.bases.size());
  for (size_t i = 0; i < graph.bases.size(); ++i) {
    const LazyBase& base = graph.bases[i];
    absl::InlinedVector<KnownValue, 3> values;
    for (const LazyEdge& edge : base.sources) {
      KnownValue value = ConstValue(0).As(edge.base.dtype());
      if (edge.id != kNoBase) {
        const LazyBase& source = graph.bases[edge.id];
        bool stored = source.must_realize;
        if (!stored && !edge.source.is_base() &&
            StoredBefore(edge.base, edge.source.st(), IsZero(of_zeros[edge.id]))) {
          stored = true;
          realizes.Add(edge.id);
        }
        if (!stored && (base.op == Op::kCopy || base.op == Op::kBufferView)) realizes.Add(edge.id);
        if (!stored) value = of_zeros[edge.id];
      }
      values.push_back(value);
    }
    if (base.must_realize) {
      realizes.Add(static_cast<BaseId>(i));
    } else {
      of_zeros[i] = OfZeros(base, values);
    }
  }
  return realizes;
}

// --- which share a kernel ---

// A set that remembers the order of insertion.
class Group {
 public:
  bool Has(BaseId id) const { return std::find(ids_.begin(), ids_.end(), id) != ids_.end(); }
  void Add(BaseId id) {
    if (!Has(id)) ids_.push_back(id);
  }
  const std::vector<BaseId>& ids() const { return ids_; }
  bool empty() const { return ids_.empty(); }

 private:
  std::vector<BaseId> ids_;
};

class Grouper {
 public:
  Grouper(const LazyGraph& graph, Realizes realizes)
      : graph_(graph), realizes_(std::move(realizes)), reduce_of_(graph.bases.size(), kNoBase) {}

  Grouping Run() {
    for (size_t i = 0; i < graph_.bases.size(); ++i) {
      const auto id = static_cast<BaseId>(i);
      if (IsReduce(id)) PlaceReduce(id);
    }
    Grouping grouping;
    absl::flat_hash_map<BaseId, size_t> group_of;
    for (BaseId id : realizes_.order()) {
      const BaseId key = reduce_of_[id] == kNoBase ? id : reduce_of_[id];
      const auto [it, made] = group_of.try_emplace(key, grouping.groups.size());
      if (made || options::kMultiOutput == 0) {
        grouping.groups.push_back({{}, IsReduce(key) ? key : kNoBase});
        grouping.groups.back().outputs.push_back(id);
      } else {
        grouping.groups[it->second].outputs.push_back(id);
      }
    }
    StoreSharedWork(grouping);
    grouping.realized = realizes_.TakeFlags();
    return grouping;
  }

 private:
  bool IsReduce(BaseId id) const { return graph_.bases[id].op == Op::kReduceAxis; }
  const std::vector<BaseId>& Children(BaseId id) const { return graph_.bases[id].children; }

  // Follows `start` (whose value `st` shows) to the first stored bases behind it, and adds those to
  // `group`. Adds `root` itself where something on the way can't be in one kernel with it.
  void FindGroup(BaseId start, const ShapeTracker& start_st, BaseId root, Group& group) const {
    const SInt root_size = graph_.bases[root].buffer.size();
    absl::flat_hash_map<BaseId, std::vector<ShapeTracker>> seen;
    struct Frame {
      BaseId id;
      ShapeTracker st;
      size_t next = 0;
    };
    std::vector<Frame> stack;
    const auto enter = [&](BaseId id, ShapeTracker st) {
      std::vector<ShapeTracker>& known = seen[id];
      if (std::find(known.begin(), known.end(), st) != known.end()) return;
      known.push_back(st);
      if (realizes_.Has(id) && id != root) {
        if (!st.contiguous() || st.size() != root_size || reduce_of_[id] != kNoBase) {
          group.Add(root);
        }
        group.Add(id);
        return;
      }
      stack.push_back({id, std::move(st)});
    };
    enter(start, start_st);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const std::vector<BaseId>& children = Children(frame.id);
      if (frame.next == children.size()) {
        stack.pop_back();
        continue;
      }
      const BaseId child = children[frame.next++];
      // One reduction a kernel, and its result in one place.
      const std::vector<ShapeTracker> views =
          IsReduce(child) ? std::vector<ShapeTracker>() : graph_.ViewsOf(frame.id, child);
      if (views.size() != 1) {
        group.Add(root);
        stack.pop_back();
        continue;
      }
      enter(child, SeenThrough(frame.st, views[0]));
    }
  }

  // What is stored behind `group`, or nothing where another reduction feeds it.
  Group WithDescendants(BaseId reduce, const Group& group) const {
    std::vector<BaseId> todo = group.ids();
    std::vector<bool> seen(graph_.bases.size(), false);
    while (!todo.empty()) {
      const BaseId id = todo.back();
      todo.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      if (IsReduce(id)) return Group();
      for (const LazyEdge& edge : graph_.bases[id].sources) {
        if (edge.id != kNoBase && edge.id != reduce) todo.push_back(edge.id);
      }
    }
    Group descendants;
    for (BaseId id : group.ids()) {
      FindGroup(id, graph_.bases[id].buffer.st(), id, descendants);
    }
    Group all = group;
    for (BaseId id : descendants.ids()) {
      if (group.Has(id)) return all;
    }
    for (BaseId id : descendants.ids()) all.Add(id);
    return all;
  }

  // Whether another kernel would need a result of `group`, computed with `reduce`, and the group
  // one of that kernel's. A reduction that has no kernel yet counts as one: no two share one.
  bool NeedsItsOwnReader(BaseId reduce, const Group& group) const {
    enum : uint8_t { kNo, kWithin, kThroughAnother };
    std::vector<uint8_t> reached(graph_.bases.size(), kNo);
    std::vector<BaseId> todo;
    const auto reach = [&](BaseId id, uint8_t how) {
      if (reached[id] >= how) return;
      reached[id] = how;
      todo.push_back(id);
    };
    std::vector<bool> within(graph_.bases.size(), false);
    for (BaseId id : group.ids()) {
      within[id] = true;
      reach(id, kWithin);
    }
    while (!todo.empty()) {
      const BaseId id = todo.back();
      todo.pop_back();
      for (BaseId child : Children(id)) {
        if (within[child]) {
          if (reached[id] == kThroughAnother) return true;
        } else if (realizes_.Has(child)) {
          reach(child, kThroughAnother);
          if (const auto it = placed_.find(reduce_of_[child]); it != placed_.end()) {
            for (BaseId other : it->second) reach(other, kThroughAnother);
          }
        } else {
          const bool open = IsReduce(child) && child != reduce && !placed_.contains(child);
          reach(child, open ? uint8_t{kThroughAnother} : reached[id]);
        }
      }
    }
    return false;
  }

  // The kernels of several results that `id`, which isn't stored, reads (or that read it), found
  // through what isn't stored either.
  template <typename Neighbours>
  absl::flat_hash_set<BaseId> SharedKernelsFrom(BaseId id, Neighbours neighbours) const {
    absl::flat_hash_set<BaseId> kernels, seen;
    std::vector<BaseId> todo = {id};
    while (!todo.empty()) {
      const BaseId at = todo.back();
      todo.pop_back();
      neighbours(at, [&](BaseId next) {
        if (!realizes_.Has(next)) {
          if (seen.insert(next).second) todo.push_back(next);
          return;
        }
        const auto it = placed_.find(reduce_of_[next]);
        if (it != placed_.end() && it->second.size() > 1) kernels.insert(it->first);
      });
    }
    return kernels;
  }

  // Whether a kernel of its own for `id` leaves none that it and what it needs wait for.
  bool MayBeStored(BaseId id) const {
    const absl::flat_hash_set<BaseId> read = SharedKernelsFrom(id, [&](BaseId at, auto visit) {
      for (const LazyEdge& edge : graph_.bases[at].sources) {
        if (edge.id != kNoBase) visit(edge.id);
      }
    });
    if (read.empty()) return true;
    const absl::flat_hash_set<BaseId> readers = SharedKernelsFrom(id, [&](BaseId at, auto visit) {
      for (BaseId child : Children(at)) visit(child);
    });
    return std::ranges::none_of(read, [&](BaseId kernel) { return readers.contains(kernel); });
  }

  // Whether the kernel of `reduce` and `group` would depend on an ASSIGN outside it.
  bool ReadsAnAssign(BaseId reduce, const Group& group) const {
    std::vector<BaseId> todo = group.ids();
    todo.push_back(reduce);
    std::vector<bool> seen(graph_.bases.size(), false);
    while (!todo.empty()) {
      const BaseId id = todo.back();
      todo.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      if (graph_.bases[id].op == Op::kAssign && !group.Has(id)) return true;
      if (realizes_.Has(id) && !group.Has(id)) continue;
      for (const LazyEdge& edge : graph_.bases[id].sources) {
        if (edge.id != kNoBase) todo.push_back(edge.id);
      }
    }
    return false;
  }

  // Whether `reduce` folds over a buffer that an ASSIGN of `group` writes: their kernel would read
  // elements that it overwrites elsewhere.
  bool FoldsOverATarget(BaseId reduce, const Group& group) const {
    const auto memory = [](const LazyBuffer& base) -> const TensorBuffer* {
      const std::shared_ptr<TensorBuffer>& buffer = base.buffer();
      return buffer != nullptr && buffer->parent != nullptr ? buffer->parent.get() : buffer.get();
    };
    absl::flat_hash_set<const TensorBuffer*> targets;
    for (BaseId id : group.ids()) {
      if (graph_.bases[id].op == Op::kAssign) targets.insert(memory(graph_.bases[id].buffer));
    }
    if (targets.empty()) return false;
    std::vector<BaseId> todo = {reduce};
    std::vector<bool> seen(graph_.bases.size(), false);
    while (!todo.empty()) {
      const BaseId id = todo.back();
      todo.pop_back();
      if (seen[id] || (realizes_.Has(id) && id != reduce)) continue;
      seen[id] = true;
      for (const LazyEdge& edge : graph_.bases[id].sources) {
        if (edge.id != kNoBase) {
          todo.push_back(edge.id);
        } else if (edge.base.is_realized() && targets.contains(memory(edge.base))) {
          return true;
        }
      }
    }
    return false;
  }

  // The last base behind `reduce` that shows it whole and in order and is its only reader.
  BaseId Chase(BaseId reduce) const {
    BaseId at = reduce;
    ShapeTracker st = graph_.bases[reduce].buffer.st();
    while (Children(at).size() == 1) {
      const BaseId next = Children(at)[0];
      const std::vector<ShapeTracker> views = graph_.ViewsOf(at, next);
      if (views.size() != 1 || st.size() != views[0].size()) break;
      st = SeenThrough(st, views[0]);
      if (!st.contiguous() || IsReduce(next)) break;
      at = next;
    }
    // A cast to something wider is left to whoever reads it: less to store.
    const LazyBase& last = graph_.bases[at];
    if (last.op == Op::kCast && last.sources[0].id != kNoBase &&
        SizeBytes(last.buffer.dtype()) > SizeBytes(last.sources[0].source.dtype())) {
      at = last.sources[0].id;
    }
    return at;
  }

  void PlaceReduce(BaseId reduce) {
    if (realizes_.Has(reduce)) return;
    Group group;
    FindGroup(reduce, graph_.bases[reduce].buffer.st(), reduce, group);
    bool chase = std::none_of(group.ids().begin(), group.ids().end(),
                              [&](BaseId id) { return reduce_of_[id] != kNoBase; });
    bool alone = group.Has(reduce);
    if (!alone && group.ids().size() > 1) {
      Group all = WithDescendants(reduce, group);
      // An optimiser's moments share the gradient's kernel; the parameter, which that kernel reads,
      // can't.
      if (all.empty() || (!FoldsOverATarget(reduce, all) && !NeedsItsOwnReader(reduce, all))) {
        group = std::move(all);
      } else {
        alone = NeedsItsOwnReader(reduce, group);
      }
    }
    const bool assigns = std::any_of(group.ids().begin(), group.ids().end(),
                                     [&](BaseId id) { return graph_.bases[id].op == Op::kAssign; });
    if (!alone && assigns && (ReadsAnAssign(reduce, group) || FoldsOverATarget(reduce, group))) {
      alone = true;
      chase = false;
    }
    if (alone || group.empty()) {
      const BaseId last = chase ? Chase(reduce) : reduce;
      group = Group();
      group.Add(realizes_.Has(last) || MayBeStored(last) ? last : reduce);
      realizes_.Add(group.ids()[0]);
    }
    for (BaseId id : group.ids()) reduce_of_[id] = reduce;
    placed_[reduce] = group.ids();
  }

  // Stores element-wise values that several kernels would compute, each from further back than
  // kMostRecomputed operations.
  void StoreSharedWork(Grouping& grouping) {
    constexpr int32_t kNone = -1;
    constexpr int32_t kSeveral = -2;
    const size_t n = graph_.bases.size();
    std::vector<int32_t> kernel(n, kNone);  // the one that computes a base
    for (size_t k = 0; k < grouping.groups.size(); ++k) {
      for (BaseId id : grouping.groups[k].outputs) kernel[id] = static_cast<int32_t>(k);
    }
    for (size_t i = n; i-- > 0;) {
      for (const LazyEdge& edge : graph_.bases[i].sources) {
        if (edge.id == kNoBase || realizes_.Has(edge.id)) continue;
        int32_t& k = kernel[edge.id];
        k = k == kNone || k == kernel[i] ? kernel[i] : kSeveral;
      }
    }
    std::vector<int> work(n, 0);  // operations to get at a base's value
    for (size_t i = 0; i < n; ++i) {
      const auto id = static_cast<BaseId>(i);
      if (realizes_.Has(id)) continue;
      int sum = 1;
      for (const LazyEdge& edge : graph_.bases[i].sources) {
        if (edge.id != kNoBase) sum = std::min(sum + work[edge.id], kMostRecomputed + 1);
      }
      work[i] = sum;
      if (kernel[i] != kSeveral || sum <= kMostRecomputed || IsReduce(id)) continue;
      if (!MayBeStored(id)) continue;
      realizes_.Add(id);
      grouping.groups.push_back({{id}, kNoBase});
      work[i] = 0;
    }
  }
  // About what one store and one load of a float cost.
  static constexpr int kMostRecomputed = 32;

  const LazyGraph& graph_;
  Realizes realizes_;
  std::vector<BaseId> reduce_of_;  // by stored base: the reduction that its kernel computes
  absl::flat_hash_map<BaseId, std::vector<BaseId>> placed_;  // by reduction: what its kernel stores
};

}  // namespace

Grouping GroupKernels(const LazyGraph& graph) { return Grouper(graph, FindRealizes(graph)).Run(); }

}  // namespace beamd

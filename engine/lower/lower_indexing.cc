#include "engine/lower/lower_indexing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"
#include "engine/lower/launch.h"
#include "engine/shape/shape_tracker.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

// Bit i stands for axis i; axes past the last bit always count as set.
using AxisMask = uint64_t;
constexpr int kMaskedAxes = 64;

bool Has(AxisMask mask, int axis) { return axis >= kMaskedAxes || (mask >> axis & 1) != 0; }

class Lowerer {
 public:
  Lowerer(UOp sink, const TargetCaps& caps)
      : g_(sink.graph()), sink_(sink), caps_(caps), nodes_(Toposort(sink)) {}

  absl::StatusOr<UOp> Run() {
    BEAMD_RETURN_IF_ERROR(FindAxes());
    if (caps_.has_local) BEAMD_RETURN_IF_ERROR(PlanLaunch());
    FindDependence();
    GroupReductions();
    std::vector<UOp> output_point(rank_);
    for (int axis = 0; axis < rank_; ++axis) {
      output_point[axis] = reduced_[axis] ? g_.Const(Scalar::kInt64, 0) : OutputIndex(axis);
    }
    contexts_.push_back({std::move(output_point), {}});
    BEAMD_ASSIGN_OR_RETURN(const UOp lowered, Lower());
    if (grid_.specials.empty()) return lowered;
    return Substitute(lowered, grid_.specials, grid_.bounded);
  }

 private:
  // Where a value is asked for: the index of each axis. 0 is the output's point; each group of
  // reductions opens one more inside the context that its results are used in, and so does what the
  // work-items of a group leave for each other in shared memory.
  struct Context {
    std::vector<UOp> point;
    absl::flat_hash_map<UOp, UOp> done;
  };
  struct Frame {
    UOp node;
    int context;
  };

  static const ReduceArg& Reduction(UOp u) { return u.data<ReduceArg>(); }
  static bool IsLocal(UOp access) { return access.src(0).is(Op::kDefineLocal); }

  absl::Status FindAxes() {
    const KernelInfo info = sink_.has_data<KernelInfo>() ? sink_.data<KernelInfo>() : KernelInfo();
    for (const UOp u : nodes_) {
      if (u.is(Op::kDefineLocal) && !caps_.has_local) {
        return absl::UnimplementedError("shared memory needs a GPU target");
      }
      if (!u.is(Op::kView)) continue;
      ShapeTracker& st = views_.emplace(u, ShapeTracker::FromUOp(u)).first->second;
      const Shape& shape = st.shape();
      if (full_shape_.empty()) full_shape_.assign(shape.size(), SInt(1));
      if (full_shape_.size() != shape.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "a view of rank ", shape.size(), " in a kernel of rank ", full_shape_.size()));
      }
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        if (!(shape[axis] == SInt(1))) full_shape_[axis] = shape[axis];
      }
    }
    rank_ = static_cast<int>(full_shape_.size());
    first_upcast_ = rank_ - info.upcasted;
    first_reduce_ = first_upcast_;
    reduced_.assign(rank_, false);
    for (const UOp u : nodes_) {
      if (!u.is(Op::kReduceAxis)) continue;
      for (const int32_t axis : Reduction(u).axes) {
        if (axis >= rank_)
          return absl::InvalidArgumentError("a reduction over an axis past the rank");
        reduced_[axis] = true;
        first_reduce_ = std::min(first_reduce_, axis);
      }
    }
    for (int axis = std::max(first_upcast_, 0); axis < rank_; ++axis) {
      if (!full_shape_[axis].is_number()) {
        return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is symbolic and upcast"));
      }
    }
    first_local_ = first_reduce_ - info.local_dims;
    if (first_local_ < 0 || (info.local_dims != 0 && !caps_.has_local)) {
      return absl::InvalidArgumentError("local axes that the kernel or the target doesn't have");
    }
    // What work-items leave for each other varies along the axes of the group.
    group_end_ = first_reduce_;
    for (const UOp u : nodes_) {
      if (!u.is(Op::kStore) || !IsLocal(u)) continue;
      for (int axis = group_end_; axis < first_upcast_; ++axis) {
        if (!(views_.at(u.src(1)).shape()[axis] == SInt(1))) group_end_ = axis + 1;
      }
    }
    return absl::OkStatus();
  }

  absl::Status PlanLaunch() {
    launch_index_.assign(rank_, UOp());
    const std::span<const SInt> shape = full_shape_;
    BEAMD_ASSIGN_OR_RETURN(grid_, PlanGrid(g_, shape.first(first_local_), caps_));
    std::ranges::copy(grid_.indices, launch_index_.begin());

    const std::vector<int> order = LocalAxes();
    std::vector<SInt> extents;
    extents.reserve(order.size());
    for (const int axis : order) extents.push_back(full_shape_[axis]);
    BEAMD_ASSIGN_OR_RETURN(const std::vector<UOp> group, PlanGroup(g_, extents, caps_));
    for (size_t i = 0; i < order.size(); ++i) launch_index_[order[i]] = group[i];
    return absl::OkStatus();
  }

  // The axes of a work-group, the fastest last: along that one, work-items that run in step should
  // touch neighbours in most buffers.
  std::vector<int> LocalAxes() const {
    std::vector<int> neighbours(rank_, 0), order;
    for (const UOp u : nodes_) {
      if (!u.is(Op::kLoad | Op::kStore) || IsLocal(u)) continue;
      const std::vector<std::optional<SInt>> strides =
          views_.at(u.src(1)).RealStrides(/*ignore_valid=*/true);
      for (int axis = first_local_; axis < group_end_; ++axis) {
        if (strides[axis] && *strides[axis] == SInt(1)) ++neighbours[axis];
      }
    }
    for (int axis = first_local_; axis < group_end_; ++axis) order.push_back(axis);
    std::ranges::stable_sort(order, {}, [&](int axis) { return neighbours[axis]; });
    return order;
  }

  // Which axes the value of each node may vary along.
  void FindDependence() {
    varies_.assign(g_.size(), 0);
    for (const UOp u : nodes_) {
      AxisMask& mask = varies_[u.id()];
      if (u.is(kBufferOps)) {
        const Shape& shape = views_.at(u.src(u.is(Op::kValid) ? 0 : 1)).shape();
        for (int axis = 0; axis < std::min(rank_, kMaskedAxes); ++axis) {
          if (!(shape[axis] == SInt(1))) mask |= AxisMask{1} << axis;
        }
        // Each group has shared memory of its own, filled with values of its point.
        if (u.is(Op::kLoad) && u.src_count() == 3) mask |= varies_[u.src(2).src(2).id()];
        continue;
      }
      for (const UOp s : u.src()) mask |= varies_[s.id()];
      if (!u.is(Op::kReduceAxis)) continue;
      for (const int32_t axis : Reduction(u).axes) {
        if (axis < kMaskedAxes) mask &= ~(AxisMask{1} << axis);
      }
    }
  }

  // Reductions over the same axes of which none needs another share one group, and so their loops.
  void GroupReductions() {
    absl::flat_hash_map<UOp, int> stage;
    std::map<std::pair<int, std::vector<int32_t>>, int> groups;
    for (const UOp u : nodes_) {
      int s = 0;
      for (const UOp src : u.src()) s = std::max(s, stage[src]);
      if (u.is(Op::kReduceAxis)) {
        const auto key = std::make_pair(s, Reduction(u).axes);
        const int group = groups.emplace(key, static_cast<int>(groups.size())).first->second;
        group_[u] = group;
        group_varies_.resize(groups.size());
        group_varies_[group] |= varies_[u.id()];
        ++s;
      }
      stage[u] = s;
    }
  }

  UOp OutputIndex(int axis) {
    if (axis < first_upcast_ && caps_.has_local) {
      return launch_index_[axis];
    }
    return Range(axis, 0);
  }

  // Context 0 is the output.
  UOp Range(int axis, int context) {
    using Kind = RangeArg::Kind;
    const Kind loop = context == 0 ? Kind::kGlobal : Kind::kReduce;
    const Kind unrolled = context == 0 ? Kind::kUpcast : Kind::kUnroll;
    const UOp extent = full_shape_[axis].ToUOp(g_);
    if (extent.is_const_int(1)) return g_.Const(Scalar::kInt64, 0);
    return g_.Make(Op::kRange, Scalar::kInt64, {extent},
                   g_.Intern(RangeArg{axis >= first_upcast_ ? unrolled : loop, axis, context}));
  }

  // The point of `outer` as far as a value that varies along `axes` depends on it.
  std::vector<UOp> PointAlong(AxisMask axes, int outer) {
    std::vector<UOp> point = contexts_[outer].point;
    for (int axis = 0; axis < rank_; ++axis) {
      if (!Has(axes, axis)) point[axis] = g_.Const(Scalar::kInt64, 0);
    }
    return point;
  }

  // The context of a group of reductions (`kind`) or of stores to shared memory (kStores) that
  // `point` leads to: the same for all that lead to it.
  static constexpr int kStores = -1;
  std::pair<int, bool> ContextAt(int kind, const std::vector<UOp>& point) {
    std::vector<uint32_t> ids;
    ids.reserve(point.size());
    for (const UOp u : point) ids.push_back(u.id());
    const auto [it, is_new] = context_of_.emplace(std::make_pair(kind, std::move(ids)),
                                                  static_cast<int>(contexts_.size()));
    if (is_new) contexts_.push_back({point, {}});
    return {it->second, is_new};
  }

  int ContextOf(UOp reduce, int outer) {
    const int group = group_.at(reduce);
    const auto [context, is_new] = ContextAt(group, PointAlong(group_varies_[group], outer));
    if (is_new) {
      for (const int32_t axis : Reduction(reduce).axes) {
        contexts_[context].point[axis] = Range(axis, context);
      }
    }
    return context;
  }

  // Where the work-items of a group compute what `store` leaves for a load at `outer`.
  int ContextOfStore(UOp store, int outer) {
    std::vector<UOp> point = PointAlong(varies_[store.src(2).id()], outer);
    const Shape& shape = views_.at(store.src(1)).shape();
    for (int axis = first_reduce_; axis < group_end_; ++axis) {
      if (!(shape[axis] == SInt(1))) point[axis] = launch_index_[axis];
    }
    return ContextAt(kStores, point).first;
  }

  int ContextOfSource(UOp u, int i, int context) {
    if (u.is(Op::kReduceAxis)) return ContextOf(u, context);
    if (u.is(Op::kLoad) && i == 2) return ContextOfStore(u.src(2), context);
    return context;
  }

  absl::StatusOr<UOp> Lower() {
    std::vector<Frame> stack = {{sink_, 0}};
    while (!stack.empty()) {
      const Frame top = stack.back();
      if (contexts_[top.context].done.contains(top.node)) {
        stack.pop_back();
        continue;
      }
      const size_t before = stack.size();
      for (int i = top.node.src_count() - 1; i >= 0; --i) {
        const UOp s = top.node.src(i);
        // An ASSIGN's value is what it stores; its target is not read.
        if (s.is(Op::kView) || (top.node.is(Op::kAssign) && i == 0)) continue;
        const int inner = ContextOfSource(top.node, i, top.context);
        if (!contexts_[inner].done.contains(s)) stack.push_back({s, inner});
      }
      if (stack.size() != before) continue;
      BEAMD_ASSIGN_OR_RETURN(const UOp lowered, LowerNode(top.node, top.context));
      contexts_[top.context].done[top.node] = lowered;
      stack.pop_back();
    }
    return contexts_[0].done.at(sink_);
  }

  absl::StatusOr<UOp> LowerNode(UOp u, int context) {
    const auto done = [&](int i) {
      return contexts_[ContextOfSource(u, i, context)].done.at(u.src(i));
    };
    const Context& c = contexts_[context];
    switch (u.op()) {
      case Op::kAssign:
        return done(1);
      case Op::kBind:
        return done(0);
      case Op::kDefineGlobal:
        return PlainBuffer(u);
      case Op::kValid:
        return Place(u.src(0), c).valid;
      case Op::kLoad:
      case Op::kPreload: {
        const IndexedUOps at = Place(u.src(1), c);
        if (at.valid.is_const_int(0)) return g_.Const(u.dtype(), 0);
        const UOp buffer = u.src_count() == 3 ? done(2).src(0).src(0) : done(0);
        std::vector<UOp> src = {Address(buffer, at)};
        if (u.src_count() == 3) {
          src.push_back(g_.Make(Op::kBarrier, Scalar::kVoid, {done(2)}));
        }
        return As(u.dtype(), g_.Make(Op::kLoad, DType(buffer.scalar(), buffer.lanes()), src));
      }
      case Op::kStore: {
        IndexedUOps at = Place(u.src(1), c);
        if (IsLocal(u)) {
          at.valid = OfOneWorkItem(at.valid, &views_.at(u.src(1)).shape());
          return g_.Make(Op::kStore, Scalar::kVoid,
                         {Address(LocalBuffer(u, context), at), done(2)});
        }
        at.valid = OfOneWorkItem(at.valid, nullptr);
        if (at.valid.is_const_int(0)) return g_.Make(Op::kSink, Scalar::kVoid, {});
        const UOp buffer = done(0);
        return g_.Make(Op::kStore, Scalar::kVoid,
                       {Address(buffer, at), As(DType(buffer.scalar(), buffer.lanes()), done(2))});
      }
      case Op::kReduceAxis:
        return Reduce(u, contexts_[ContextOf(u, context)]);
      case Op::kSink: {
        std::vector<UOp> stores;
        for (int i = 0; i < u.src_count(); ++i) {
          if (done(i).is(Op::kStore)) stores.push_back(done(i));
        }
        return g_.Make(Op::kSink, Scalar::kVoid, AfterLoads(std::move(stores)));
      }
      default: {
        std::vector<UOp> src;
        src.reserve(u.src_count());
        for (int i = 0; i < u.src_count(); ++i) src.push_back(done(i));
        return u.WithSrc(src);
      }
    }
  }

  // An image is the buffer of its texels, row by row, four elements each.
  UOp PlainBuffer(UOp buffer) {
    if (!buffer.dtype().is_image()) return buffer;
    BufferArg arg = buffer.data<BufferArg>();
    arg.size_elements = static_cast<uint64_t>(ImageElements(buffer.dtype()));
    return g_.Make(Op::kDefineGlobal, DType::Pointer(buffer.scalar(), AddressSpace::kGlobal), {},
                   g_.Intern(std::move(arg)));
  }

  // Texels may be narrower than the values that an image gives and takes.
  UOp As(DType dtype, UOp value) {
    return value.dtype() == dtype ? value : g_.Make(Op::kCast, dtype, {value});
  }

  // ---- what the work-items of a group share ----

  // The memory that a store fills for the loads of one context; other contexts have their own.
  UOp LocalBuffer(UOp store, int context) {
    const UOp define = store.src(0);
    std::vector<int>& contexts = local_contexts_[define];
    auto it = std::ranges::find(contexts, context);
    if (it == contexts.end()) it = contexts.insert(it, context);
    std::string name = define.data<std::string>();
    if (it != contexts.begin()) absl::StrAppend(&name, "_", it - contexts.begin());
    const UOp elements = g_.Const(Scalar::kInt64, views_.at(store.src(1)).RealSize());
    return g_.Make(Op::kDefineLocal, define.dtype(), {elements}, g_.Intern(std::move(name)));
  }

  bool IsGrouped(int axis) const {
    return axis >= first_reduce_ && axis < group_end_ && reduced_[axis];
  }

  // Along grouped axes that a stored value doesn't vary with, and no output does, all work-items
  // know it; the first of them stores it. `shape`: that of what is stored; null: an output.
  UOp OfOneWorkItem(UOp valid, const Shape* shape) {
    for (int axis = first_reduce_; axis < group_end_; ++axis) {
      if (!IsGrouped(axis) || (shape != nullptr && !((*shape)[axis] == SInt(1)))) continue;
      valid = Simplify((launch_index_[axis] < 1) & valid);
    }
    return valid;
  }

  // Where that one overwrites what others of its group read, it waits for them.
  std::vector<UOp> AfterLoads(std::vector<UOp> stores) {
    if (group_end_ == first_reduce_ || stores.empty()) return stores;
    absl::flat_hash_set<UOp> loaded;
    for (const UOp u : nodes_) {
      if (u.is(Op::kLoad)) loaded.insert(u.src(0));
    }
    if (std::ranges::none_of(nodes_, [&](UOp u) {
          return u.is(Op::kStore) && !IsLocal(u) && loaded.contains(u.src(0));
        })) {
      return stores;
    }
    std::vector<UOp> values;
    values.reserve(stores.size());
    for (const UOp store : stores) values.push_back(store.src(1));
    const UOp barrier = g_.Make(Op::kBarrier, Scalar::kVoid, values);
    for (UOp& store : stores) {
      store = g_.Make(Op::kStore, Scalar::kVoid, {store.src(0), store.src(1), barrier});
    }
    return stores;
  }

  UOp Address(UOp buffer, const IndexedUOps& at) {
    if (at.valid.is_const_int(1)) return g_.Make(Op::kIndex, buffer.dtype(), {buffer, at.index});
    return g_.Make(Op::kIndex, buffer.dtype(), {buffer, at.index, at.valid});
  }

  IndexedUOps Place(UOp view, const Context& c) {
    IndexedUOps at = views_.at(view).ToIndexedUOps(g_, c.point);
    if (!at.valid.is_const()) {
      at.valid = SimplifyValid(at.valid);
      if (!at.valid.is_const()) at.index = SimplifyGiven(at.index, at.valid);
    }
    return at;
  }

  // A reduction over an axis of one element is the element; over none, its identity.
  UOp Reduce(UOp u, const Context& c) {
    std::vector<UOp> src = {c.done.at(u.src(0))};
    for (const int32_t axis : Reduction(u).axes) {
      if (c.point[axis].is(Op::kRange)) src.push_back(c.point[axis]);
    }
    if (src.size() == 1) return src[0];
    return g_.Make(Op::kReduce, u.dtype(), src, g_.Intern(ReduceArg{Reduction(u).op, {}}));
  }

  UOpGraph& g_;
  const UOp sink_;
  const TargetCaps& caps_;
  const std::vector<UOp> nodes_;
  absl::flat_hash_map<UOp, ShapeTracker> views_;
  Shape full_shape_;
  // Axes: global < first_local_ <= local < first_reduce_ <= of a group < group_end_ <= loops <
  // first_upcast_ <= unrolled.
  int rank_ = 0, first_local_ = 0, first_reduce_ = 0, group_end_ = 0, first_upcast_ = 0;
  std::vector<bool> reduced_;
  GridPlan grid_;
  std::vector<UOp> launch_index_;  // GPUs, by axis up to group_end_
  std::vector<AxisMask> varies_;   // by node id
  absl::flat_hash_map<UOp, int> group_;
  std::vector<AxisMask> group_varies_;  // of all its reductions
  absl::flat_hash_map<UOp, std::vector<int>> local_contexts_;
  std::map<std::pair<int, std::vector<uint32_t>>, int> context_of_;
  std::vector<Context> contexts_;
};

}  // namespace

absl::StatusOr<UOp> LowerIndexing(UOp sink, const TargetCaps& caps) {
  return Lowerer(sink, caps).Run();
}

}  // namespace beamd

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
#include "engine/lower/tile.h"
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
  Lowerer(UOp sink, const TargetCaps& caps, const TensorCore* core, int64_t group_items)
      : g_(sink.graph()),
        sink_(sink),
        caps_(caps),
        core_(core),
        nodes_(Toposort(sink)),
        group_items_(group_items) {}

  absl::StatusOr<UOp> Run() {
    BEAMD_RETURN_IF_ERROR(FindAxes());
    if (core_ != nullptr) FindTile();
    if (caps_.has_local) BEAMD_RETURN_IF_ERROR(PlanLaunch());
    FindDependence();
    GroupReductions();
    std::vector<UOp> output_point(rank_);
    for (int axis = 0; axis < rank_; ++axis) {
      output_point[axis] = reduced_[axis] ? g_.Const(Scalar::kInt64, 0) : OutputIndex(axis);
    }
    contexts_.push_back({std::move(output_point), {}});
    const UOp lowered = Lower();
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
    if (!info.dont_use_locals) group_items_.reset();
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

  // The axes of the tensor core's tile: the first local ones and the first unrolled ones, in the
  // order of its splits. Where they don't have its sizes any more, or the wave isn't its own, the
  // kernel is lowered like any other.
  void FindTile() {
    int local = first_local_, unrolled = first_upcast_;
    int64_t lanes = 1;
    for (const TensorCore::Split& split : core_->splits) {
      const bool is_local = split.op == OptOp::kLocal;
      const int axis = is_local ? local++ : unrolled++;
      if (axis >= (is_local ? first_reduce_ : rank_) ||
          !(full_shape_[axis] == SInt(int64_t{split.amount}))) {
        core_ = nullptr;
        return;
      }
      if (is_local) lanes *= split.amount;
      tile_axes_.push_back(axis);
    }
    if (lanes != caps_.wave_size) core_ = nullptr;
  }
  std::vector<int> TileAxes(OptOp op) const {
    std::vector<int> axes;
    for (size_t i = 0; i < core_->splits.size(); ++i) {
      if (core_->splits[i].op == op) axes.push_back(tile_axes_[i]);
    }
    return axes;
  }

  absl::Status PlanLaunch() {
    launch_index_.assign(rank_, UOp());
    const std::span<const SInt> shape = full_shape_;
    BEAMD_ASSIGN_OR_RETURN(grid_, PlanGrid(g_, shape.first(first_local_), caps_, group_items_));
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
  // touch neighbours in most buffers. A tensor core's lanes are numbered by their axes, the first of
  // which is the fastest.
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
    if (core_ != nullptr) {
      int priority = static_cast<int>(nodes_.size());
      for (const int axis : TileAxes(OptOp::kLocal)) neighbours[axis] = 2 * priority--;
    }
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

  // Where a tensor core's factor `i` of a reduction is evaluated: at the elements that a lane holds
  // of it, which a range of its own counts.
  static constexpr int kFactors = -2;
  int ContextOfFactor(UOp reduce, int i, int outer) {
    const std::vector<UOp> inside = contexts_[ContextOf(reduce, outer)].point;
    const auto [context, is_new] = ContextAt(kFactors - i, inside);
    if (is_new) {
      std::vector<UOp> threads;
      for (const int axis : TileAxes(OptOp::kLocal)) threads.push_back(launch_index_[axis]);
      const TensorCore::Layout& layout = i == 0 ? core_->a : core_->b;
      const std::vector<UOp> indices =
          TileIndices(*core_, layout, threads, ElementRange(i, context));
      for (size_t split = 0; split < indices.size(); ++split) {
        contexts_[context].point[tile_axes_[split]] = indices[split];
      }
    }
    return context;
  }
  UOp ElementRange(int factor, int context) {
    const int elements = (factor == 0 ? core_->a : core_->b).elements();
    return g_.Make(Op::kRange, Scalar::kInt64, {g_.Const(Scalar::kInt64, elements)},
                   g_.Intern(RangeArg{RangeArg::Kind::kUnroll, rank_ + factor, context}));
  }

  // What a node is computed from, and where that is asked for.
  std::vector<Frame> Operands(UOp u, int context) {
    std::vector<Frame> operands;
    if (u.is(Op::kReduceAxis) && core_ != nullptr) {
      const UOp product = core_->in == core_->out ? u.src(0) : u.src(0).src(0);
      for (int i = 0; i < 2; ++i) {
        operands.push_back({product.src(i), ContextOfFactor(u, i, context)});
      }
      return operands;
    }
    for (int i = 0; i < u.src_count(); ++i) {
      const UOp s = u.src(i);
      if (s.is(Op::kView)) continue;
      int inner = context;
      if (u.is(Op::kReduceAxis)) inner = ContextOf(u, context);
      if (u.is(Op::kLoad) && i == 2) inner = ContextOfStore(s, context);
      // An ASSIGN's value is what it stores; its target is not read.
      if (!u.is(Op::kAssign) || i != 0) operands.push_back({s, inner});
    }
    return operands;
  }

  UOp Lower() {
    std::vector<Frame> stack = {{sink_, 0}};
    while (!stack.empty()) {
      const Frame top = stack.back();
      if (contexts_[top.context].done.contains(top.node)) {
        stack.pop_back();
        continue;
      }
      const size_t before = stack.size();
      const std::vector<Frame> operands = Operands(top.node, top.context);
      for (auto it = operands.rbegin(); it != operands.rend(); ++it) {
        if (!contexts_[it->context].done.contains(it->node)) stack.push_back(*it);
      }
      if (stack.size() != before) continue;
      std::vector<UOp> values;
      values.reserve(operands.size());
      for (const Frame& o : operands) values.push_back(contexts_[o.context].done.at(o.node));
      const UOp lowered = LowerNode(top.node, top.context, values);
      contexts_[top.context].done[top.node] = lowered;
      stack.pop_back();
    }
    return contexts_[0].done.at(sink_);
  }

  // `values`: what its operands became.
  UOp LowerNode(UOp u, int context, const std::vector<UOp>& values) {
    const Context& c = contexts_[context];
    switch (u.op()) {
      case Op::kAssign:
      case Op::kBind:
        return values[0];
      case Op::kDefineGlobal:
        return PlainBuffer(u);
      case Op::kValid:
        return Place(u.src(0), c).valid;
      case Op::kLoad:
      case Op::kPreload: {
        const IndexedUOps at = Place(u.src(1), c);
        if (at.valid.is_const_int(0)) return g_.Const(u.dtype(), 0);
        // What a group shares is where the store has put it.
        const bool shared = values.size() > 1;
        const UOp buffer = shared ? values[1].src(0).src(0) : values[0];
        std::vector<UOp> src = {Address(buffer, at)};
        if (shared) src.push_back(g_.Make(Op::kBarrier, Scalar::kVoid, {values[1]}));
        return As(u.dtype(), g_.Make(Op::kLoad, DType(buffer.scalar(), buffer.lanes()), src));
      }
      case Op::kStore: {
        IndexedUOps at = Place(u.src(1), c);
        if (IsLocal(u)) {
          at.valid = OfOneWorkItem(at.valid, &views_.at(u.src(1)).shape());
          return g_.Make(Op::kStore, Scalar::kVoid,
                         {Address(LocalBuffer(u, context), at), values[1]});
        }
        at.valid = OfOneWorkItem(at.valid, nullptr);
        if (at.valid.is_const_int(0)) return g_.Make(Op::kSink, Scalar::kVoid, {});
        const DType dtype(values[0].scalar(), values[0].lanes());
        return g_.Make(Op::kStore, Scalar::kVoid, {Address(values[0], at), As(dtype, values[1])});
      }
      case Op::kReduceAxis:
        return core_ != nullptr ? Product(u, context, values) : Reduce(u, context, values[0]);
      case Op::kSink: {
        std::vector<UOp> stores;
        for (const UOp store : values) {
          if (store.is(Op::kStore)) stores.push_back(store);
        }
        return g_.Make(Op::kSink, Scalar::kVoid, AfterLoads(std::move(stores)));
      }
      default:
        return u.WithSrc(values);
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
  UOp Reduce(UOp u, int context, UOp value) {
    std::vector<UOp> src = {value};
    const std::vector<UOp>& point = contexts_[ContextOf(u, context)].point;
    for (const int32_t axis : Reduction(u).axes) {
      if (point[axis].is(Op::kRange)) src.push_back(point[axis]);
    }
    if (src.size() == 1) return src[0];
    return g_.Make(Op::kReduce, u.dtype(), src, g_.Intern(ReduceArg{Reduction(u).op, {}}));
  }

  // The sum of a tensor core's products: WMMA(a, b, the ranges of their elements, the output's
  // ranges within the tile, the ranges summed over that are left).
  UOp Product(UOp u, int context, const std::vector<UOp>& values) {
    std::vector<UOp> src = values;
    for (int i = 0; i < 2; ++i) src.push_back(ElementRange(i, ContextOfFactor(u, i, context)));
    for (const int axis : TileAxes(OptOp::kUpcast)) src.push_back(contexts_[context].point[axis]);
    const std::vector<int> within = TileAxes(OptOp::kUnroll);
    const std::vector<UOp>& point = contexts_[ContextOf(u, context)].point;
    for (const int32_t axis : Reduction(u).axes) {
      if (point[axis].is(Op::kRange) && std::ranges::find(within, axis) == within.end()) {
        src.push_back(point[axis]);
      }
    }
    return g_.Make(Op::kWmma, u.dtype(), src, Arg::Int(core_ - TensorCoresOf(caps_).data()));
  }

  UOpGraph& g_;
  const UOp sink_;
  const TargetCaps& caps_;
  const TensorCore* core_;      // null: none
  std::vector<int> tile_axes_;  // of its splits
  const std::vector<UOp> nodes_;
  absl::flat_hash_map<UOp, ShapeTracker> views_;
  Shape full_shape_;
  // Axes: global < first_local_ <= local < first_reduce_ <= of a group < group_end_ <= loops <
  // first_upcast_ <= unrolled.
  int rank_ = 0, first_local_ = 0, first_reduce_ = 0, group_end_ = 0, first_upcast_ = 0;
  std::vector<bool> reduced_;
  std::optional<int64_t> group_items_;  // no local axes, groups of our choice
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

absl::StatusOr<UOp> LowerIndexing(UOp sink, const TargetCaps& caps, const TensorCore* core,
                                  int64_t group_items) {
  return Lowerer(sink, caps, core, group_items).Run();
}

}  // namespace beamd

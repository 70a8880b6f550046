#include "engine/lower/lower_indexing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"
#include "engine/shape/shape_tracker.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

class Lowerer {
 public:
  explicit Lowerer(UOp sink) : g_(sink.graph()), sink_(sink), nodes_(Toposort(sink)) {}

  absl::StatusOr<UOp> Run() {
    BEAMD_RETURN_IF_ERROR(FindAxes());
    GroupReductions();
    std::vector<UOp> output_point(rank_);
    for (int axis = 0; axis < rank_; ++axis) {
      output_point[axis] = reduced_[axis] ? g_.Const(Scalar::kInt64, 0) : Range(axis, 0);
    }
    contexts_.push_back({std::move(output_point), {}});
    return Lower();
  }

 private:
  // Where a value is asked for: the index of each axis. 0 is the output's point; each group of
  // reductions opens one more inside the context that its results are used in.
  struct Context {
    std::vector<UOp> point;
    absl::flat_hash_map<UOp, UOp> done;
  };
  struct Frame {
    UOp node;
    int context;
  };

  static const ReduceArg& Reduction(UOp u) { return u.data<ReduceArg>(); }

  absl::Status FindAxes() {
    const KernelInfo info = sink_.has_data<KernelInfo>() ? sink_.data<KernelInfo>() : KernelInfo();
    if (info.local_dims != 0) return absl::UnimplementedError("local axes need a GPU target");
    for (const UOp u : nodes_) {
      if (u.is(Op::kDefineLocal))
        return absl::UnimplementedError("shared memory needs a GPU target");
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
    reduced_.assign(rank_, false);
    for (const UOp u : nodes_) {
      if (!u.is(Op::kReduceAxis)) continue;
      for (const int32_t axis : Reduction(u).axes) {
        if (axis >= rank_)
          return absl::InvalidArgumentError("a reduction over an axis past the rank");
        reduced_[axis] = true;
      }
    }
    for (int axis = std::max(first_upcast_, 0); axis < rank_; ++axis) {
      if (!full_shape_[axis].is_number()) {
        return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is symbolic and upcast"));
      }
    }
    return absl::OkStatus();
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
        group_[u] = groups.emplace(key, static_cast<int>(groups.size()) + 1).first->second;
        ++s;
      }
      stage[u] = s;
    }
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

  int ContextOf(UOp reduce, int outer) {
    const auto [it, is_new] = context_of_.emplace(std::make_pair(outer, group_.at(reduce)),
                                                  static_cast<int>(contexts_.size()));
    if (is_new) {
      std::vector<UOp> point = contexts_[outer].point;
      for (const int32_t axis : Reduction(reduce).axes) {
        point[axis] = Range(axis, it->second);
      }
      contexts_.push_back({std::move(point), {}});
    }
    return it->second;
  }

  absl::StatusOr<UOp> Lower() {
    std::vector<Frame> stack = {{sink_, 0}};
    while (!stack.empty()) {
      const Frame top = stack.back();
      if (contexts_[top.context].done.contains(top.node)) {
        stack.pop_back();
        continue;
      }
      const int inner =
          top.node.is(Op::kReduceAxis) ? ContextOf(top.node, top.context) : top.context;
      const size_t before = stack.size();
      for (int i = top.node.src_count() - 1; i >= 0; --i) {
        const UOp s = top.node.src(i);
        // An ASSIGN's value is what it stores; its target is not read.
        if (s.is(Op::kView) || (top.node.is(Op::kAssign) && i == 0)) continue;
        if (!contexts_[inner].done.contains(s)) stack.push_back({s, inner});
      }
      if (stack.size() != before) continue;
      BEAMD_ASSIGN_OR_RETURN(const UOp lowered, LowerNode(top.node, contexts_[inner]));
      contexts_[top.context].done[top.node] = lowered;
      stack.pop_back();
    }
    return contexts_[0].done.at(sink_);
  }

  absl::StatusOr<UOp> LowerNode(UOp u, const Context& c) {
    const auto done = [&](int i) { return c.done.at(u.src(i)); };
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
        const UOp buffer = done(0);
        return As(u.dtype(), g_.Make(Op::kLoad, DType(buffer.scalar(), buffer.lanes()),
                                     {Address(buffer, at)}));
      }
      case Op::kStore: {
        const IndexedUOps at = Place(u.src(1), c);
        if (at.valid.is_const_int(0)) return g_.Make(Op::kSink, Scalar::kVoid, {});
        const UOp buffer = done(0);
        return g_.Make(Op::kStore, Scalar::kVoid,
                       {Address(buffer, at), As(DType(buffer.scalar(), buffer.lanes()), done(2))});
      }
      case Op::kReduceAxis:
        return Reduce(u, c);
      case Op::kSink: {
        std::vector<UOp> stores;
        for (int i = 0; i < u.src_count(); ++i) {
          if (done(i).is(Op::kStore)) stores.push_back(done(i));
        }
        return g_.Make(Op::kSink, Scalar::kVoid, stores);
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
  const std::vector<UOp> nodes_;
  absl::flat_hash_map<UOp, ShapeTracker> views_;
  Shape full_shape_;
  int rank_ = 0, first_upcast_ = 0;
  std::vector<bool> reduced_;
  absl::flat_hash_map<UOp, int> group_;
  std::map<std::pair<int, int>, int> context_of_;
  std::vector<Context> contexts_;
};

}  // namespace

absl::StatusOr<UOp> LowerIndexing(UOp sink) { return Lowerer(sink).Run(); }

}  // namespace beamd

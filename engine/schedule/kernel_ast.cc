#include "engine/schedule/kernel_ast.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

std::string Describe(const LazyBuffer& b) {
  return absl::StrCat(
      "a ", ToString(DType(b.dtype())), " tensor of shape (",
      absl::StrJoin(b.shape(), ", ",
                    [](std::string* out, const SInt& s) { absl::StrAppend(out, ToString(s)); }),
      ")");
}

class Builder {
 public:
  Builder(const LazyGraph& graph, const std::vector<bool>& realized, const KernelGroup& group,
          UOpGraph& uops)
      : graph_(graph), realized_(realized), group_(group), uops_(uops) {}

  absl::StatusOr<KernelAst> Build() {
    kernel_shape_ = group_.reduce != kNoBase ? graph_.bases[group_.reduce].buffer.shape()
                                             : StoredShape(group_.outputs[0]);
    if (absl::StatusOr<KernelAst> ast = BuildOnce(); ast.ok() || !moved_reduce_) return ast;
    // The reduction is seen moved about: it goes behind the axes of what is stored.
    const LazyBase& reduce = graph_.bases[group_.reduce];
    kernel_shape_ = StoredShape(group_.outputs[0]);
    kernel_shape_.resize(
        kernel_shape_.size() + std::get<ReduceArg>(reduce.buffer.arg()).axes.size(), SInt(1));
    reduce_last_ = true;
    return BuildOnce();
  }

 private:
  // A base whose value is wanted through `st`.
  struct Frame {
    BaseId id;
    ShapeTracker st;         // how its value is seen
    ShapeTracker source_st;  // how its sources' readers see: st, but for a reduction
    ReduceArg reduce;
    size_t next = 0;
    absl::InlinedVector<UOp, 3> src;
  };

  // The value that a base stores: of an ASSIGN, what is assigned.
  Shape StoredShape(BaseId id) const {
    const LazyBase& base = graph_.bases[id];
    return base.op == Op::kAssign ? base.sources[1].source.shape() : base.buffer.shape();
  }

  absl::StatusOr<KernelAst> BuildOnce() {
    result_ = KernelAst();
    reads_.clear();
    slots_.clear();
    values_.clear();
    moved_reduce_ = false;
    absl::InlinedVector<UOp, 4> stores;
    std::vector<ShapeTracker> stored;  // how each output is
    for (BaseId id : group_.outputs) {
      const LazyBase& base = graph_.bases[id];
      const size_t slot = SlotOf(base.buffer.buffer());
      result_.buffers[slot].written = true;
      ShapeTracker seen = ShapeTracker::FromShape(kernel_shape_);
      const UOp value = Value(id, seen);
      if (!value) return absl::InternalError("a reduction is seen moved about");
      if (const auto* into = std::get_if<std::shared_ptr<const ShapeTracker>>(&base.buffer.arg())) {
        seen = SeenThrough(**into, seen);
      }
      stores.push_back(uops_.Make(Op::kStore, DType(), {Global(slot), View(seen), value}));
      stored.push_back(std::move(seen));
    }
    for (size_t i = 0; i < stored.size(); ++i) {
      BEAMD_RETURN_IF_ERROR(CheckOwnReads(graph_.bases[group_.outputs[i]], stored[i]));
    }
    result_.sink = uops_.Make(Op::kSink, DType(), stores);
    return std::move(result_);
  }

  // A kernel may read the buffer that it writes only where it writes.
  absl::Status CheckOwnReads(const LazyBase& output, const ShapeTracker& stored) const {
    const std::shared_ptr<TensorBuffer>& target = output.buffer.buffer();
    const auto root = [](const std::shared_ptr<TensorBuffer>& b) {
      return b->parent ? b->parent.get() : b.get();
    };
    for (const Read& read : reads_) {
      if (root(read.buffer) != root(target)) continue;
      if (read.buffer == target && (read.st == stored || WithinOwn(read.st, stored))) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "ASSIGN to ", Describe(output.buffer),
          ": its value reads other elements of what is overwritten; make a copy of them first: "
          "x.Assign(x + x.T().Contiguous()) instead of x.Assign(x + x.T()), Clone() for "
          "consecutive "
          "elements"));
    }
    return absl::OkStatus();
  }

  // `st` shows a part of `stored` in place, the rest masked.
  static bool WithinOwn(const ShapeTracker& st, const ShapeTracker& stored) {
    if (st.views().size() != 1 || !st.views()[0].mask || st.shape() != stored.shape()) return false;
    const Mask& mask = *st.views()[0].mask;
    return st.Shrink(mask) == stored.Shrink(mask);
  }

  UOp View(const ShapeTracker& st) { return st.Simplify().ToUOp(uops_); }

  size_t SlotOf(const std::shared_ptr<TensorBuffer>& buffer) {
    const auto [it, made] = slots_.try_emplace(buffer.get(), result_.buffers.size());
    if (made) result_.buffers.push_back({buffer});
    return it->second;
  }
  UOp Global(size_t slot) {
    return uops_.Make(Op::kDefineGlobal, result_.buffers[slot].buffer->pointer(), {},
                      uops_.Intern(BufferArg{.id = slot}));
  }

  UOp Load(const LazyBuffer& base, BaseId id, const ShapeTracker& st) {
    const size_t slot = SlotOf(base.buffer());
    KernelAst::Buffer& buffer = result_.buffers[slot];
    if (id == kNoBase) {
      buffer.read_old = true;
      reads_.push_back({base.buffer(), st});
    } else {
      buffer.read_new = id;
      // A window shows the memory that it is a window of, as it is.
      if (graph_.bases[id].op == Op::kBufferView) reads_.push_back({base.buffer(), st});
    }
    return uops_.Make(Op::kLoad, base.dtype(), {Global(slot), View(st)});
  }

  // A masked element of a constant is 0.
  UOp Constant(const LazyBuffer& base, const ShapeTracker& st) {
    const Scalar s = base.dtype();
    UOp value;
    if (const auto* expression = std::get_if<UOp>(&base.arg())) {
      value = uops_.Import(*expression);
      if (value.dtype() != DType(s)) value = uops_.Make(Op::kCast, s, {value});
    } else {
      const ConstValue v = base.const_value();
      value = v.is_float() ? uops_.ConstFloat(s, v.as_float()) : uops_.Const(s, v.as_int());
    }
    const UOp valid = uops_.Make(Op::kValid, Scalar::kBool, {View(st)});
    return uops_.Make(Op::kWhere, s,
                      {valid, value, value.is_const() ? value.ConstLike(0) : uops_.Const(s, 0)});
  }

  bool Computed(BaseId id) const {
    return id != kNoBase &&
           (!realized_[id] ||
            std::find(group_.outputs.begin(), group_.outputs.end(), id) != group_.outputs.end());
  }

  UOp* Known(BaseId id, const ShapeTracker& st) {
    for (auto& [seen, value] : values_[id]) {
      if (seen == st) return &value;
    }
    return nullptr;
  }

  // Opens a base that is computed in this kernel. False: a reduction that isn't seen as it lies.
  bool Open(std::vector<Frame>& stack, BaseId id, const ShapeTracker& st) {
    Frame frame{id, st, st, {}, 0, {}};
    const LazyBase& base = graph_.bases[id];
    if (base.op == Op::kAssign) frame.next = 1;  // the target is not read
    if (base.op == Op::kReduceAxis) {
      frame.reduce = std::get<ReduceArg>(base.buffer.arg());
      const Shape& from = base.sources[0].source.shape();
      if (reduce_last_) {
        frame.source_st = ReducedLast(st, from, frame.reduce);
      } else if (st.contiguous() && st.shape() == base.buffer.shape()) {
        frame.source_st = ShapeTracker::FromShape(from);
      } else {
        moved_reduce_ = true;
        return false;
      }
    }
    stack.push_back(std::move(frame));
    return true;
  }

  // How the source of a reduction is seen if its result is seen through `st` (with a 1 for each
  // reduced axis at the end) and the reduced axes follow; `reduce` then folds those.
  ShapeTracker ReducedLast(const ShapeTracker& st, const Shape& from, ReduceArg& reduce) const {
    std::vector<int> order;
    Shape folded;
    for (int i = 0; i < static_cast<int>(from.size()); ++i) {
      const bool is_folded =
          std::find(reduce.axes.begin(), reduce.axes.end(), i) != reduce.axes.end();
      if (is_folded) {
        folded.push_back(from[i]);
      } else {
        order.push_back(i);
      }
    }
    order.insert(order.end(), reduce.axes.begin(), reduce.axes.end());
    const SInt count = Prod(folded);
    const Shape folded_strides = StridesForShape(folded);
    const Shape& whole = st.shape();
    const Shape kept(whole.begin(), whole.end() - static_cast<int64_t>(folded.size()));
    std::vector<beamd::View> views;
    const ShapeTracker seen = st.Reshape(kept);
    for (const beamd::View& v : seen.views()) {
      Shape shape = v.shape;
      Shape strides;
      for (const SInt& s : v.strides) strides.push_back(s * count);
      std::optional<Mask> mask = v.mask;
      for (size_t i = 0; i < folded.size(); ++i) {
        shape.push_back(folded[i]);
        strides.push_back(folded_strides[i]);
        if (mask) mask->push_back({SInt(0), folded[i]});
      }
      views.push_back(beamd::View::Create(shape, strides, v.offset * count, mask));
    }
    reduce.axes.resize(folded.size());
    std::iota(reduce.axes.begin(), reduce.axes.end(), static_cast<int32_t>(kept.size()));
    return ShapeTracker::FromShape(from).Permute(order).Compose(ShapeTracker(std::move(views)));
  }

  // The value of a base of this group seen through `st`; null if a reduction stood in the way.
  UOp Value(BaseId id, const ShapeTracker& st) {
    if (UOp* known = Known(id, st)) return *known;
    std::vector<Frame> stack;
    if (!Open(stack, id, st)) return UOp();
    while (true) {
      Frame& frame = stack.back();
      const LazyBase& base = graph_.bases[frame.id];
      if (frame.next < base.sources.size()) {
        const LazyEdge& edge = base.sources[frame.next];
        const ShapeTracker seen = SeenThrough(edge.source.st(), frame.source_st);
        UOp value;
        if (Computed(edge.id)) {
          if (UOp* known = Known(edge.id, seen)) {
            value = *known;
          } else {
            if (!Open(stack, edge.id, seen)) return UOp();
            continue;
          }
        } else if (edge.id == kNoBase && !edge.base.is_realized()) {
          value = Constant(edge.base, seen);
        } else {
          value = Load(edge.base, edge.id, seen);
        }
        frame.src.push_back(value);
        ++frame.next;
        continue;
      }
      const UOp value = Compute(base, frame);
      values_[frame.id].emplace_back(frame.st, value);
      stack.pop_back();
      if (stack.empty()) return value;
      stack.back().src.push_back(value);
      ++stack.back().next;
    }
  }

  UOp Compute(const LazyBase& base, const Frame& frame) {
    switch (base.op) {
      case Op::kContiguous:
      case Op::kAssign:
        return frame.src[0];
      case Op::kCast:
        // To an image: how a value is stored changes nothing of it.
        if (frame.src[0].dtype() == DType(base.buffer.dtype())) return frame.src[0];
        return uops_.Make(Op::kCast, base.buffer.dtype(), frame.src);
      case Op::kReduceAxis:
        return uops_.Make(Op::kReduceAxis, base.buffer.dtype(), frame.src,
                          uops_.Intern(frame.reduce));
      default:
        return uops_.Make(base.op, base.buffer.dtype(), frame.src);
    }
  }

  struct Read {
    std::shared_ptr<TensorBuffer> buffer;
    ShapeTracker st;
  };

  const LazyGraph& graph_;
  const std::vector<bool>& realized_;
  const KernelGroup& group_;
  UOpGraph& uops_;
  Shape kernel_shape_;
  bool reduce_last_ = false;
  bool moved_reduce_ = false;
  KernelAst result_;
  std::vector<Read> reads_;  // of values from before the schedule
  absl::flat_hash_map<const TensorBuffer*, size_t> slots_;
  absl::flat_hash_map<BaseId, std::vector<std::pair<ShapeTracker, UOp>>> values_;
};

}  // namespace

absl::StatusOr<KernelAst> BuildKernelAst(const LazyGraph& graph, const std::vector<bool>& realized,
                                         const KernelGroup& group, UOpGraph& uops) {
  return Builder(graph, realized, group, uops).Build();
}

}  // namespace beamd

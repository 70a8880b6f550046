#include "engine/tensor/graph_gradient.h"

#include <algorithm>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/dtype/promotion.h"
#include "engine/shape/movements.h"
#include "engine/uop/sizes.h"
#include "engine/uop/verify.h"

namespace beamd {
namespace {

constexpr OpSet kMovements =
    Op::kReshape | Op::kExpand | Op::kPermute | Op::kPad | Op::kShrink | Op::kFlip;

class GradientBuilder {
 public:
  GradientBuilder(TensorGraphInfo info, UOp root)
      : info_(std::move(info)),
        root_(root),
        graph_(root.graph()),
        depends_(graph_.size()),
        gradients_(graph_.size()) {
    for (const UOp u : info_.nodes()) {
      if (u.is(Op::kDefineVar)) variables_.emplace(u.data<VariableArg>().name, u);
    }
  }

  absl::StatusOr<UOp> Build(std::span<const uint64_t> buffers) {
    BEAMD_RETURN_IF_ERROR(CheckOutput());
    BEAMD_ASSIGN_OR_RETURN(const std::vector<UOp> wanted, Wanted(buffers));
    FindDependents();
    const UOp output = Outputs()[0];
    if (depends_[output.id()]) gradients_[output.id()] = Filled(output, 1);
    const std::vector<UOp>& nodes = info_.nodes();
    for (size_t i = nodes.size(); i-- > 0;) {
      const UOp gradient = gradients_[nodes[i].id()];
      if (!gradient || nodes[i].is(Op::kBuffer)) continue;
      BEAMD_RETURN_IF_ERROR(Propagate(nodes[i], gradient));
    }
    std::vector<UOp> sources(Outputs().begin(), Outputs().end());
    for (const UOp buffer : wanted) {
      const UOp gradient = gradients_[buffer.id()];
      sources.push_back(gradient ? gradient : Filled(buffer, 0));
    }
    return graph_.Make(Op::kSink, DType(), sources);
  }

 private:
  absl::Status Fault(UOp u, absl::string_view reason, absl::string_view what,
                     absl::string_view field = "") const {
    return NodeError(info_.of(u).index, u.op(), what,
                     {.reason = std::string(reason), .field = std::string(field)});
  }

  std::span<const UOp> Outputs() const {
    return root_.is(Op::kSink) ? root_.src() : std::span<const UOp>(&root_, 1);
  }

  // ---- what is asked for ----

  absl::Status CheckOutput() const {
    if (Outputs().empty()) return Fault(root_, "OUTPUT", "has no outputs to differentiate");
    const UOp output = Outputs()[0];
    const Shape& shape = info_.shape(output);
    if (!IsFloat(output.scalar())) {
      return Fault(
          output, "OUTPUT_DTYPE",
          absl::StrCat("output 0 is of ", Name(output.scalar()), ": only floats have gradients"),
          "dtype");
    }
    if (!ProvenEq(Prod(shape), 1)) {
      return Fault(output, "OUTPUT_SHAPE",
                   absl::StrCat("output 0 has ", ToString(Prod(shape)),
                                " elements: only of one are there gradients"));
    }
    // The memory itself as an output is what it holds in the end, which is what is assigned; a part
    // of it could be meant so too.
    const UOp memory = info_.of(output).buffer;
    for (const UOp u : info_.nodes()) {
      if (!memory || !u.is(Op::kAssign) || info_.of(u.src(0)).buffer != memory) continue;
      return Fault(output, "OUTPUT_ASSIGNED",
                   absl::StrCat("output 0 is memory that node ", info_.of(u).index,
                                " assigns to; name the ASSIGN, or the value"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<UOp>> Wanted(std::span<const uint64_t> ids) {
    absl::flat_hash_map<uint64_t, UOp> buffers;
    for (const UOp u : info_.nodes()) {
      if (u.is(Op::kBuffer)) buffers.emplace(u.data<BufferArg>().id, u);
    }
    std::vector<UOp> wanted;
    absl::flat_hash_set<uint64_t> seen;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string field = absl::StrCat("gradients[", i, "]");
      const auto found = buffers.find(ids[i]);
      if (found == buffers.end()) {
        return InvalidArgument(absl::StrCat(field, ": the graph has no BUFFER ", ids[i]),
                               {.reason = "BUFFER", .field = field});
      }
      const UOp buffer = found->second;
      if (!IsFloat(buffer.scalar())) {
        return Fault(buffer, "BUFFER_DTYPE",
                     absl::StrCat(field, ": buffer ", ids[i], " is of ", Name(buffer.scalar()),
                                  ": only floats have gradients"),
                     field);
      }
      if (!seen.insert(ids[i]).second) {
        return InvalidArgument(absl::StrCat(field, ": buffer ", ids[i], " stands there twice"),
                               {.reason = "DUPLICATE", .field = field});
      }
      depends_[buffer.id()] = true;
      wanted.push_back(buffer);
    }
    return wanted;
  }

  // The floats that a change of a wanted buffer changes smoothly.
  void FindDependents() {
    for (const UOp u : info_.nodes()) {
      if (!IsFloat(u.scalar()) || u.is(Op::kBitcast)) continue;
      const int values = SizesBegin(u.op()).value_or(u.src_count());
      for (int i = 0; i < values; ++i) {
        if (depends_[u.src(i).id()]) depends_[u.id()] = true;
      }
    }
  }

  // ---- making nodes ----

  UOp Make(Op op, UOp a) { return graph_.Make(op, a.dtype(), {a}); }
  UOp Make(Op op, UOp a, UOp b) {
    const DType dtype = kComparison.Has(op) ? DType(Scalar::kBool) : a.dtype();
    return graph_.Make(op, dtype, {a, b});
  }
  UOp Select(UOp condition, UOp a, UOp b) {
    return graph_.Make(Op::kWhere, a.dtype(), {condition, a, b});
  }
  UOp CastTo(UOp x, Scalar dtype) {
    return x.scalar() == dtype ? x : graph_.Make(Op::kCast, dtype, {x});
  }

  // `value` everywhere, of this shape and dtype.
  UOp Filled(const Shape& shape, Scalar dtype, double value) {
    const UOp constant =
        dtype == Scalar::kBool ? graph_.Bool(value != 0) : graph_.ConstFloat(dtype, value);
    if (shape.empty()) return constant;
    return Moved(Moved(constant, {Op::kReshape, Shape(shape.size(), SInt(1))}),
                 {Op::kExpand, shape});
  }
  UOp Filled(UOp like, double value) { return Filled(info_.shape(like), like.scalar(), value); }

  UOp Reduced(UOp x, Op op, std::vector<int32_t> axes) {
    return graph_.Make(Op::kReduceAxis, x.dtype(), {x},
                       graph_.Intern(ReduceArg{op, std::move(axes)}));
  }

  // A size is in 64 bits, its variables too, but a variable has one node a graph.
  UOp Expression(UOp size) {
    std::vector<UOp> wide, instead;
    for (const UOp u : Toposort(size)) {
      if (!u.is(Op::kDefineVar)) continue;
      wide.push_back(u);
      instead.push_back(CastTo(variables_.at(u.data<VariableArg>().name), u.scalar()));
    }
    return Substitute(size, wide, instead);
  }

  UOp Moved(UOp x, const Movement& move) {
    std::vector<UOp> src = {x};
    std::vector<IntOrSrc> values;
    for (const SInt& size : move.values) {
      if (size.is_number()) {
        values.push_back({size.number(), -1});
        continue;
      }
      const UOp u = Expression(size.expr());
      auto at = std::find(src.begin() + 1, src.end(), u);
      if (at == src.end()) at = src.insert(src.end(), u);
      values.push_back({0, static_cast<int32_t>(at - src.begin())});
    }
    return graph_.Make(move.op, x.dtype(), src, graph_.Intern(IntsArg{std::move(values)}));
  }

  // The transpose: `gradient` of moved(x), x of shape `in`, as that of x.
  UOp MovedBack(UOp gradient, const Movement& move, const Shape& in) {
    switch (move.op) {
      case Op::kReshape:
        return Moved(gradient, {Op::kReshape, in});
      case Op::kExpand:
        return Collected(gradient, move.values, in);
      case Op::kPermute: {
        Shape inverse(in.size());
        for (size_t i = 0; i < in.size(); ++i) {
          inverse[move.values[i].number()] = static_cast<int64_t>(i);
        }
        return Moved(gradient, {Op::kPermute, inverse});
      }
      case Op::kPad: {
        Shape kept;
        for (size_t i = 0; i < in.size(); ++i) {
          kept.push_back(move.values[2 * i]);
          kept.push_back(move.values[2 * i] + in[i]);
        }
        return Moved(gradient, {Op::kShrink, kept});
      }
      case Op::kShrink: {
        Shape margin;
        for (size_t i = 0; i < in.size(); ++i) {
          margin.push_back(move.values[2 * i]);
          margin.push_back(in[i] - move.values[2 * i + 1]);
        }
        return Moved(gradient, {Op::kPad, margin});
      }
      default:  // FLIP
        return Moved(gradient, move);
    }
  }

  // Of an EXPAND from `in` to `out`: every copy's gradient, added in a type that has room.
  UOp Collected(UOp gradient, const Shape& out, const Shape& in) {
    std::vector<int32_t> axes;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!ProvenEq(in[i], out[i])) axes.push_back(static_cast<int32_t>(i));
    }
    if (axes.empty()) return gradient;
    const UOp sum = Reduced(CastTo(gradient, SumAccDType(gradient.scalar())), Op::kAdd, axes);
    return CastTo(sum, gradient.scalar());
  }

  SInt Size(UOp u, const IntOrSrc& v) const {
    return v.src < 0 ? SInt(v.value) : *info_.of(u.src(v.src)).size;
  }
  Movement MovementOf(UOp u) const {
    Movement move{u.op(), {}};
    for (const IntOrSrc& v : u.data<IntsArg>().values) move.values.push_back(Size(u, v));
    return move;
  }

  // ---- the rules ----

  bool Depends(UOp u, int src) const { return depends_[u.src(src).id()]; }

  // Adds to the gradient of a source that depends on what is wanted.
  void Give(UOp u, int src, UOp gradient) {
    if (!Depends(u, src)) return;
    UOp& sum = gradients_[u.src(src).id()];
    sum = sum ? Make(Op::kAdd, sum, gradient) : gradient;
  }

  // `u` depends on what is wanted, and `g` is its gradient.
  absl::Status Propagate(UOp u, UOp g) {
    if (u.is(kMovements)) {
      Give(u, 0, MovedBack(g, MovementOf(u), info_.shape(u.src(0))));
      return absl::OkStatus();
    }
    switch (u.op()) {
      case Op::kContiguous:
        Give(u, 0, g);
        break;
      case Op::kCast:
        Give(u, 0, CastTo(g, u.src(0).scalar()));
        break;
      case Op::kCopy: {
        const std::string& from = info_.device(u.src(0));
        if (from.empty()) {
          return Fault(u, "DEVICE", "its gradient goes back to a device that has no name",
                       "src[0]");
        }
        Give(u, 0, graph_.Make(Op::kCopy, g.dtype(), {g}, graph_.Intern(from)));
        break;
      }
      case Op::kReduceAxis:
        Reduce(u, g);
        break;
      case Op::kAssign:
        return Assign(u, g);
      default:
        if (u.src_count() == 1) {
          Give(u, 0, Unary(u, g));
        } else {
          Several(u, g);
        }
    }
    return absl::OkStatus();
  }

  UOp Unary(UOp u, UOp g) {
    const UOp x = u.src(0);
    switch (u.op()) {
      case Op::kNeg:
        return Make(Op::kNeg, g);
      case Op::kRecip:
        return Make(Op::kMul, Make(Op::kMul, Make(Op::kNeg, g), u), u);
      case Op::kExp2:
        return Make(Op::kMul, Make(Op::kMul, u, Filled(u, std::numbers::ln2)), g);
      case Op::kLog2:
        return Make(Op::kFdiv, g, Make(Op::kMul, x, Filled(u, std::numbers::ln2)));
      case Op::kSin: {
        const UOp beside = Make(Op::kSub, Filled(u, std::numbers::pi / 2), x);
        return Make(Op::kMul, Make(Op::kSin, beside), g);
      }
      case Op::kSqrt:
        return Make(Op::kFdiv, g, Make(Op::kMul, u, Filled(u, 2)));
      default:
        BEAMD_CHECK(false, Name(u.op()));
    }
  }

  // ALU ops of two or three sources.
  void Several(UOp u, UOp g) {
    const UOp x = u.src(0), y = u.src(1);
    switch (u.op()) {
      case Op::kAdd:
        Give(u, 0, g);
        Give(u, 1, g);
        break;
      case Op::kSub:
        Give(u, 0, g);
        if (Depends(u, 1)) Give(u, 1, Make(Op::kNeg, g));
        break;
      case Op::kMulAcc:
        Give(u, 2, g);
        [[fallthrough]];
      case Op::kMul:
        if (Depends(u, 0)) Give(u, 0, Make(Op::kMul, y, g));
        if (Depends(u, 1)) Give(u, 1, Make(Op::kMul, x, g));
        break;
      case Op::kFdiv: {
        const UOp part = Make(Op::kFdiv, g, y);
        Give(u, 0, part);
        if (Depends(u, 1)) Give(u, 1, Make(Op::kNeg, Make(Op::kMul, part, u)));
        break;
      }
      case Op::kMax:
        Max(u, g);
        break;
      case Op::kWhere:
        if (Depends(u, 1)) Give(u, 1, Select(x, g, Filled(u, 0)));
        if (Depends(u, 2)) Give(u, 2, Select(x, Filled(u, 0), g));
        break;
      default:
        BEAMD_CHECK(false, Name(u.op()));
    }
  }

  void Max(UOp u, UOp g) {
    const UOp zero = Filled(u, 0);
    for (int side = 0; side < 2; ++side) {
      if (!Depends(u, side)) continue;
      const UOp mine = u.src(side), other = u.src(1 - side);
      if (IsZero(other)) {
        Give(u, side, Select(Make(Op::kCmpLt, zero, u), g, zero));
        continue;
      }
      const UOp half = Make(Op::kMul, g, Filled(u, 0.5));
      const UOp not_less = Select(Make(Op::kCmpLt, other, mine), g, half);
      Give(u, side, Select(Make(Op::kCmpLt, mine, other), zero, not_less));
    }
  }
  // A constant 0, moved or not.
  static bool IsZero(UOp u) {
    while (u.is(kMovements | Op::kContiguous)) u = u.src(0);
    return u.is_const() && u.float_value() == 0;
  }

  void Reduce(UOp u, UOp g) {
    const UOp x = u.src(0);
    const ReduceArg& reduce = u.data<ReduceArg>();
    const Movement spread{Op::kExpand, info_.shape(x)};
    switch (reduce.op) {
      case Op::kAdd:
        return Give(u, 0, Moved(g, spread));
      case Op::kMul:
        return Give(u, 0, Make(Op::kFdiv, Moved(Make(Op::kMul, g, u), spread), x));
      default: {  // MAX
        const UOp differs = Make(Op::kCmpNe, x, Moved(u, spread));
        const UOp chosen =
            CastTo(Make(Op::kCmpNe, differs, Filled(info_.shape(x), Scalar::kBool, 1)), g.scalar());
        const UOp ties = Moved(Reduced(chosen, Op::kAdd, reduce.axes), spread);
        return Give(u, 0, Make(Op::kMul, Make(Op::kFdiv, chosen, ties), Moved(g, spread)));
      }
    }
  }

  absl::Status Assign(UOp u, UOp g) {
    if (!u.has_data<ViewsArg>()) {
      Give(u, 1, g);
      return absl::OkStatus();
    }
    const ViewArg& arg = u.data<ViewsArg>().views[0];
    Shape sizes, strides;
    for (const IntOrSrc& v : arg.shape) sizes.push_back(Size(u, v));
    for (const IntOrSrc& v : arg.strides) strides.push_back(Size(u, v));
    const Shape& whole = info_.shape(u);
    const auto moves =
        MovementsOf(ShapeTracker({View::Create(sizes, strides, Size(u, arg.offset))}), whole);
    if (!moves) {
      return Fault(u, "SYMBOLIC", "no movements are known that make its view", "view_arg");
    }
    UOp part = g;
    std::vector<Shape> shapes = {whole};
    for (const Movement& move : *moves) {
      part = Moved(part, move);
      shapes.push_back(After(move, shapes.back()));
    }
    Give(u, 1, part);
    if (!Depends(u, 0)) return absl::OkStatus();
    // What is written over has no gradient: where the view's ones come back to.
    UOp written = Filled(shapes.back(), g.scalar(), 1);
    for (size_t i = moves->size(); i-- > 0;) {
      written = MovedBack(written, (*moves)[i], shapes[i]);
    }
    const UOp zero = Filled(u, 0);
    Give(u, 0, Select(Make(Op::kCmpNe, written, zero), zero, g));
    return absl::OkStatus();
  }

  // The shape that `move` makes of `in`.
  static Shape After(const Movement& move, const Shape& in) {
    Shape out = in;
    for (size_t i = 0; i < in.size(); ++i) {
      if (move.op == Op::kPermute) out[i] = in[move.values[i].number()];
      if (move.op == Op::kPad) out[i] = move.values[2 * i] + in[i] + move.values[2 * i + 1];
      if (move.op == Op::kShrink) out[i] = move.values[2 * i + 1] - move.values[2 * i];
    }
    return move.op == Op::kReshape || move.op == Op::kExpand ? move.values : out;
  }

  const TensorGraphInfo info_;
  const UOp root_;
  UOpGraph& graph_;
  // By id, of the nodes that were there before.
  std::vector<bool> depends_;  // on a buffer that is wanted
  std::vector<UOp> gradients_;
  absl::flat_hash_map<absl::string_view, UOp> variables_;
};

}  // namespace

absl::StatusOr<UOp> GradientGraph(UOp root, std::span<const uint64_t> buffers,
                                  std::span<const UOp> wire_nodes, const TensorGraphLimits& limits,
                                  const std::string& device) {
  BEAMD_ASSIGN_OR_RETURN(TensorGraphInfo info, VerifyTensorGraph(root, wire_nodes, limits, device));
  return GradientBuilder(std::move(info), root).Build(buffers);
}

}  // namespace beamd

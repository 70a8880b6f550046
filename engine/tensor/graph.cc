#include "engine/tensor/graph.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/shape/movements.h"
#include "engine/shape/verify_tensor.h"
#include "engine/tensor/tensor_impl.h"
#include "engine/uop/sizes.h"
#include "engine/uop/verify.h"

namespace beamd {
namespace {

// ---- from a graph ----

class GraphReader {
 public:
  GraphReader(LazyContext& context, TensorGraphInfo info, UOp root,
              const absl::flat_hash_map<uint64_t, Tensor>& inputs)
      : context_(context),
        info_(std::move(info)),
        root_(root),
        inputs_(inputs),
        wanted_(root.graph().size()),
        values_(root.graph().size()) {}

  absl::StatusOr<GraphTensors> Read() {
    for (const UOp bind : info_.binds()) {
      const VariableArg& var = bind.src(0).data<VariableArg>();
      BEAMD_RETURN_IF_ERROR(
          context_.Bind(context_.Variable(var.name, var.min, var.max), bind.src(1).int_value()));
    }
    FindWanted();
    for (const UOp u : info_.nodes()) {
      for (const std::string& device : wanted_[u.id()]) {
        BEAMD_ASSIGN_OR_RETURN(LazyBuffer value, Value(u, device));
        values_[u.id()].push_back(std::move(value));
      }
    }
    for (const UOp u : Outputs()) result_.outputs.emplace_back(values_[u.id()][0]);
    return std::move(result_);
  }

 private:
  absl::Status Fault(UOp u, absl::string_view reason, absl::string_view what,
                     absl::string_view field) const {
    return NodeError(info_.of(u).index, u.op(), what,
                     {.reason = std::string(reason), .field = std::string(field)});
  }

  std::span<const UOp> Outputs() const {
    return root_.is(Op::kSink) ? root_.src() : std::span<const UOp>(&root_, 1);
  }

  // Where each value has to lie: on its own device, or, where it lies anywhere, on those of its
  // users. Sizes are no values.
  void FindWanted() {
    const auto want = [&](UOp u, const std::string& device) {
      const std::string& own = info_.device(u);
      std::vector<std::string>& wanted = wanted_[u.id()];
      const std::string& place = own.empty() ? device : own;
      if (std::ranges::find(wanted, place) == wanted.end()) wanted.push_back(place);
    };
    for (const UOp u : Outputs()) want(u, context_.device());
    const std::vector<UOp>& nodes = info_.nodes();
    for (size_t i = nodes.size(); i-- > 0;) {
      const UOp u = nodes[i];
      if (u.is(Op::kSink | Op::kBind)) continue;
      const int values = SizesBegin(u.op()).value_or(u.src_count());
      for (int s = 0; s < values; ++s) {
        for (size_t d = 0; d < wanted_[u.id()].size(); ++d) want(u.src(s), wanted_[u.id()][d]);
      }
    }
  }

  const LazyBuffer& ValueOf(UOp u, const std::string& device) const {
    const std::vector<std::string>& places = wanted_[u.id()];
    const auto at = std::ranges::find(places, info_.device(u).empty() ? device : info_.device(u));
    BEAMD_CHECK(at != places.end(), "a source's value is wanted where its user's is");
    return values_[u.id()][at - places.begin()];
  }

  // In the context's graph.
  SInt Here(const SInt& size) {
    return size.is_number() ? size : SInt(context_.graph().Import(size.expr()));
  }
  Shape Here(const Shape& shape) {
    Shape here;
    for (const SInt& size : shape) here.push_back(Here(size));
    return here;
  }
  SInt Size(UOp u, const IntOrSrc& v) {
    return v.src < 0 ? SInt(v.value) : Here(*info_.of(u.src(v.src)).size);
  }
  Mask Pairs(UOp u) {
    const std::vector<IntOrSrc>& values = u.data<IntsArg>().values;
    Mask pairs;
    for (size_t i = 0; i < values.size(); i += 2) {
      const SInt first = Size(u, values[i]);
      pairs.emplace_back(first, Size(u, values[i + 1]));
    }
    return pairs;
  }
  static std::vector<int> Axes(UOp u) {
    std::vector<int> axes;
    for (const IntOrSrc& v : u.data<IntsArg>().values) axes.push_back(static_cast<int>(v.value));
    return axes;
  }

  absl::StatusOr<LazyBuffer> Value(UOp u, const std::string& device) {
    if (u.is(kAlu)) return AluValue(u, device);
    switch (u.op()) {
      case Op::kBuffer:
        return BufferValue(u, device);
      case Op::kEmpty:
        return LazyBuffer::Empty(context_, Here(info_.shape(u)), u.scalar(), device);
      case Op::kConst:
        return LazyBuffer::Const(context_, ConstOf(u), {}, u.scalar(), device);
      case Op::kDefineVar:
      case Op::kBind:
        return VariableValue(u.is(Op::kBind) ? u.src(0) : u, device);
      default:
        break;
    }
    const LazyBuffer& x = ValueOf(u.src(0), device);
    switch (u.op()) {
      case Op::kReshape:
        return x.Reshape(Here(info_.shape(u)));
      case Op::kExpand:
        return x.Expand(Here(info_.shape(u)));
      case Op::kPermute:
        return x.Permute(Axes(u));
      case Op::kFlip:
        return x.Flip(Axes(u));
      case Op::kPad:
        return x.Pad(Pairs(u));
      case Op::kShrink:
        return x.Shrink(Pairs(u));
      case Op::kCast:
        return x.Cast(u.scalar());
      case Op::kBitcast:
        return x.Bitcast(u.scalar());
      case Op::kContiguous:
        return x.Contiguous();
      case Op::kCopy:
        return x.CopyTo(device);
      case Op::kReduceAxis: {
        const ReduceArg& reduce = u.data<ReduceArg>();
        return x.Reduce(reduce.op, std::vector<int>(reduce.axes.begin(), reduce.axes.end()));
      }
      default:
        return AssignValue(u, x, device);
    }
  }

  static ConstValue ConstOf(UOp u) {
    if (IsFloat(u.scalar())) return u.float_value();
    if (u.scalar() == Scalar::kBool) return u.int_value() != 0;
    return u.int_value();
  }

  LazyBuffer VariableValue(UOp u, const std::string& device) {
    const VariableArg& var = u.data<VariableArg>();
    const UOp variable = context_.Variable(var.name, var.min, var.max);
    return LazyBuffer::Const(context_, Cast(variable, u.dtype()), {}, u.scalar(), device);
  }

  absl::StatusOr<LazyBuffer> BufferValue(UOp u, const std::string& device) {
    const uint64_t id = u.data<BufferArg>().id;
    const Shape shape = Here(info_.shape(u));
    const auto given = inputs_.find(id);
    if (given == inputs_.end()) {
      LazyBuffer made = LazyBuffer::Empty(context_, shape, u.scalar(), device);
      result_.buffers.emplace(id, Tensor(made));
      return made;
    }
    const Tensor& tensor = given->second;
    if (!tensor.ok()) {
      return Fault(u, "BUFFER", absl::StrCat("its tensor failed: ", tensor.status().message()),
                   "buffer_arg");
    }
    result_.buffers.emplace(id, tensor);
    const LazyBuffer& value = tensor.lazydata();
    if (value.dtype() != u.scalar() || value.device() != device ||
        !std::ranges::equal(value.shape(), shape, ProvenEq)) {
      return Fault(u, "BUFFER",
                   absl::StrCat("is ", Name(u.scalar()), " ", ToString(shape), " on ", device,
                                ", its tensor ", Name(value.dtype()), " ", ToString(value.shape()),
                                " on ", value.device()),
                   "buffer_arg");
    }
    return value;
  }

  absl::StatusOr<LazyBuffer> AluValue(UOp u, const std::string& device) {
    const LazyBuffer& x = ValueOf(u.src(0), device);
    std::vector<LazyBuffer> others;
    for (int i = 1; i < u.src_count(); ++i) {
      // Shapes that are equal may be spelt differently.
      others.push_back(ValueOf(u.src(i), device).Reshape(x.shape()));
    }
    if (u.is(Op::kShl | Op::kShr) && u.src(1).dtype() != u.dtype()) {
      // A uint32 amount of another type's bits: what is too large for these stays too large.
      const LazyBuffer &amount = others[0], width = amount.ConstLike(Bits(u.scalar()));
      others[0] = amount.Alu(Op::kCmpLt, width).Alu(Op::kWhere, amount, width).Cast(u.scalar());
    }
    return x.Alu(u.op(), others);
  }

  absl::StatusOr<LazyBuffer> AssignValue(UOp u, const LazyBuffer& x, const std::string& device) {
    const LazyBuffer& value = ValueOf(u.src(1), device);
    if (ProvenEq(value.size(), 0)) return x;  // nothing is written
    if (!x.is_realized()) {
      return Fault(u, "NOT_REALIZED", "the target's tensor has no memory yet", "src[0]");
    }
    if (!u.has_data<ViewsArg>()) return x.Assign(value);
    const ViewArg& arg = u.data<ViewsArg>().views[0];
    Shape sizes, strides;
    for (const IntOrSrc& v : arg.shape) sizes.push_back(Size(u, v));
    for (const IntOrSrc& v : arg.strides) strides.push_back(Size(u, v));
    const ShapeTracker view({View::Create(sizes, strides, Size(u, arg.offset))});
    // The whole buffer, afterwards.
    return x.WithView(x.st().Compose(view)).Assign(value).base().WithView(x.st());
  }

  LazyContext& context_;
  const TensorGraphInfo info_;
  const UOp root_;
  const absl::flat_hash_map<uint64_t, Tensor>& inputs_;
  std::vector<std::vector<std::string>> wanted_;  // by id: devices
  std::vector<std::vector<LazyBuffer>> values_;   // by id: on each of them
  GraphTensors result_;
};

// ---- to a graph ----

class GraphWriter {
 public:
  GraphWriter(LazyContext& context, UOpGraph& graph) : context_(context), graph_(graph) {}

  absl::StatusOr<TensorGraph> Write(std::span<const Tensor> outputs) {
    for (const Tensor& output : outputs) BEAMD_RETURN_IF_ERROR(WriteBelow(output.lazydata()));
    std::vector<UOp> sources;
    for (const Tensor& output : outputs) {
      BEAMD_ASSIGN_OR_RETURN(const UOp value, View(output.lazydata()));
      sources.push_back(value);
    }
    result_.root = graph_.Make(Op::kSink, DType(), sources);
    return std::move(result_);
  }

 private:
  // Every base below `output`, sources first.
  absl::Status WriteBelow(const LazyBuffer& output) {
    std::vector<LazyBuffer> stack = {output.base()};
    while (!stack.empty()) {
      const LazyBuffer base = stack.back();
      if (bases_.contains(base.node())) {
        stack.pop_back();
        continue;
      }
      const size_t before = stack.size();
      if (!base.is_realized()) {
        // The first on top: buffers then count up as the text form meets them.
        for (size_t i = base.srcs().size(); i-- > 0;) {
          const LazyBuffer src = base.srcs()[i].base();
          if (!bases_.contains(src.node())) stack.push_back(src);
        }
      }
      if (stack.size() > before) continue;
      stack.pop_back();
      BEAMD_ASSIGN_OR_RETURN(const UOp value, Base(base));
      bases_.emplace(base.node(), value);
    }
    return absl::OkStatus();
  }

  // ---- sizes ----

  UOp Variable(UOp u) {
    const VariableArg& var = u.data<VariableArg>();
    const bool narrow =
        WrapInt(var.min, Scalar::kInt32) == var.min && WrapInt(var.max, Scalar::kInt32) == var.max;
    const UOp variable =
        graph_.Variable(var.name, var.min, var.max, narrow ? Scalar::kInt32 : Scalar::kInt64);
    const auto bound = context_.bindings().find(var.name);
    if (bound == context_.bindings().end()) return variable;
    return graph_.Make(Op::kBind, variable.dtype(),
                       {variable, graph_.Const(variable.dtype(), bound->second)});
  }
  // An expression of the context, with one node a variable whatever type it has there.
  UOp Expression(UOp expression) {
    std::vector<UOp> variables, instead;
    const UOp imported = graph_.Import(expression);
    for (const UOp u : Toposort(imported)) {
      if (!u.is(Op::kDefineVar)) continue;
      const UOp variable = Variable(u);
      variables.push_back(u);
      instead.push_back(variable.dtype() == u.dtype() ? variable : Cast(variable, u.dtype()));
    }
    return Substitute(imported, variables, instead);
  }
  std::vector<IntOrSrc> Sizes(std::span<const SInt> sizes, std::vector<UOp>& src, size_t first) {
    std::vector<IntOrSrc> values;
    for (const SInt& size : sizes) {
      if (size.is_number()) {
        values.push_back({size.number(), -1});
        continue;
      }
      const UOp u = Expression(size.expr());
      auto at = std::find(src.begin() + static_cast<int64_t>(first), src.end(), u);
      if (at == src.end()) at = src.insert(src.end(), u);
      values.push_back({0, static_cast<int32_t>(at - src.begin())});
    }
    return values;
  }

  UOp Move(UOp value, Op op, std::span<const SInt> sizes) {
    std::vector<UOp> src = {value};
    std::vector<IntOrSrc> values = Sizes(sizes, src, 1);
    return graph_.Make(op, value.dtype(), src, graph_.Intern(IntsArg{std::move(values)}));
  }
  absl::StatusOr<UOp> Moved(UOp value, const ShapeTracker& st, const Shape& from) {
    const std::optional<std::vector<Movement>> moves = MovementsOf(st, from);
    if (!moves) {
      return absl::UnimplementedError(
          absl::StrCat("no movements are known that make the view ", ToString(st)));
    }
    for (const Movement& move : *moves) value = Move(value, move.op, move.values);
    return value;
  }

  // ---- nodes ----

  absl::StatusOr<UOp> View(const LazyBuffer& value) {
    const LazyBuffer base = value.base();
    return Moved(bases_.at(base.node()), value.st(), base.shape());
  }

  std::string Device(const LazyBuffer& base) const {
    return base.device() == context_.device() ? "" : base.device();
  }

  absl::StatusOr<UOp> Base(const LazyBuffer& base) {
    const DType dtype = base.dtype();
    const Op op = base.op();
    if (op == Op::kConst) return Constant(base);
    if (base.is_realized()) return Memory(base);
    std::vector<UOp> src;
    for (const LazyBuffer& source : base.srcs()) {
      BEAMD_ASSIGN_OR_RETURN(const UOp value, View(source));
      src.push_back(value);
    }
    if (op == Op::kReduceAxis) {
      return graph_.Make(op, dtype, src, graph_.Intern(std::get<ReduceArg>(base.arg())));
    }
    if (op == Op::kCopy) return graph_.Make(op, dtype, src, graph_.Intern(base.device()));
    if (op == Op::kAssign) return Assignment(base, src);
    if (op == Op::kBufferView) return graph_.Make(Op::kContiguous, dtype, src);
    // To an image: a graph doesn't say how its values are stored.
    if (op == Op::kCast && src[0].dtype() == dtype) return src[0];
    const bool known = OpSet(kAlu | Op::kCast | Op::kBitcast | Op::kContiguous).Has(op);
    if (!known) {
      return absl::UnimplementedError(absl::StrCat("a graph has no ", Name(op)));
    }
    return graph_.Make(op, dtype, src);
  }

  absl::StatusOr<UOp> Constant(const LazyBuffer& base) {
    const DType dtype = base.dtype();
    UOp value;
    if (const auto* expression = std::get_if<UOp>(&base.arg())) {
      value = Cast(Expression(*expression), dtype);
    } else if (const ConstValue v = base.const_value(); v.is_float()) {
      value = graph_.ConstFloat(dtype, v.as_float());
    } else {
      value = graph_.Const(dtype, v.as_int());
    }
    return Moved(value, base.st(), {});
  }

  // The target is a buffer; the argument says which view of it is written.
  absl::StatusOr<UOp> Assignment(const LazyBuffer& base, std::vector<UOp> src) {
    const DType dtype = base.dtype();
    const LazyBuffer& written = base.srcs()[1];
    const auto* into = std::get_if<std::shared_ptr<const ShapeTracker>>(&base.arg());
    if (into == nullptr && ProvenEq(written.size(), base.size())) {
      if (written.shape() != base.shape()) src[1] = Move(src[1], Op::kReshape, base.shape());
      return graph_.Make(Op::kAssign, dtype, src);
    }
    // Without a view, what is smaller than its target goes to its beginning.
    const ShapeTracker st = into ? **into : ShapeTracker::FromShape(written.shape());
    const beamd::View& view = st.views()[0];
    if (st.views().size() > 1 || view.mask || !AllNumbers(view.strides)) {
      return absl::UnimplementedError(
          absl::StrCat("a graph has no assignment to the view ", ToString(st)));
    }
    ViewArg to;
    to.shape = Sizes(view.shape, src, 2);
    to.strides = Sizes(view.strides, src, 2);
    to.offset = Sizes(std::span(&view.offset, 1), src, 2)[0];
    return graph_.Make(Op::kAssign, dtype, src, graph_.Intern(ViewsArg{{std::move(to)}}));
  }

  absl::StatusOr<UOp> Memory(const LazyBuffer& base) {
    BufferArg buffer{.id = result_.buffers.size(), .device = Device(base)};
    result_.buffers.push_back(base);
    std::vector<UOp> src;
    buffer.shape = Sizes(base.shape(), src, 0);
    return graph_.Make(Op::kBuffer, base.dtype(), src, graph_.Intern(std::move(buffer)));
  }

  LazyContext& context_;
  UOpGraph& graph_;
  absl::flat_hash_map<const LazyNode*, UOp> bases_;
  TensorGraph result_;
};

}  // namespace

absl::StatusOr<GraphTensors> TensorsFromGraph(LazyContext& context, UOp root,
                                              const absl::flat_hash_map<uint64_t, Tensor>& inputs,
                                              std::span<const UOp> wire_nodes,
                                              const TensorGraphLimits& limits) {
  BEAMD_ASSIGN_OR_RETURN(TensorGraphInfo info,
                         VerifyTensorGraph(root, wire_nodes, limits, context.device()));
  return GraphReader(context, std::move(info), root, inputs).Read();
}

absl::StatusOr<TensorGraph> GraphFromTensors(std::span<const Tensor> outputs, UOpGraph& graph) {
  if (outputs.empty()) return absl::InvalidArgumentError("no outputs");
  for (const Tensor& output : outputs) BEAMD_RETURN_IF_ERROR(output.status());
  return GraphWriter(outputs[0].context(), graph).Write(outputs);
}

}  // namespace beamd

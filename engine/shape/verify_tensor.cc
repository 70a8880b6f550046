#include "engine/shape/verify_tensor.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/shape/shape_tracker.h"
#include "engine/uop/sizes.h"
#include "engine/uop/verify.h"

namespace beamd {
namespace {

constexpr OpSet kTensorOps =
    kAlu | Op::kSink | Op::kBuffer | Op::kEmpty | Op::kConst | Op::kDefineVar | Op::kBind |
    Op::kCast | Op::kBitcast | Op::kReduceAxis | Op::kAssign | Op::kReshape | Op::kExpand |
    Op::kPermute | Op::kPad | Op::kShrink | Op::kFlip | Op::kContiguous | Op::kCopy;
// What a size may compute: the same in 64 bits, which sizes are widened to, as in its own.
constexpr OpSet kSizeOps = Op::kConst | Op::kDefineVar | Op::kBind | Op::kCast | Op::kAdd |
                           Op::kMul | Op::kIdiv | Op::kMod | Op::kMax | Op::kSub | Op::kNeg;

std::string ShapeText(std::span<const SInt> shape) {
  const auto text = [](std::string* out, const SInt& v) { absl::StrAppend(out, ToString(v)); };
  return absl::StrCat("(", absl::StrJoin(shape, ",", text), ")");
}

std::string Entry(absl::string_view list, size_t i) { return absl::StrCat(list, "[", i, "]"); }

}  // namespace

class TensorCheck {
 public:
  using Node = TensorGraphInfo::Node;

  TensorCheck(UOp root, std::span<const UOp> wire_nodes, const TensorGraphLimits& limits,
              const std::string& device)
      : root_(root), limits_(limits), device_(device) {
    info_.nodes_ = Toposort(root);
    info_.table_.resize(root.graph().size());
    int64_t next = 0;
    for (const UOp u : wire_nodes.empty() ? std::span<const UOp>(info_.nodes_) : wire_nodes) {
      if (int64_t& index = info_.table_[u.id()].index; index < 0) index = next;
      ++next;
    }
  }

  absl::StatusOr<TensorGraphInfo> Run() {
    const auto count = static_cast<int64_t>(info_.nodes_.size());
    if (count > limits_.max_nodes) {
      return Fault("TOO_MANY_NODES", absl::StrCat("a graph of ", count, " nodes"), "nodes",
                   limits_.max_nodes, count, root_);
    }
    for (const UOp u : info_.nodes_) {
      u_ = u;
      if (!u.is(kTensorOps)) return Fault("OP", "is not an op of a tensor graph", "op");
      BEAMD_RETURN_IF_ERROR(VerifyNode(u, of(u).index));
      if (u.lanes() != 1) {
        return Fault("LANES", "a tensor graph has no vectors", "dtype.lanes", 1, u.lanes());
      }
      BEAMD_RETURN_IF_ERROR(CheckSources());
      BEAMD_RETURN_IF_ERROR(CheckNode());
      if (node().shape) BEAMD_RETURN_IF_ERROR(CheckShape());
    }
    return std::move(info_);
  }

 private:
  absl::Status Fault(absl::string_view reason, absl::string_view what, absl::string_view field = "",
                     std::optional<int64_t> limit = {}, std::optional<int64_t> value = {},
                     UOp at = UOp()) const {
    const UOp u = at ? at : u_;
    return NodeError(of(u).index, u.op(), what,
                     {.reason = std::string(reason),
                      .field = std::string(field),
                      .limit = limit,
                      .value = value});
  }

  Node& node() { return info_.table_[u_.id()]; }
  const Node& of(UOp u) const { return info_.table_[u.id()]; }
  const Shape& shape(int src) const { return *of(u_.src(src)).shape; }

  // ---- what every node is ----

  // Values of one place; sizes apart.
  absl::Status CheckSources() {
    const int values = SizesBegin(u_.op()).value_or(u_.src_count());
    for (int i = 0; i < values; ++i) {
      const Node& src = of(u_.src(i));
      if (u_.is(Op::kSink) || src.device == TensorGraphInfo::kAnyDevice) continue;
      if (node().device == TensorGraphInfo::kAnyDevice) node().device = src.device;
      if (node().device == src.device) continue;
      return Fault("DEVICE",
                   absl::StrCat("source ", i, " lies on \"", info_.devices_[src.device],
                                "\", another on \"", info_.devices_[node().device], "\""),
                   Entry("src", i));
    }
    for (int i = values; i < u_.src_count(); ++i) {
      const Node& size = of(u_.src(i));
      if (size.size_nodes == 0 || size.size_nodes > limits_.max_size_nodes) {
        return Fault("SYMBOLIC",
                     size.size_nodes == 0
                         ? "a size is integer arithmetic over variables and constants"
                         : absl::StrCat("a size is an expression of over ", limits_.max_size_nodes,
                                        " nodes"),
                     Entry("src", i), limits_.max_size_nodes, size.size_nodes);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckShape() {
    const Shape& shape = *node().shape;
    const absl::string_view field = u_.has_data<IntsArg>()     ? "ints_arg"
                                    : u_.has_data<BufferArg>() ? "buffer_arg.shape"
                                                               : "src";
    const auto rank = static_cast<int64_t>(shape.size());
    if (rank > limits_.max_rank) {
      return Fault("RANK", absl::StrCat("rank ", rank, ", the limit is ", limits_.max_rank), field,
                   limits_.max_rank, rank);
    }
    double elements = 1;
    for (const SInt& size : shape) {
      elements *= std::max(static_cast<double>(size.is_number() ? size.number() : size.max()), 1.0);
    }
    if (elements <= static_cast<double>(limits_.max_elements)) return absl::OkStatus();
    return Fault("TOO_MANY_ELEMENTS",
                 absl::StrCat("has shape ", ShapeText(shape), ", the limit is ",
                              limits_.max_elements, " elements"),
                 field, limits_.max_elements);
  }

  // The expressions that `shape` has now are no larger than a client's may be.
  absl::Status CheckExpressions(const Shape& shape) const {
    for (const SInt& size : shape) {
      if (size.is_number()) continue;
      const auto nodes = static_cast<int64_t>(Toposort(size.expr()).size());
      if (nodes <= limits_.max_size_nodes) continue;
      return Fault("SYMBOLIC",
                   absl::StrCat("a size becomes an expression of ", nodes, " nodes, the limit is ",
                                limits_.max_size_nodes),
                   "ints_arg", limits_.max_size_nodes, nodes);
    }
    return absl::OkStatus();
  }

  // ---- sizes ----

  void FindSize() {
    if (!u_.is(kSizeOps) || !IsInt(u_.scalar())) return;
    int nodes = 1;
    for (const UOp s : u_.src()) {
      if (of(s).size_nodes == 0) return;
      nodes = std::min(nodes + of(s).size_nodes, limits_.max_size_nodes + 1);
    }
    node().size_nodes = nodes;
  }

  // What a source stands for as a size.
  SInt SizeOf(UOp u) {
    Node& n = info_.table_[u.id()];
    if (!n.size) {
      std::vector<UOp> binds, variables;
      for (const UOp part : Toposort(u)) {
        if (!part.is(Op::kBind)) continue;
        binds.push_back(part);
        variables.push_back(part.src(0));
      }
      n.size = SInt(binds.empty() ? u : Substitute(u, binds, variables));
    }
    return *n.size;
  }
  SInt Size(const IntOrSrc& v) { return v.src < 0 ? SInt(v.value) : SizeOf(u_.src(v.src)); }
  Shape Sizes(const std::vector<IntOrSrc>& values) {
    Shape sizes;
    for (const IntOrSrc& v : values) sizes.push_back(Size(v));
    return sizes;
  }

  absl::Status NotNegative(const Shape& sizes, absl::string_view field) const {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (ProvenLe(0, sizes[i])) continue;
      return Fault("NEGATIVE_SIZE", absl::StrCat(ToString(sizes[i]), " may be negative"),
                   Entry(field, i), 0, sizes[i].min());
    }
    return absl::OkStatus();
  }

  static bool Same(const Shape& a, const Shape& b) { return std::ranges::equal(a, b, ProvenEq); }

  absl::Status SameShapes(int first, int second) const {
    if (Same(shape(first), shape(second))) return absl::OkStatus();
    return Fault("SHAPE",
                 absl::StrCat("source ", second, " has shape ", ShapeText(shape(second)),
                              ", source ", first, " has ", ShapeText(shape(first))),
                 Entry("src", second));
  }

  // ---- each op ----

  absl::Status CheckNode() {
    FindSize();
    if (u_.is(kAlu)) {
      for (int i = 1; i < u_.src_count(); ++i) BEAMD_RETURN_IF_ERROR(SameShapes(0, i));
      node().shape = shape(0);
      return absl::OkStatus();
    }
    switch (u_.op()) {
      case Op::kSink:
        if (u_ != root_) return Fault("SINK", "only the root is a SINK", "op");
        if (!u_.arg().has_value()) return absl::OkStatus();
        return Fault("SINK", "is that of an optimised kernel", "kernel_info");
      case Op::kBuffer:
      case Op::kEmpty:
        return CheckBuffer();
      case Op::kDefineVar:
        node().shape.emplace();
        return CheckVariable();
      case Op::kBind:
        node().shape.emplace();
        return CheckBind();
      case Op::kConst:
        node().shape.emplace();
        return absl::OkStatus();
      case Op::kCopy: {
        const auto& device = u_.data<std::string>();
        if (device.empty()) return Fault("DEVICE", "names no device", "device_arg");
        node().shape = shape(0);
        node().device = DeviceNumber(device);
        return absl::OkStatus();
      }
      case Op::kReduceAxis:
        return CheckReduce();
      case Op::kAssign:
        return CheckAssign();
      case Op::kReshape:
      case Op::kPermute:
      case Op::kShrink:
      case Op::kFlip:
        node().buffer = of(u_.src(0)).buffer;
        return CheckMovement();
      case Op::kExpand:
      case Op::kPad:
        return CheckMovement();
      default:  // CAST, BITCAST, CONTIGUOUS
        node().shape = shape(0);
        return absl::OkStatus();
    }
  }

  int DeviceNumber(const std::string& name) {
    const auto at = std::ranges::find(info_.devices_, name);
    if (at != info_.devices_.end()) return static_cast<int>(at - info_.devices_.begin());
    info_.devices_.push_back(name);
    return static_cast<int>(info_.devices_.size() - 1);
  }

  absl::Status CheckBuffer() {
    const BufferArg& buffer = u_.data<BufferArg>();
    const auto [it, fresh] = (u_.is(Op::kBuffer) ? buffers_ : empties_).emplace(buffer.id, u_);
    if (!fresh) {
      return Fault(
          "BUFFER",
          absl::StrCat("node ", of(it->second).index, " describes the same buffer differently"),
          "buffer_arg");
    }
    const Shape sizes = Sizes(buffer.shape);
    BEAMD_RETURN_IF_ERROR(NotNegative(sizes, "buffer_arg.shape"));
    node().shape = sizes;
    node().device = DeviceNumber(buffer.device.empty() ? device_ : buffer.device);
    node().buffer = u_;
    // Before any product of sizes is made.
    BEAMD_RETURN_IF_ERROR(CheckShape());
    if (buffer.size_elements == 0) return absl::OkStatus();
    const int64_t elements = Prod(sizes).max();
    if (static_cast<uint64_t>(elements) == buffer.size_elements) return absl::OkStatus();
    return Fault("SIZE",
                 absl::StrCat("has ", buffer.size_elements, " elements, its shape ",
                              ShapeText(sizes), " has ", elements),
                 "buffer_arg.size_elements", elements, static_cast<int64_t>(buffer.size_elements));
  }

  absl::Status CheckVariable() {
    const auto [it, fresh] = variables_.emplace(u_.data<VariableArg>().name, u_);
    if (fresh) return absl::OkStatus();
    return Fault("VARIABLE",
                 absl::StrCat("the variable ", u_.data<VariableArg>().name,
                              " is defined differently by node ", of(it->second).index),
                 "var_arg");
  }

  absl::Status CheckBind() {
    const VariableArg& var = u_.src(0).data<VariableArg>();
    const int64_t value = u_.src(1).int_value();
    if (value < var.min || value > var.max) {
      return Fault("BOUNDS",
                   absl::StrCat(var.name, " is ", value, ", outside of ", var.min, "..", var.max),
                   "src[1]", value < var.min ? var.min : var.max, value);
    }
    const auto [it, fresh] = bound_.emplace(u_.src(0), u_);
    if (!fresh) {
      return Fault("VARIABLE",
                   absl::StrCat(var.name, " has another value at node ", of(it->second).index),
                   "src[1]", {}, value);
    }
    info_.binds_.push_back(u_);
    return absl::OkStatus();
  }

  absl::Status CheckReduce() {
    Shape out = shape(0);
    const std::vector<int32_t>& axes = u_.data<ReduceArg>().axes;
    for (size_t i = 0; i < axes.size(); ++i) {
      BEAMD_RETURN_IF_ERROR(CheckAxis(axes[i], out.size(), Entry("reduce_arg.axes", i)));
      out[axes[i]] = 1;
    }
    node().shape = std::move(out);
    return absl::OkStatus();
  }

  absl::Status CheckAxis(int64_t axis, size_t rank, absl::string_view field) const {
    if (axis >= 0 && axis < static_cast<int64_t>(rank)) return absl::OkStatus();
    return Fault("AXES", absl::StrCat("there is no axis ", axis, " of ", rank), field,
                 static_cast<int64_t>(rank) - 1, axis);
  }

  absl::Status CheckRank(size_t wanted) const {
    const size_t given = u_.data<IntsArg>().values.size();
    if (given == wanted) return absl::OkStatus();
    return Fault(
        "RANK",
        absl::StrCat("has ", given, " entries for shape ", ShapeText(shape(0)), ", needs ", wanted),
        "ints_arg", static_cast<int64_t>(wanted), static_cast<int64_t>(given));
  }

  absl::Status CheckMovement() {
    const Shape& in = shape(0);
    const std::vector<IntOrSrc>& values = u_.data<IntsArg>().values;
    if (u_.is(Op::kPermute | Op::kFlip)) return CheckAxes(in, values);
    const Shape sizes = Sizes(values);
    BEAMD_RETURN_IF_ERROR(NotNegative(sizes, "ints_arg.values"));
    Shape out;
    switch (u_.op()) {
      case Op::kReshape:
        out = sizes;
        node().shape = out;
        BEAMD_RETURN_IF_ERROR(CheckShape());
        if (!ProvenEq(Prod(in), Prod(out))) {
          return Fault("SHAPE",
                       absl::StrCat("makes ", ShapeText(out), " of ", ShapeText(in),
                                    ", which has another number of elements"),
                       "ints_arg");
        }
        break;
      case Op::kExpand:
        BEAMD_RETURN_IF_ERROR(CheckRank(in.size()));
        out = sizes;
        for (size_t i = 0; i < in.size(); ++i) {
          if (ProvenEq(in[i], 1) || ProvenEq(in[i], out[i])) continue;
          return Fault("SHAPE",
                       absl::StrCat("axis ", i, " has size ", ToString(in[i]), ", not 1 or ",
                                    ToString(out[i])),
                       Entry("ints_arg.values", i));
        }
        break;
      case Op::kPad:
        BEAMD_RETURN_IF_ERROR(CheckRank(2 * in.size()));
        // Two sizes that are each inside the limit don't overflow, however often they are added.
        for (size_t i = 0; i < sizes.size(); ++i) {
          if (sizes[i].max() <= limits_.max_elements) continue;
          return Fault("TOO_MANY_ELEMENTS", absl::StrCat("pads by ", ToString(sizes[i])),
                       Entry("ints_arg.values", i), limits_.max_elements, sizes[i].max());
        }
        for (size_t i = 0; i < in.size(); ++i) {
          out.push_back(sizes[2 * i] + in[i] + sizes[2 * i + 1]);
        }
        break;
      default:  // SHRINK
        BEAMD_RETURN_IF_ERROR(CheckRank(2 * in.size()));
        for (size_t i = 0; i < in.size(); ++i) {
          const SInt &begin = sizes[2 * i], &end = sizes[2 * i + 1];
          if (!ProvenLe(begin, end) || !ProvenLe(end, in[i])) {
            return Fault("AXES",
                         absl::StrCat(ToString(begin), " to ", ToString(end),
                                      " is no part of axis ", i, ", of size ", ToString(in[i])),
                         Entry("ints_arg.values", 2 * i));
          }
          out.push_back(end - begin);
        }
    }
    BEAMD_RETURN_IF_ERROR(CheckExpressions(out));
    node().shape = std::move(out);
    return absl::OkStatus();
  }

  // PERMUTE and FLIP.
  absl::Status CheckAxes(const Shape& in, const std::vector<IntOrSrc>& values) {
    const bool permute = u_.is(Op::kPermute);
    if (permute) BEAMD_RETURN_IF_ERROR(CheckRank(in.size()));
    Shape out;
    std::vector<bool> seen(in.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t axis = values[i].value;
      BEAMD_RETURN_IF_ERROR(CheckAxis(axis, in.size(), Entry("ints_arg.values", i)));
      if (seen[axis]) {
        return Fault("AXES", absl::StrCat("axis ", axis, " stands there twice"),
                     Entry("ints_arg.values", i), {}, axis);
      }
      seen[axis] = true;
      out.push_back(in[axis]);
    }
    node().shape = in;
    if (permute) node().shape = std::move(out);
    return absl::OkStatus();
  }

  absl::Status CheckAssign() {
    const UOp buffer = of(u_.src(0)).buffer;
    if (!buffer) {
      return Fault(
          "BUFFER",
          absl::StrCat("the target is no buffer and no view of one: ", Name(u_.src(0).op())),
          "src[0]");
    }
    const auto [it, fresh] = assigned_.emplace(buffer, u_);
    if (!fresh) {
      return Fault("ASSIGNED_TWICE",
                   absl::StrCat("its buffer is assigned by node ", of(it->second).index, " too"),
                   "src[0]");
    }
    node().shape = shape(0);
    return u_.has_data<ViewsArg>() ? CheckAssignedView(buffer) : SameShapes(0, 1);
  }

  // The view that is assigned to: elements of the buffer, each once.
  absl::Status CheckAssignedView(UOp buffer) {
    if (u_.src(0) != buffer) {
      return Fault("VIEW", "a target with a view is a buffer itself", "src[0]");
    }
    const std::vector<ViewArg>& views = u_.data<ViewsArg>().views;
    if (views.size() != 1 || views[0].mask) {
      return Fault("VIEW", "a target's view is one view without a mask", "view_arg");
    }
    const ViewArg& view = views[0];
    const Shape sizes = Sizes(view.shape), strides = Sizes(view.strides);
    BEAMD_RETURN_IF_ERROR(NotNegative(sizes, "view_arg.views[0].shape"));
    if (!Same(sizes, shape(1))) {
      return Fault("SHAPE",
                   absl::StrCat("the value has shape ", ShapeText(shape(1)), ", the view ",
                                ShapeText(sizes)),
                   "src[1]");
    }
    if (!AllNumbers(strides)) {
      return Fault("SYMBOLIC", "a stride of a target's view is a number",
                   "view_arg.views[0].strides");
    }
    // Its elements are apart where each stride reaches beyond what the smaller ones span.
    std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
    __int128 least = 0, most = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = sizes[i].max(), stride = strides[i].number();
      if (size == 0) return absl::OkStatus();  // nothing is written
      const __int128 reach = __int128{stride} * (size - 1);
      (reach < 0 ? least : most) += reach;
      if (size > 1) axes.emplace_back(stride < 0 ? -stride : stride, size);
    }
    const SInt offset = Size(view.offset);
    const int64_t elements = Prod(shape(0)).min();
    if (offset.min() + least < 0 || offset.max() + most >= elements) {
      return Fault("INDEX_OUT_OF_BUFFER", "the view leaves the buffer", "view_arg", elements - 1);
    }
    std::ranges::sort(axes);
    int64_t span = 0;  // inside the buffer, as all of it is
    for (const auto& [stride, size] : axes) {
      if (stride <= span) {
        return Fault("OVERLAP", "two points of the view are one element", "view_arg");
      }
      span += stride * (size - 1);
    }
    return absl::OkStatus();
  }

  UOp root_;
  const TensorGraphLimits& limits_;
  const std::string& device_;
  TensorGraphInfo info_;
  UOp u_;  // the node that is looked at
  absl::flat_hash_map<uint64_t, UOp> buffers_, empties_;
  absl::flat_hash_map<absl::string_view, UOp> variables_;
  absl::flat_hash_map<UOp, UOp> bound_;     // by DEFINE_VAR
  absl::flat_hash_map<UOp, UOp> assigned_;  // by BUFFER or EMPTY
};

const std::string& TensorGraphInfo::device(UOp u) const {
  static const std::string any;
  return of(u).device == kAnyDevice ? any : devices_[of(u).device];
}

absl::StatusOr<TensorGraphInfo> VerifyTensorGraph(UOp root, std::span<const UOp> wire_nodes,
                                                  const TensorGraphLimits& limits,
                                                  const std::string& device) {
  return TensorCheck(root, wire_nodes, limits, device).Run();
}

bool IsKernelGraph(UOp root) {
  return root.is(Op::kSink) &&
         std::ranges::any_of(root.src(), [](UOp u) { return u.is(Op::kStore); });
}

}  // namespace beamd

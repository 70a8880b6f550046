#include "engine/uop/wire.h"

#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/uop/sizes.h"
#include "engine/uop/verify.h"

namespace beamd {
namespace {

constexpr uint32_t kVersion = 1;

static_assert(static_cast<int>(Scalar::kVoid) == v1::SCALAR_VOID);
static_assert(static_cast<int>(Scalar::kFloat64) == v1::SCALAR_FLOAT64);
static_assert(kScalarCount == v1::Scalar_ARRAYSIZE);
static_assert(static_cast<int>(AddressSpace::kLocal) == v1::ADDRESS_SPACE_LOCAL);
static_assert(v1::AddressSpace_ARRAYSIZE == 3);

// Both enumerations have the same names but for the wire's prefix.
struct OpTables {
  std::array<Op, v1::Op_ARRAYSIZE> from_wire{};  // kUnspecified: no such number
  std::array<v1::Op, kOpCount> to_wire{};        // OP_UNSPECIFIED: not on the wire
};
const OpTables& Ops() {
  static const OpTables tables = [] {
    OpTables t;
    for (int i = 1; i < kOpCount; ++i) {
      v1::Op wire = v1::OP_UNSPECIFIED;
      if (!v1::Op_Parse(absl::StrCat("OP_", Name(static_cast<Op>(i))), &wire)) continue;
      t.to_wire[i] = wire;
      t.from_wire[wire] = static_cast<Op>(i);
    }
    return t;
  }();
  return tables;
}

std::optional<Op> FromWire(v1::Op op) {
  if (op <= 0 || op >= v1::Op_ARRAYSIZE || Ops().from_wire[op] == Op::kUnspecified) return {};
  return Ops().from_wire[op];
}

template <typename Message>
bool HasUnknown(const Message& m) {
  return !m.GetReflection()->GetUnknownFields(m).empty();
}

bool NodeHasUnknown(const v1::Node& n) {
  if (HasUnknown(n) || HasUnknown(n.dtype())) return true;
  const auto any = [](const auto& list) {
    return std::any_of(list.begin(), list.end(), [](const auto& m) { return HasUnknown(m); });
  };
  const auto ints = [&](const v1::IntList& list) {
    return HasUnknown(list) || any(list.symbolic());
  };
  switch (n.arg_case()) {
    case v1::Node::kViewArg:
      return HasUnknown(n.view_arg()) || any(n.view_arg().views()) ||
             std::any_of(n.view_arg().views().begin(), n.view_arg().views().end(),
                         [&](const v1::View& v) { return any(v.symbolic()); });
    case v1::Node::kReduceArg:
      return HasUnknown(n.reduce_arg());
    case v1::Node::kVarArg:
      return HasUnknown(n.var_arg());
    case v1::Node::kKernelInfo:
      return HasUnknown(n.kernel_info());
    case v1::Node::kIntsArg:
      return ints(n.ints_arg());
    case v1::Node::kBufferArg:
      return HasUnknown(n.buffer_arg()) || ints(n.buffer_arg().shape());
    default:
      return false;
  }
}

// Protobuf says where JSON is wrong before it says what:
// "(nodes[3].dtype) scale: Cannot find field."
absl::Status JsonError(absl::string_view what) {
  ErrorDetail detail{.reason = "MALFORMED"};
  std::string message(what);
  absl::string_view rest = what;
  const size_t close = what.find(')');
  int64_t node = 0;
  if (absl::ConsumePrefix(&rest, "(nodes[") && close != absl::string_view::npos &&
      absl::SimpleAtoi(rest.substr(0, rest.find(']')), &node)) {
    const absl::string_view place = what.substr(0, close);
    detail.node = node;
    detail.field = std::string(absl::StripPrefix(place.substr(place.find(']') + 1), "."));
    const absl::string_view fault = absl::StripLeadingAsciiWhitespace(what.substr(close + 1));
    const bool of_member = !detail.field.empty() && !absl::StartsWith(fault, ":");
    message = absl::StrCat("node ", node, ": ", detail.field, of_member ? "." : "",
                           detail.field.empty() ? absl::StripPrefix(fault, ": ") : fault);
  }
  return InvalidArgument(absl::StrCat("not a graph in JSON: ", message), detail);
}

// Reads one message; its members are what the nodes before the current one became.
class WireReader {
 public:
  WireReader(const v1::Graph& message, UOpGraph& graph, const GraphLimits& limits)
      : message_(message), graph_(graph), limits_(limits) {}

  absl::Status Read() {
    if (HasUnknown(message_)) {
      return InvalidArgument("the graph has a field that we don't know",
                             {.reason = "UNKNOWN_FIELD"});
    }
    if (message_.version() > kVersion) {
      return InvalidArgument(absl::StrCat("version ", message_.version(), " is not known"),
                             {.reason = "VERSION",
                              .field = "version",
                              .limit = kVersion,
                              .value = message_.version()});
    }
    if (message_.nodes().empty()) {
      return InvalidArgument("the graph has no nodes", {.reason = "EMPTY_GRAPH", .field = "nodes"});
    }
    if (message_.nodes_size() > limits_.max_nodes) {
      return InvalidArgument(
          absl::StrCat(message_.nodes_size(), " nodes, the limit is ", limits_.max_nodes),
          {.reason = "TOO_MANY_NODES",
           .field = "nodes",
           .limit = limits_.max_nodes,
           .value = message_.nodes_size()});
    }
    nodes_.reserve(message_.nodes_size());
    used_.resize(message_.nodes_size());
    for (const v1::Node& n : message_.nodes()) BEAMD_RETURN_IF_ERROR(ReadNode(n));
    return CheckReachable();
  }

  std::vector<UOp>& nodes() { return nodes_; }

 private:
  absl::Status Fault(absl::string_view reason, absl::string_view what, absl::string_view field,
                     std::optional<int64_t> limit = {}, std::optional<int64_t> value = {}) const {
    return NodeError(index(), op_, what,
                     {.reason = std::string(reason),
                      .field = std::string(field),
                      .limit = limit,
                      .value = value});
  }
  int64_t index() const { return static_cast<int64_t>(nodes_.size()); }

  // A node before this one.
  absl::Status CheckEarlier(uint32_t node, const std::string& field) const {
    if (node < nodes_.size()) return absl::OkStatus();
    if (node >= static_cast<uint32_t>(message_.nodes_size())) {
      return Fault("NO_SUCH_NODE", absl::StrCat("there is no node ", node), field,
                   message_.nodes_size() - 1, node);
    }
    return Fault("FORWARD_SRC", absl::StrCat("node ", node, " doesn't stand before its user"),
                 field, index() - 1, node);
  }

  // The place among the node's sources of a size that is an expression.
  absl::StatusOr<int32_t> SizeSource(uint32_t node, const std::string& field) {
    BEAMD_RETURN_IF_ERROR(CheckEarlier(node, field));
    used_[node] = true;
    const auto sizes = src_.begin() + *SizesBegin(op_);
    const auto at = std::find(sizes, src_.end(), nodes_[node]);
    if (at != src_.end()) return static_cast<int32_t>(at - src_.begin());
    src_.push_back(nodes_[node]);
    return static_cast<int32_t>(src_.size() - 1);
  }

  // Puts the expressions of `symbolic` into the entries that `entry` finds (null: there is none).
  template <typename Entry>
  absl::Status ReadSymbolic(const google::protobuf::RepeatedPtrField<v1::Symbolic>& symbolic,
                            const std::string& field, Entry entry) {
    // In the order of the entries, whatever the message's: sources then have one order.
    std::vector<int> order(symbolic.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int i) {
      return std::pair(static_cast<int>(symbolic[i].field()), symbolic[i].index());
    });
    for (const int i : order) {
      const std::string here = absl::StrCat(field, ".symbolic[", i, "]");
      IntOrSrc* const at = entry(symbolic[i]);
      if (at == nullptr) {
        return Fault("SYMBOLIC", "an expression for an entry that isn't there", here, {},
                     symbolic[i].index());
      }
      if (at->src >= 0 || at->value != 0) {
        return Fault("SYMBOLIC", "an entry that is an expression is also something else", here);
      }
      BEAMD_ASSIGN_OR_RETURN(at->src, SizeSource(symbolic[i].node(), here + ".node"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRank(int rank, const std::string& field) const {
    if (rank <= limits_.max_rank) return absl::OkStatus();
    return Fault("RANK", absl::StrCat("rank ", rank, ", the limit is ", limits_.max_rank), field,
                 limits_.max_rank, rank);
  }

  // Of the numbers in a shape; expressions count as 1.
  absl::Status CheckSize(const std::vector<IntOrSrc>& shape, const std::string& field) const {
    double size = 1;
    for (const IntOrSrc& dim : shape) {
      if (dim.src < 0) size *= static_cast<double>(std::max<int64_t>(dim.value, 1));
    }
    if (size <= static_cast<double>(limits_.max_elements)) return absl::OkStatus();
    return Fault(
        "TOO_MANY_ELEMENTS",
        absl::StrCat("a shape of ", size, " elements, the limit is ", limits_.max_elements), field,
        limits_.max_elements);
  }

  absl::StatusOr<ViewArg> ReadView(const v1::View& message, const std::string& field) {
    BEAMD_RETURN_IF_ERROR(CheckRank(message.shape_size(), field + ".shape"));
    ViewArg view;
    for (const int64_t v : message.shape()) view.shape.push_back({v, -1});
    for (const int64_t v : message.strides()) view.strides.push_back({v, -1});
    view.offset.value = message.offset();
    if (message.strides_size() != message.shape_size()) {
      return Fault(
          "RANK",
          absl::StrCat(message.strides_size(), " strides for ", message.shape_size(), " axes"),
          field + ".strides", message.shape_size(), message.strides_size());
    }
    if (!message.mask().empty()) {
      if (message.mask_size() != 2 * message.shape_size()) {
        return Fault("RANK",
                     absl::StrCat("a mask of ", message.mask_size(), " entries for ",
                                  message.shape_size(), " axes"),
                     field + ".mask", 2 * message.shape_size(), message.mask_size());
      }
      view.mask.emplace();
      for (int i = 0; i < message.mask_size(); i += 2) {
        view.mask->push_back({{message.mask(i), -1}, {message.mask(i + 1), -1}});
      }
    }
    const auto entry = [&](const v1::Symbolic& s) -> IntOrSrc* {
      const size_t i = s.index();
      switch (s.field()) {
        case v1::Symbolic::SHAPE:
          return i < view.shape.size() ? &view.shape[i] : nullptr;
        case v1::Symbolic::STRIDE:
          return i < view.strides.size() ? &view.strides[i] : nullptr;
        case v1::Symbolic::OFFSET:
          return i == 0 ? &view.offset : nullptr;
        case v1::Symbolic::MASK:
          if (!view.mask || i >= 2 * view.mask->size()) return nullptr;
          return i % 2 == 0 ? &(*view.mask)[i / 2].first : &(*view.mask)[i / 2].second;
        default:
          return nullptr;
      }
    };
    BEAMD_RETURN_IF_ERROR(ReadSymbolic(message.symbolic(), field, entry));
    BEAMD_RETURN_IF_ERROR(CheckSize(view.shape, field + ".shape"));
    return view;
  }

  absl::StatusOr<Arg> ReadViews(const v1::ShapeTracker& message) {
    if (message.views_size() > limits_.max_views) {
      return Fault("TOO_MANY_VIEWS",
                   absl::StrCat(message.views_size(), " views, the limit is ", limits_.max_views),
                   "view_arg.views", limits_.max_views, message.views_size());
    }
    ViewsArg views;
    for (int i = 0; i < message.views_size(); ++i) {
      BEAMD_ASSIGN_OR_RETURN(ViewArg view,
                             ReadView(message.views(i), absl::StrCat("view_arg.views[", i, "]")));
      views.views.push_back(std::move(view));
    }
    return graph_.Intern(std::move(views));
  }

  absl::StatusOr<std::vector<IntOrSrc>> ReadInts(const v1::IntList& message,
                                                 const std::string& field) {
    BEAMD_RETURN_IF_ERROR(
        CheckRank(message.values_size() / (op_ == Op::kPad || op_ == Op::kShrink ? 2 : 1), field));
    if (!SizesBegin(op_) && !message.symbolic().empty()) {
      return Fault("SYMBOLIC", "takes numbers only", field + ".symbolic");
    }
    std::vector<IntOrSrc> values;
    for (const int64_t v : message.values()) values.push_back({v, -1});
    const auto entry = [&](const v1::Symbolic& s) {
      return s.index() < values.size() ? &values[s.index()] : nullptr;
    };
    BEAMD_RETURN_IF_ERROR(ReadSymbolic(message.symbolic(), field, entry));
    return values;
  }

  absl::StatusOr<Arg> ReadReduce(const v1::Reduce& message) {
    const std::optional<Op> op = FromWire(message.op());
    if (!op) {
      return Fault("UNKNOWN_OP", absl::StrCat("no op ", static_cast<int>(message.op())),
                   "reduce_arg.op", {}, message.op());
    }
    ReduceArg reduce{*op, {}};
    for (int i = 0; i < message.axes_size(); ++i) {
      // A writer's -1 comes as 2^32 - 1.
      const auto axis = static_cast<int32_t>(message.axes(i));
      if (axis < 0 || axis >= limits_.max_rank) {
        return Fault("AXES", absl::StrCat("there is no axis ", axis),
                     absl::StrCat("reduce_arg.axes[", i, "]"), limits_.max_rank - 1, axis);
      }
      reduce.axes.push_back(axis);
    }
    std::ranges::sort(reduce.axes);
    return graph_.Intern(std::move(reduce));
  }

  absl::StatusOr<Arg> ReadName(const std::string& name, absl::string_view field) {
    if (name.size() > static_cast<size_t>(limits_.max_name_bytes)) {
      return Fault("NAME_TOO_LONG", absl::StrCat("a name of ", name.size(), " bytes"), field,
                   limits_.max_name_bytes, static_cast<int64_t>(name.size()));
    }
    return graph_.Intern(name);
  }

  absl::StatusOr<Arg> ReadBuffer(const v1::Buffer& message) {
    BufferArg buffer;
    buffer.id = message.id();
    buffer.size_elements = message.size_elements();
    buffer.device = message.device();
    BEAMD_RETURN_IF_ERROR(ReadName(message.device(), "buffer_arg.device").status());
    if (message.size_elements() > static_cast<uint64_t>(limits_.max_elements)) {
      return Fault("TOO_MANY_ELEMENTS",
                   absl::StrCat("a buffer of ", message.size_elements(), " elements"),
                   "buffer_arg.size_elements", limits_.max_elements);
    }
    const bool has_shape = !message.shape().values().empty() || !message.shape().symbolic().empty();
    if (op_ == Op::kDefineGlobal && (has_shape || !message.device().empty())) {
      return Fault("WRONG_ARG", "a kernel's buffer has no shape and no device", "buffer_arg");
    }
    if (!SizesBegin(op_) && has_shape) return Fault("WRONG_ARG", "takes no shape", "buffer_arg");
    BEAMD_ASSIGN_OR_RETURN(buffer.shape, ReadInts(message.shape(), "buffer_arg.shape"));
    BEAMD_RETURN_IF_ERROR(CheckSize(buffer.shape, "buffer_arg.shape"));
    return graph_.Intern(std::move(buffer));
  }

  absl::StatusOr<Arg> ReadArg(const v1::Node& n, DType dtype) {
    if ((n.arg_case() == v1::Node::kViewArg || n.arg_case() == v1::Node::kIntsArg) &&
        !SizesBegin(op_) && op_ != Op::kPermute && op_ != Op::kFlip) {
      return Fault("WRONG_ARG", "takes no sizes", "arg");
    }
    switch (n.arg_case()) {
      case v1::Node::ARG_NOT_SET:
        return Arg();
      case v1::Node::kIntArg:
        if (op_ == Op::kDefineGlobal) {
          if (n.int_arg() < 0) {
            return Fault("SLOT", absl::StrCat("slot ", n.int_arg()), "int_arg", 0, n.int_arg());
          }
          return graph_.Intern(BufferArg{.id = static_cast<uint64_t>(n.int_arg())});
        }
        return Arg::Int(IsInt(dtype.scalar) ? WrapInt(n.int_arg(), dtype.scalar) : n.int_arg());
      case v1::Node::kFloatArg:
        return Arg::Float(IsFloat(dtype.scalar) ? RoundToFloat(n.float_arg(), dtype.scalar)
                                                : n.float_arg());
      case v1::Node::kBoolArg:
        return Arg::Bool(n.bool_arg());
      case v1::Node::kViewArg:
        return ReadViews(n.view_arg());
      case v1::Node::kReduceArg:
        return ReadReduce(n.reduce_arg());
      case v1::Node::kVarArg:
        BEAMD_RETURN_IF_ERROR(ReadName(n.var_arg().name(), "var_arg.name").status());
        return graph_.Intern(VariableArg{n.var_arg().name(), n.var_arg().min(), n.var_arg().max()});
      case v1::Node::kKernelInfo: {
        const v1::KernelInfo& info = n.kernel_info();
        const auto rank = static_cast<uint32_t>(limits_.max_rank);
        if (info.local_dims() > rank || info.upcasted() > rank) {
          return Fault("RANK", "more dims than axes", "kernel_info", rank);
        }
        return graph_.Intern(KernelInfo{static_cast<int32_t>(info.local_dims()),
                                        static_cast<int32_t>(info.upcasted()),
                                        info.dont_use_locals()});
      }
      case v1::Node::kNameArg:
        return ReadName(n.name_arg(), "name_arg");
      case v1::Node::kIntsArg: {
        BEAMD_ASSIGN_OR_RETURN(std::vector<IntOrSrc> values, ReadInts(n.ints_arg(), "ints_arg"));
        return graph_.Intern(IntsArg{std::move(values)});
      }
      case v1::Node::kBufferArg:
        return ReadBuffer(n.buffer_arg());
      case v1::Node::kDeviceArg:
        return ReadName(n.device_arg(), "device_arg");
    }
    return Fault("WRONG_ARG", "an argument of no known kind", "arg");
  }

  absl::StatusOr<DType> ReadDType(const v1::DType& message) {
    if (!v1::Scalar_IsValid(message.scalar())) {
      return Fault("UNKNOWN_DTYPE", absl::StrCat("no scalar ", static_cast<int>(message.scalar())),
                   "dtype.scalar", {}, message.scalar());
    }
    if (!v1::AddressSpace_IsValid(message.pointer())) {
      return Fault("UNKNOWN_DTYPE",
                   absl::StrCat("no address space ", static_cast<int>(message.pointer())),
                   "dtype.pointer", {}, message.pointer());
    }
    constexpr uint32_t kMax = std::numeric_limits<uint16_t>::max();
    if (message.lanes() > kMax) {
      return Fault("LANES", absl::StrCat(message.lanes(), " lanes"), "dtype.lanes", kMax,
                   message.lanes());
    }
    DType dtype(static_cast<Scalar>(message.scalar()), std::max<int>(message.lanes(), 1));
    dtype.space = static_cast<AddressSpace>(message.pointer());
    const auto& image = message.image_shape();
    if (image.empty()) return dtype;
    if (image.size() != 3 || image[2] != 4 || image[0] == 0 || image[1] == 0 || image[0] > kMax ||
        image[1] > kMax) {
      return Fault("IMAGE", "an image is height, width, 4", "dtype.image_shape", kMax);
    }
    if (op_ != Op::kDefineGlobal) {
      return Fault("IMAGE", "only a buffer is an image", "dtype.image_shape");
    }
    dtype.image_height = static_cast<uint16_t>(image[0]);
    dtype.image_width = static_cast<uint16_t>(image[1]);
    return dtype;
  }

  absl::Status ReadNode(const v1::Node& n) {
    const std::optional<Op> op = FromWire(n.op());
    if (!op) {
      return InvalidArgument(
          absl::StrCat("node ", index(), ": no op ", static_cast<int>(n.op())),
          {.reason = "UNKNOWN_OP", .node = index(), .field = "op", .limit = {}, .value = n.op()});
    }
    op_ = *op;
    if (NodeHasUnknown(n)) {
      return Fault("UNKNOWN_FIELD", "has a field that we don't know", "");
    }
    constexpr int kMaxSources = 1 << 15;  // a node counts its sources in 16 bits
    if (n.src_size() > kMaxSources) {
      return Fault("ARITY", absl::StrCat(n.src_size(), " sources"), "src", kMaxSources,
                   n.src_size());
    }
    src_.clear();
    for (int i = 0; i < n.src_size(); ++i) {
      BEAMD_RETURN_IF_ERROR(CheckEarlier(n.src(i), absl::StrCat("src[", i, "]")));
      used_[n.src(i)] = true;
      src_.push_back(nodes_[n.src(i)]);
    }
    // Sizes come from the argument alone.
    if (const std::optional<int> sizes = SizesBegin(op_); sizes && n.src_size() != *sizes) {
      return Fault("ARITY", absl::StrCat("has ", n.src_size(), " sources, needs ", *sizes), "src",
                   *sizes, n.src_size());
    }
    BEAMD_ASSIGN_OR_RETURN(const DType dtype, ReadDType(n.dtype()));
    BEAMD_ASSIGN_OR_RETURN(const Arg arg, ReadArg(n, dtype));
    const UOp u = graph_.Make(op_, dtype, src_, arg);
    BEAMD_RETURN_IF_ERROR(VerifyNode(u, index()));
    if (op_ == Op::kDefineGlobal) BEAMD_RETURN_IF_ERROR(CheckSlot(u));
    nodes_.push_back(u);
    return absl::OkStatus();
  }

  absl::Status CheckSlot(UOp u) {
    const uint64_t slot = u.data<BufferArg>().id;
    if (slot < static_cast<uint64_t>(limits_.max_buffers)) return absl::OkStatus();
    return Fault("TOO_MANY_BUFFERS", absl::StrCat("slot ", slot), "int_arg or buffer_arg.id",
                 limits_.max_buffers - 1);
  }

  // Every node but the root has a user; users stand later, so all of them lead to the root.
  absl::Status CheckReachable() const {
    for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
      if (used_[i]) continue;
      return NodeError(static_cast<int64_t>(i), *FromWire(message_.nodes(i).op()),
                       "the last node doesn't reach it", {.reason = "UNREACHABLE"});
    }
    return absl::OkStatus();
  }

  const v1::Graph& message_;
  UOpGraph& graph_;
  const GraphLimits& limits_;
  std::vector<UOp> nodes_;
  std::vector<bool> used_;
  // Of the node that is being read.
  Op op_ = Op::kUnspecified;
  std::vector<UOp> src_;
};

// Writes one graph; `number` holds the index of each node written so far.
class WireWriter {
 public:
  v1::Graph Write(UOp root) {
    v1::Graph message;
    message.set_version(kVersion);
    for (const UOp u : Toposort(root)) {
      node_ = u;
      WriteNode(*message.add_nodes());
      number_[u] = static_cast<uint32_t>(message.nodes_size() - 1);
    }
    return message;
  }

 private:
  void WriteNode(v1::Node& n) {
    const UOp u = node_;
    const v1::Op op = Ops().to_wire[static_cast<int>(u.op())];
    BEAMD_CHECK(op != v1::OP_UNSPECIFIED, Name(u.op()));
    n.set_op(op);
    WriteDType(u.dtype(), n);
    const int sources = SizesBegin(u.op()).value_or(u.src_count());
    for (int i = 0; i < sources; ++i) n.add_src(number_.at(u.src(i)));
    switch (u.arg().kind()) {
      case Arg::Kind::kNone:
        break;
      case Arg::Kind::kInt:
        n.set_int_arg(u.arg().as_int());
        break;
      case Arg::Kind::kFloat:
        n.set_float_arg(u.arg().as_float());
        break;
      case Arg::Kind::kBool:
        n.set_bool_arg(u.arg().as_bool());
        break;
      case Arg::Kind::kData:
        std::visit([&](const auto& data) { WriteArg(data, n); }, *u.arg().data());
        break;
    }
  }

  static void WriteDType(DType dtype, v1::Node& n) {
    if (dtype == DType()) return;
    v1::DType& message = *n.mutable_dtype();
    message.set_scalar(static_cast<v1::Scalar>(dtype.scalar));
    if (dtype.lanes > 1) message.set_lanes(dtype.lanes);
    message.set_pointer(static_cast<v1::AddressSpace>(dtype.space));
    if (!dtype.is_image()) return;
    for (const uint32_t dim : {uint32_t{dtype.image_height}, uint32_t{dtype.image_width}, 4u}) {
      message.add_image_shape(dim);
    }
  }

  // The number of an entry; an expression leaves 0 and goes to `symbolic`.
  template <typename Symbolics>
  int64_t Entry(const IntOrSrc& v, v1::Symbolic::Field field, size_t index, Symbolics& symbolic) {
    if (v.src < 0) return v.value;
    v1::Symbolic& s = *symbolic.Add();
    s.set_field(field);
    s.set_index(static_cast<uint32_t>(index));
    s.set_node(number_.at(node_.src(v.src)));
    return 0;
  }

  void WriteArg(const ViewsArg& arg, v1::Node& n) {
    v1::ShapeTracker& message = *n.mutable_view_arg();
    for (const ViewArg& view : arg.views) {
      v1::View& v = *message.add_views();
      auto& symbolic = *v.mutable_symbolic();
      for (size_t i = 0; i < view.shape.size(); ++i) {
        v.add_shape(Entry(view.shape[i], v1::Symbolic::SHAPE, i, symbolic));
      }
      for (size_t i = 0; i < view.strides.size(); ++i) {
        v.add_strides(Entry(view.strides[i], v1::Symbolic::STRIDE, i, symbolic));
      }
      v.set_offset(Entry(view.offset, v1::Symbolic::OFFSET, 0, symbolic));
      for (size_t i = 0; view.mask && i < view.mask->size(); ++i) {
        v.add_mask(Entry((*view.mask)[i].first, v1::Symbolic::MASK, 2 * i, symbolic));
        v.add_mask(Entry((*view.mask)[i].second, v1::Symbolic::MASK, 2 * i + 1, symbolic));
      }
    }
  }
  void WriteArg(const ReduceArg& arg, v1::Node& n) {
    v1::Reduce& message = *n.mutable_reduce_arg();
    message.set_op(Ops().to_wire[static_cast<int>(arg.op)]);
    for (const int32_t axis : arg.axes) message.add_axes(axis);
  }
  void WriteArg(const VariableArg& arg, v1::Node& n) {
    n.mutable_var_arg()->set_name(arg.name);
    n.mutable_var_arg()->set_min(arg.min);
    n.mutable_var_arg()->set_max(arg.max);
  }
  void WriteArg(const KernelInfo& arg, v1::Node& n) {
    n.mutable_kernel_info()->set_local_dims(arg.local_dims);
    n.mutable_kernel_info()->set_upcasted(arg.upcasted);
    n.mutable_kernel_info()->set_dont_use_locals(arg.dont_use_locals);
  }
  void WriteArg(const std::string& arg, v1::Node& n) {
    if (node_.is(Op::kCopy)) {
      n.set_device_arg(arg);
    } else {
      n.set_name_arg(arg);
    }
  }
  void WriteInts(const std::vector<IntOrSrc>& values, v1::IntList& message) {
    for (size_t i = 0; i < values.size(); ++i) {
      message.add_values(Entry(values[i], v1::Symbolic::SHAPE, i, *message.mutable_symbolic()));
    }
  }
  void WriteArg(const IntsArg& arg, v1::Node& n) { WriteInts(arg.values, *n.mutable_ints_arg()); }
  void WriteArg(const BufferArg& arg, v1::Node& n) {
    if (node_.is(Op::kDefineGlobal) && arg.size_elements == 0) {
      n.set_int_arg(static_cast<int64_t>(arg.id));
      return;
    }
    v1::Buffer& message = *n.mutable_buffer_arg();
    message.set_id(arg.id);
    message.set_size_elements(arg.size_elements);
    message.set_device(arg.device);
    if (!arg.shape.empty()) WriteInts(arg.shape, *message.mutable_shape());
  }
  void WriteArg(const LanesArg&, v1::Node&) { BEAMD_CHECK(false, "lanes aren't on the wire"); }
  void WriteArg(const RangeArg&, v1::Node&) { BEAMD_CHECK(false, "ranges aren't on the wire"); }

  absl::flat_hash_map<UOp, uint32_t> number_;
  UOp node_;
};

}  // namespace

absl::StatusOr<UOp> FromProto(const v1::Graph& message, UOpGraph& graph, const GraphLimits& limits,
                              std::vector<UOp>* nodes) {
  WireReader reader(message, graph, limits);
  BEAMD_RETURN_IF_ERROR(reader.Read());
  const UOp root = reader.nodes().back();
  if (nodes != nullptr) *nodes = std::move(reader.nodes());
  return root;
}

absl::StatusOr<UOp> KernelFromProto(const v1::Graph& message, UOpGraph& graph,
                                    const GraphLimits& limits) {
  std::vector<UOp> nodes;
  BEAMD_ASSIGN_OR_RETURN(const UOp root, FromProto(message, graph, limits, &nodes));
  BEAMD_RETURN_IF_ERROR(VerifyKernel(root, nodes));
  return root;
}

v1::Graph ToProto(UOp root) { return WireWriter().Write(root); }

absl::StatusOr<v1::Graph> GraphFromBytes(absl::string_view bytes) {
  v1::Graph message;
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("not a graph message", {.reason = "MALFORMED"});
  }
  return message;
}

absl::StatusOr<v1::Graph> GraphFromJson(absl::string_view json) {
  v1::Graph message;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &message);
  if (!status.ok()) return JsonError(status.message().as_string());
  return message;
}

std::string GraphToJson(const v1::Graph& message) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json);
  BEAMD_CHECK(status.ok(), "every graph message has a JSON form");
  return json;
}

}  // namespace beamd

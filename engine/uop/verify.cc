#include "engine/uop/verify.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/uop/int_alu.h"
#include "engine/uop/view_index.h"

namespace beamd {
namespace {

// Which node is looked at, and how its mistakes are told.
class NodeCheck {
 public:
  NodeCheck(UOp u, int64_t index) : u_(u), index_(index) {}

  UOp node() const { return u_; }
  absl::Status Fault(absl::string_view reason, absl::string_view what, absl::string_view field = "",
                     std::optional<int64_t> limit = {}, std::optional<int64_t> value = {}) const {
    return NodeError(index_, u_.op(), what,
                     {.reason = std::string(reason),
                      .field = std::string(field),
                      .limit = limit,
                      .value = value});
  }

  absl::Status Arity(int least, int most) const {
    if (u_.src_count() >= least && u_.src_count() <= most) return absl::OkStatus();
    const bool too_few = u_.src_count() < least;
    return Fault("ARITY",
                 absl::StrCat("has ", u_.src_count(), " sources, ", too_few ? "needs " : "takes ",
                              too_few ? least : most),
                 "src", too_few ? least : most, u_.src_count());
  }
  absl::Status Arity(int count) const { return Arity(count, count); }

  absl::Status NoArg() const {
    if (!u_.arg().has_value()) return absl::OkStatus();
    return Fault("WRONG_ARG", "takes no argument", "arg");
  }
  template <typename T>
  absl::Status HasArg(absl::string_view field) const {
    if (u_.has_data<T>()) return absl::OkStatus();
    return Fault("WRONG_ARG", absl::StrCat("needs ", field), field);
  }

  // A value: neither void nor a pointer.
  absl::Status IsValue() const {
    if (IsValue(u_.dtype())) return absl::OkStatus();
    return Fault("DTYPE", absl::StrCat("has no value of type ", ToString(u_.dtype())), "dtype");
  }
  absl::Status SrcIsValue(int i) const {
    if (IsValue(u_.src(i).dtype())) return absl::OkStatus();
    return Fault("DTYPE", absl::StrCat("source ", i, " is no value: ", Name(u_.src(i).op())),
                 SrcField(i));
  }
  absl::Status Is(DType dtype) const {
    if (u_.dtype() == dtype) return absl::OkStatus();
    return Fault("DTYPE", absl::StrCat("is ", ToString(u_.dtype()), ", not ", ToString(dtype)),
                 "dtype");
  }
  absl::Status SrcIs(int i, DType dtype) const {
    if (u_.src(i).dtype() == dtype) return absl::OkStatus();
    return Fault(
        "DTYPE",
        absl::StrCat("source ", i, " is ", ToString(u_.src(i).dtype()), ", not ", ToString(dtype)),
        SrcField(i));
  }
  // Every source from `first` on is a scalar integer: the sizes of a view.
  absl::Status SizesFrom(int first) const {
    for (int i = first; i < u_.src_count(); ++i) {
      const DType t = u_.src(i).dtype();
      if (IsInt(t.scalar) && IsValue(t) && t.lanes == 1) continue;
      return Fault("DTYPE", absl::StrCat("a size is ", ToString(t), ", not an integer"),
                   SrcField(i));
    }
    return absl::OkStatus();
  }

  static bool IsValue(DType t) { return !t.is_void() && !t.is_pointer() && !t.is_image(); }
  static std::string SrcField(int i) { return absl::StrCat("src[", i, "]"); }

 private:
  UOp u_;
  int64_t index_;
};

absl::Status VerifyView(const NodeCheck& check, const ViewArg& view, const std::string& field) {
  const size_t rank = view.shape.size();
  if (view.strides.size() != rank) {
    return check.Fault("RANK", absl::StrCat(view.strides.size(), " strides for ", rank, " axes"),
                       field + ".strides", rank, view.strides.size());
  }
  if (view.mask && view.mask->size() != rank) {
    return check.Fault("RANK",
                       absl::StrCat("a mask of ", view.mask->size(), " ranges for ", rank, " axes"),
                       field + ".mask", rank, view.mask->size());
  }
  // The greatest distance from element 0 that any sum on the way to an index can have; in 128 bits
  // nothing below overflows, since each factor stops the loop before it could.
  constexpr __int128 kMax = std::numeric_limits<int64_t>::max();
  const auto magnitude = [](const IntOrSrc& v) {
    return v.value < 0 ? -__int128{v.value} : v.value;
  };
  __int128 size = 1, reach = magnitude(view.offset);
  bool empty = false;
  for (size_t i = 0; i < rank; ++i) {
    const IntOrSrc& dim = view.shape[i];
    if (dim.src >= 0) continue;
    const std::string dim_field = absl::StrCat(field, ".shape[", i, "]");
    if (dim.value < 0) {
      return check.Fault("NEGATIVE_SIZE", absl::StrCat("axis ", i, " has size ", dim.value),
                         dim_field, 0, dim.value);
    }
    if (dim.value == 0) empty = true;
    size *= std::max<int64_t>(dim.value, 1);
    if (size > kMax) {
      return check.Fault("SIZE_OVERFLOW", "the shape has more elements than 64 bits count",
                         dim_field);
    }
    reach += magnitude(view.strides[i]) * std::max<int64_t>(dim.value - 1, 0);
    if (reach > kMax && !empty) {
      return check.Fault("SIZE_OVERFLOW", "an index doesn't fit into 64 bits",
                         absl::StrCat(field, ".strides[", i, "]"));
    }
    if (empty) reach = 0;
  }
  for (size_t i = 0; view.mask && i < rank; ++i) {
    const auto& [begin, end] = (*view.mask)[i];
    const bool bad_begin = begin.src < 0 && begin.value < 0;
    const bool bad_end = end.src < 0 && view.shape[i].src < 0 && end.value > view.shape[i].value;
    const bool crossed = begin.src < 0 && end.src < 0 && begin.value > end.value;
    if (bad_begin || bad_end || crossed) {
      return check.Fault("MASK", absl::StrCat("the mask of axis ", i, " is no range inside it"),
                         absl::StrCat(field, ".mask[", 2 * i + (bad_end ? 1 : 0), "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyViews(const NodeCheck& check) {
  const ViewsArg& arg = check.node().data<ViewsArg>();
  if (arg.views.empty()) {
    return check.Fault("WRONG_ARG", "needs at least one view", "view_arg.views");
  }
  for (size_t i = 0; i < arg.views.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(VerifyView(check, arg.views[i], absl::StrCat("view_arg.views[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status VerifyDefineGlobal(const NodeCheck& check) {
  const DType t = check.node().dtype();
  BEAMD_RETURN_IF_ERROR(check.Arity(0));
  BEAMD_RETURN_IF_ERROR(check.HasArg<BufferArg>("int_arg or buffer_arg"));
  if (t.space != AddressSpace::kGlobal || t.is_void()) {
    return check.Fault("DTYPE", absl::StrCat("is ", ToString(t), ", not a global pointer"),
                       "dtype.pointer");
  }
  if (t.is_image() && t.scalar != Scalar::kFloat16 && t.scalar != Scalar::kFloat32) {
    return check.Fault("DTYPE", absl::StrCat("an image holds no ", Name(t.scalar)), "dtype.scalar");
  }
  return absl::OkStatus();
}

absl::Status VerifyDefineLocal(const NodeCheck& check) {
  const DType t = check.node().dtype();
  BEAMD_RETURN_IF_ERROR(check.Arity(0));
  BEAMD_RETURN_IF_ERROR(check.HasArg<std::string>("name_arg"));
  if (t.space == AddressSpace::kLocal && !t.is_void() && !t.is_image()) return absl::OkStatus();
  return check.Fault("DTYPE", absl::StrCat("is ", ToString(t), ", not a local pointer"),
                     "dtype.pointer");
}

absl::Status VerifyDefineVar(const NodeCheck& check) {
  const DType t = check.node().dtype();
  BEAMD_RETURN_IF_ERROR(check.Arity(0));
  BEAMD_RETURN_IF_ERROR(check.HasArg<VariableArg>("var_arg"));
  if (!IsInt(t.scalar) || !NodeCheck::IsValue(t) || t.lanes != 1) {
    return check.Fault("DTYPE", absl::StrCat("is ", ToString(t), ", not a scalar integer"),
                       "dtype");
  }
  const VariableArg& var = check.node().data<VariableArg>();
  if (var.name.empty()) return check.Fault("WRONG_ARG", "has no name", "var_arg.name");
  if (var.min > var.max) {
    return check.Fault("BOUNDS", absl::StrCat("min ", var.min, " is above max ", var.max),
                       "var_arg.min", var.max, var.min);
  }
  if (WrapInt(var.min, t.scalar) != var.min || WrapInt(var.max, t.scalar) != var.max ||
      (t.scalar == Scalar::kUint64 && var.min < 0)) {
    return check.Fault("BOUNDS", absl::StrCat("the bounds don't fit into ", Name(t.scalar)),
                       "var_arg");
  }
  return absl::OkStatus();
}

absl::Status VerifyConst(const NodeCheck& check) {
  const UOp u = check.node();
  BEAMD_RETURN_IF_ERROR(check.Arity(0));
  BEAMD_RETURN_IF_ERROR(check.IsValue());
  if (IsFloat(u.scalar())) {
    if (u.arg().kind() == Arg::Kind::kFloat) return absl::OkStatus();
    return check.Fault("WRONG_ARG", "a float constant needs float_arg", "float_arg");
  }
  if (u.scalar() == Scalar::kBool) {
    if (u.arg().kind() == Arg::Kind::kBool) return absl::OkStatus();
    return check.Fault("WRONG_ARG", "a bool constant needs bool_arg", "bool_arg");
  }
  if (u.arg().kind() != Arg::Kind::kInt) {
    return check.Fault("WRONG_ARG", "an integer constant needs int_arg", "int_arg");
  }
  if (WrapInt(u.int_value(), u.scalar()) != u.int_value()) {
    return check.Fault("CONST_RANGE",
                       absl::StrCat(u.int_value(), " is no value of ", Name(u.scalar())), "int_arg",
                       MaxInt(u.scalar()), u.int_value());
  }
  return absl::OkStatus();
}

absl::Status VerifyReduceAxis(const NodeCheck& check) {
  const UOp u = check.node();
  BEAMD_RETURN_IF_ERROR(check.Arity(1));
  BEAMD_RETURN_IF_ERROR(check.HasArg<ReduceArg>("reduce_arg"));
  BEAMD_RETURN_IF_ERROR(check.IsValue());
  BEAMD_RETURN_IF_ERROR(check.SrcIs(0, u.dtype()));
  const ReduceArg& reduce = u.data<ReduceArg>();
  if (reduce.op != Op::kAdd && reduce.op != Op::kMul && reduce.op != Op::kMax) {
    return check.Fault("WRONG_ARG", absl::StrCat("can't reduce by ", Name(reduce.op)),
                       "reduce_arg.op");
  }
  if (reduce.axes.empty()) return check.Fault("AXES", "reduces no axis", "reduce_arg.axes");
  for (size_t i = 0; i < reduce.axes.size(); ++i) {
    if (reduce.axes[i] < 0 || (i > 0 && reduce.axes[i] <= reduce.axes[i - 1])) {
      return check.Fault("AXES", "the axes aren't distinct and sorted",
                         absl::StrCat("reduce_arg.axes[", i, "]"), {}, reduce.axes[i]);
    }
  }
  return absl::OkStatus();
}

// What a load of a buffer gives and a store takes. Arithmetic on an image's values is float32
// whatever its texels are.
DType ElementType(DType buffer) {
  return buffer.is_image() ? DType(Scalar::kFloat32) : DType(buffer.scalar, buffer.lanes);
}

absl::Status VerifyAccess(const NodeCheck& check) {
  const UOp u = check.node();
  const bool store = u.is(Op::kStore);
  // Of an optimised kernel: a load of a local buffer waits for the store that fills it.
  BEAMD_RETURN_IF_ERROR(store ? check.Arity(3) : check.Arity(2, 3));
  BEAMD_RETURN_IF_ERROR(check.NoArg());
  const UOp buffer = u.src(0);
  if (!buffer.is(Op::kDefineGlobal | Op::kDefineLocal)) {
    return check.Fault("BUFFER", absl::StrCat("source 0 is no buffer: ", Name(buffer.op())),
                       "src[0]");
  }
  if (!u.src(1).is(Op::kView)) {
    return check.Fault("VIEW", absl::StrCat("source 1 is no VIEW: ", Name(u.src(1).op())),
                       "src[1]");
  }
  if (!store && u.src_count() == 3 && !u.src(2).is(Op::kStore)) {
    return check.Fault("ARITY", "source 2 is no STORE", "src[2]");
  }
  const DType element = ElementType(buffer.dtype());
  if (!store) return check.Is(element);
  BEAMD_RETURN_IF_ERROR(check.Is(DType()));
  return check.SrcIs(2, element);
}

absl::Status VerifyAssign(const NodeCheck& check) {
  const UOp u = check.node();
  BEAMD_RETURN_IF_ERROR(check.Arity(2, std::numeric_limits<int>::max()));
  BEAMD_RETURN_IF_ERROR(check.IsValue());
  BEAMD_RETURN_IF_ERROR(check.SrcIs(1, u.dtype()));
  const DType target = u.src(0).dtype();
  if (!target.is_pointer() || ElementType(target) != u.dtype()) {
    return check.Fault(
        "DTYPE",
        absl::StrCat("source 0 is ", ToString(target), ", which holds no ", ToString(u.dtype())),
        "src[0]");
  }
  if (!u.arg().has_value()) return check.Arity(2);
  BEAMD_RETURN_IF_ERROR(check.HasArg<ViewsArg>("view_arg"));
  BEAMD_RETURN_IF_ERROR(check.SizesFrom(2));
  return VerifyViews(check);
}

absl::Status VerifyCast(const NodeCheck& check) {
  const UOp u = check.node();
  BEAMD_RETURN_IF_ERROR(check.Arity(1));
  BEAMD_RETURN_IF_ERROR(check.NoArg());
  BEAMD_RETURN_IF_ERROR(check.IsValue());
  BEAMD_RETURN_IF_ERROR(check.SrcIsValue(0));
  const DType from = u.src(0).dtype();
  if (u.lanes() != from.lanes) {
    return check.Fault("DTYPE", absl::StrCat("makes ", u.lanes(), " lanes of ", from.lanes),
                       "dtype.lanes");
  }
  if (u.is(Op::kCast)) return absl::OkStatus();
  if (SizeBytes(u.scalar()) != SizeBytes(from.scalar) ||
      (u.scalar() == Scalar::kBool) != (from.scalar == Scalar::kBool)) {
    return check.Fault(
        "DTYPE", absl::StrCat(ToString(from), " has no bits of ", ToString(u.dtype())), "dtype");
  }
  return absl::OkStatus();
}

bool AluTakes(Op op, Scalar s) {
  switch (op) {
    case Op::kExp2:
    case Op::kLog2:
    case Op::kSin:
    case Op::kSqrt:
    case Op::kRecip:
    case Op::kFdiv:
      return IsFloat(s);
    case Op::kIdiv:
    case Op::kMod:
    case Op::kShl:
    case Op::kShr:
      return IsInt(s);
    case Op::kXor:
    case Op::kOr:
    case Op::kAnd:
      return !IsFloat(s);
    case Op::kNeg:
    case Op::kSub:
    case Op::kMulAcc:
      return s != Scalar::kBool;
    case Op::kThreefry:
      return s == Scalar::kUint64;
    default:  // ADD, MUL, MAX, comparisons, WHERE
      return true;
  }
}

absl::Status VerifyAlu(const NodeCheck& check) {
  const UOp u = check.node();
  BEAMD_RETURN_IF_ERROR(check.Arity(u.is(kUnary) ? 1 : u.is(kTernary) ? 3 : 2));
  BEAMD_RETURN_IF_ERROR(check.NoArg());
  BEAMD_RETURN_IF_ERROR(check.IsValue());
  // The operand whose type the others share.
  const int leader = u.is(Op::kWhere) ? 1 : 0;
  BEAMD_RETURN_IF_ERROR(check.SrcIsValue(leader));
  const DType operand = u.src(leader).dtype();
  if (!AluTakes(u.op(), operand.scalar)) {
    return check.Fault("DTYPE", absl::StrCat("takes no ", ToString(operand)),
                       NodeCheck::SrcField(leader));
  }
  BEAMD_RETURN_IF_ERROR(check.Is(u.is(kComparison) ? operand.WithScalar(Scalar::kBool) : operand));
  for (int i = 0; i < u.src_count(); ++i) {
    if (i == leader) continue;
    if (u.is(Op::kWhere) && i == 0) {
      BEAMD_RETURN_IF_ERROR(check.SrcIs(0, operand.WithScalar(Scalar::kBool)));
    } else if (u.is(Op::kShl | Op::kShr) &&
               u.src(1).dtype() == operand.WithScalar(Scalar::kUint32)) {
      continue;  // a shift's amount may also be uint32
    } else {
      BEAMD_RETURN_IF_ERROR(check.SrcIs(i, operand));
    }
  }
  return absl::OkStatus();
}

// RESHAPE to FLIP, CONTIGUOUS, COPY: a value that keeps its type.
absl::Status VerifyMovement(const NodeCheck& check) {
  const UOp u = check.node();
  BEAMD_RETURN_IF_ERROR(check.Arity(1, std::numeric_limits<int>::max()));
  BEAMD_RETURN_IF_ERROR(check.IsValue());
  BEAMD_RETURN_IF_ERROR(check.SrcIs(0, u.dtype()));
  if (u.is(Op::kContiguous)) {
    BEAMD_RETURN_IF_ERROR(check.NoArg());
    return check.Arity(1);
  }
  if (u.is(Op::kCopy)) {
    BEAMD_RETURN_IF_ERROR(check.HasArg<std::string>("device_arg"));
    return check.Arity(1);
  }
  BEAMD_RETURN_IF_ERROR(check.HasArg<IntsArg>("ints_arg"));
  if (u.is(Op::kPermute | Op::kFlip)) return check.Arity(1);
  return check.SizesFrom(1);
}

}  // namespace

absl::Status NodeError(int64_t index, Op op, absl::string_view what, ErrorDetail detail) {
  detail.node = index;
  return InvalidArgument(absl::StrCat("node ", index, " (", Name(op), "): ", what), detail);
}

absl::Status VerifyNode(UOp u, int64_t index) {
  const NodeCheck check(u, index);
  if (u.is(kAlu)) return VerifyAlu(check);
  switch (u.op()) {
    case Op::kSink:
      BEAMD_RETURN_IF_ERROR(check.Arity(1, std::numeric_limits<int>::max()));
      BEAMD_RETURN_IF_ERROR(check.Is(DType()));
      return u.arg().has_value() ? check.HasArg<KernelInfo>("kernel_info") : absl::OkStatus();
    case Op::kStore:
    case Op::kLoad:
    case Op::kPreload:
      return VerifyAccess(check);
    case Op::kDefineGlobal:
      return VerifyDefineGlobal(check);
    case Op::kDefineLocal:
      return VerifyDefineLocal(check);
    case Op::kDefineVar:
      return VerifyDefineVar(check);
    case Op::kView:
      BEAMD_RETURN_IF_ERROR(check.Is(DType()));
      BEAMD_RETURN_IF_ERROR(check.HasArg<ViewsArg>("view_arg"));
      BEAMD_RETURN_IF_ERROR(check.SizesFrom(0));
      return VerifyViews(check);
    case Op::kValid:
      BEAMD_RETURN_IF_ERROR(check.Arity(1));
      BEAMD_RETURN_IF_ERROR(check.NoArg());
      BEAMD_RETURN_IF_ERROR(check.Is(Scalar::kBool));
      // A variable is valid everywhere; programs do ask.
      if (u.src(0).is(Op::kView | Op::kDefineVar)) return absl::OkStatus();
      return check.Fault("VIEW", absl::StrCat("source 0 is no VIEW: ", Name(u.src(0).op())),
                         "src[0]");
    case Op::kConst:
      return VerifyConst(check);
    case Op::kAssign:
      return VerifyAssign(check);
    case Op::kReduceAxis:
      return VerifyReduceAxis(check);
    case Op::kBind:
      BEAMD_RETURN_IF_ERROR(check.Arity(2));
      BEAMD_RETURN_IF_ERROR(check.NoArg());
      if (!u.src(0).is(Op::kDefineVar) || !u.src(1).is_const()) {
        return check.Fault("ARITY", "binds a DEFINE_VAR to a CONST", "src");
      }
      BEAMD_RETURN_IF_ERROR(check.Is(u.src(0).dtype()));
      return check.SrcIs(1, u.dtype());
    case Op::kCast:
    case Op::kBitcast:
      return VerifyCast(check);
    case Op::kBuffer:
    case Op::kEmpty:
      BEAMD_RETURN_IF_ERROR(check.IsValue());
      BEAMD_RETURN_IF_ERROR(check.HasArg<BufferArg>("buffer_arg"));
      return check.SizesFrom(0);
    case Op::kReshape:
    case Op::kExpand:
    case Op::kPermute:
    case Op::kPad:
    case Op::kShrink:
    case Op::kFlip:
    case Op::kContiguous:
    case Op::kCopy:
      return VerifyMovement(check);
    default:
      return check.Fault("OP", "is not an op of kernels or tensor graphs", "op");
  }
}

namespace {

// Ops that stand in a kernel that isn't optimised yet.
constexpr OpSet kKernelOps = kAlu | Op::kSink | Op::kStore | Op::kLoad | Op::kPreload |
                             Op::kDefineGlobal | Op::kDefineVar | Op::kView | Op::kValid |
                             Op::kConst | Op::kAssign | Op::kReduceAxis | Op::kCast | Op::kBitcast;

// Steps of enumerating that one kernel may cost, about 50 ns each.
constexpr int64_t kMaxSteps = 2000000;
// Combinations of values of variables that are looked at one by one.
constexpr int64_t kMaxCombinations = 4096;
constexpr int kMaxReductionDepth = 64;

class KernelCheck {
 public:
  KernelCheck(UOp sink, std::span<const UOp> wire_nodes)
      : sink_(sink), nodes_(Toposort(sink)), index_(sink.graph().size(), -1) {
    int64_t next = 0;
    for (const UOp u : wire_nodes.empty() ? std::span<const UOp>(nodes_) : wire_nodes) {
      if (index_[u.id()] < 0) index_[u.id()] = next;
      ++next;
    }
  }

  absl::Status Run() {
    BEAMD_RETURN_IF_ERROR(CheckNodes());
    BEAMD_RETURN_IF_ERROR(CheckNames());
    BEAMD_RETURN_IF_ERROR(CheckShapes());
    return CheckMemory();
  }

 private:
  using Dim = std::pair<int64_t, UOp>;  // a number, or an expression
  using Dims = std::vector<Dim>;
  // A LOAD, PRELOAD or STORE.
  struct Access {
    UOp node, view;
    const BufferArg* buffer;
  };

  absl::Status Fault(UOp u, absl::string_view reason, absl::string_view what,
                     absl::string_view field = "", std::optional<int64_t> limit = {},
                     std::optional<int64_t> value = {}) const {
    return NodeError(index_[u.id()], u.op(), what,
                     {.reason = std::string(reason),
                      .field = std::string(field),
                      .limit = limit,
                      .value = value});
  }

  // ---- what each node is ----

  absl::Status CheckNodes() {
    if (!sink_.is(Op::kSink)) return Fault(sink_, "NO_SINK", "the root is no SINK", "op");
    for (const UOp u : nodes_) {
      if (!u.is(kKernelOps)) return Fault(u, "OP", "is not an op of a submitted kernel", "op");
      BEAMD_RETURN_IF_ERROR(VerifyNode(u, index_[u.id()]));
      if (u.lanes() != 1) {
        return Fault(u, "LANES", "a submitted kernel has no vectors", "dtype.lanes", 1, u.lanes());
      }
      if (u.is(Op::kLoad | Op::kPreload | Op::kStore)) {
        if (!u.is(Op::kStore) && u.src_count() != 2) {
          return Fault(u, "ARITY", "a submitted kernel's load waits for nothing", "src", 2,
                       u.src_count());
        }
        accesses_.push_back({u, u.src(1), &u.src(0).data<BufferArg>()});
      }
      if (u.is(Op::kView | Op::kAssign)) BEAMD_RETURN_IF_ERROR(CheckSizes(u));
      if (u.is(Op::kSink) && (u != sink_ || u.arg().has_value())) {
        return Fault(u, "WRONG_ARG", "the kernel is optimised already", "kernel_info");
      }
    }
    for (int i = 0; i < sink_.src_count(); ++i) {
      if (sink_.src(i).is(Op::kStore)) continue;
      return Fault(sink_, "NO_STORE", absl::StrCat("source ", i, " is no STORE"),
                   NodeCheck::SrcField(i));
    }
    return absl::OkStatus();
  }

  // Sizes are integer arithmetic over variables.
  absl::Status CheckSizes(UOp u) const {
    const int first = u.is(Op::kAssign) ? 2 : 0;
    if (u.src_count() <= first) return absl::OkStatus();
    for (const UOp n : Toposort(u.src().subspan(first))) {
      if (n.is(kIntAlu | Op::kConst | Op::kDefineVar | Op::kCast) && !IsFloat(n.scalar())) continue;
      return Fault(u, "SYMBOLIC", absl::StrCat("a size holds a ", Name(n.op())), "view_arg");
    }
    return absl::OkStatus();
  }

  absl::Status CheckNames() {
    absl::flat_hash_map<uint64_t, UOp> slots;
    absl::flat_hash_map<absl::string_view, UOp> variables;
    for (const UOp u : nodes_) {
      if (u.is(Op::kDefineGlobal)) {
        const auto [it, fresh] = slots.emplace(u.data<BufferArg>().id, u);
        if (fresh) continue;
        return Fault(u, "SLOT",
                     absl::StrCat("slot ", u.data<BufferArg>().id, " is defined differently by ",
                                  "node ", index_[it->second.id()]),
                     "int_arg or buffer_arg");
      }
      if (u.is(Op::kDefineVar)) {
        const auto [it, fresh] = variables.emplace(u.data<VariableArg>().name, u);
        if (!fresh) {
          return Fault(u, "VARIABLE",
                       absl::StrCat("the variable ", u.data<VariableArg>().name,
                                    " is defined differently by node ", index_[it->second.id()]),
                       "var_arg");
        }
        variables_.push_back(u);
      }
    }
    return absl::OkStatus();
  }

  // ---- shapes ----

  absl::Status CheckShapes() {
    std::vector<std::optional<Dims>> shapes(sink_.graph().size());
    std::vector<int> depth(sink_.graph().size());
    std::optional<Dims> full;
    for (const UOp u : nodes_) {
      if (u.is(Op::kSink)) continue;
      std::optional<Dims>& shape = shapes[u.id()];
      // Expressions inside a view have no shape, and no part in the kernel's.
      if (u.is(Op::kView)) {
        shape = DimsOf(u);
        continue;
      }
      for (int i = 0; i < u.src_count() && !(u.is(Op::kAssign) && i >= 2); ++i) {
        depth[u.id()] = std::max(depth[u.id()], depth[u.src(i).id()]);
        const std::optional<Dims>& other = shapes[u.src(i).id()];
        if (!other) continue;
        if (shape && !SameDims(*shape, *other)) {
          return Fault(u, "SHAPE",
                       absl::StrCat("source ", i, " has shape ", ToString(*other), ", another has ",
                                    ToString(*shape)),
                       NodeCheck::SrcField(i));
        }
        if (!shape) shape = other;
      }
      if (u.is(Op::kReduceAxis)) {
        if (++depth[u.id()] > kMaxReductionDepth) {
          return Fault(u, "DEPTH", "too many reductions of reductions", "src", kMaxReductionDepth,
                       depth[u.id()]);
        }
        BEAMD_RETURN_IF_ERROR(ReduceShape(u, shape));
      }
      if (shape) BEAMD_RETURN_IF_ERROR(MergeFull(u, *shape, full));
    }
    for (int i = 1; i < sink_.src_count(); ++i) {
      const Dims &first = *shapes[sink_.src(0).id()], &other = *shapes[sink_.src(i).id()];
      if (SameDims(first, other)) continue;
      return Fault(
          sink_.src(i), "SHAPE",
          absl::StrCat("stores shape ", ToString(other), ", the first STORE has ", ToString(first)),
          "src[1]");
    }
    return absl::OkStatus();
  }

  absl::Status ReduceShape(UOp u, std::optional<Dims>& shape) const {
    const std::vector<int32_t>& axes = u.data<ReduceArg>().axes;
    if (!shape) return Fault(u, "SHAPE", "reduces a value without a shape", "src[0]");
    for (size_t i = 0; i < axes.size(); ++i) {
      if (static_cast<size_t>(axes[i]) >= shape->size()) {
        return Fault(u, "AXES", absl::StrCat("there is no axis ", axes[i]),
                     absl::StrCat("reduce_arg.axes[", i, "]"),
                     static_cast<int64_t>(shape->size()) - 1, axes[i]);
      }
      (*shape)[axes[i]] = {1, UOp()};
    }
    return absl::OkStatus();
  }

  // Every shape has the kernel's rank, and on each axis 1 or the kernel's size.
  absl::Status MergeFull(UOp u, const Dims& shape, std::optional<Dims>& full) const {
    if (!full) full = shape;
    if (full->size() != shape.size()) {
      return Fault(u, "RANK",
                   absl::StrCat("has rank ", shape.size(), ", others have ", full->size()), "",
                   static_cast<int64_t>(full->size()), static_cast<int64_t>(shape.size()));
    }
    const Dim one{1, UOp()};
    for (size_t i = 0; i < shape.size(); ++i) {
      if ((*full)[i] == one) (*full)[i] = shape[i];
      if (shape[i] == one || SameDim(shape[i], (*full)[i])) continue;
      return Fault(u, "SHAPE",
                   absl::StrCat("axis ", i, " of ", ToString(shape), " is neither 1 nor that of ",
                                ToString(*full)));
    }
    return absl::OkStatus();
  }

  static Dims DimsOf(UOp view) {
    Dims dims;
    for (const IntOrSrc& dim : view.data<ViewsArg>().views.back().shape) {
      dims.push_back(dim.src < 0 ? Dim{dim.value, UOp()} : Dim{0, view.src(dim.src)});
    }
    return dims;
  }

  bool SameDims(const Dims& a, const Dims& b) const {
    return std::ranges::equal(a, b, [&](const Dim& x, const Dim& y) { return SameDim(x, y); });
  }
  // Expressions that are spelt differently are the same where they agree for the least, a middle and
  // the greatest value of every variable.
  bool SameDim(const Dim& a, const Dim& b) const {
    if (a == b) return true;
    if (!a.second && !b.second) return false;
    return std::ranges::all_of(Combinations(3), [&](const VariableValues& values) {
      const auto value = [&](const Dim& dim) {
        return dim.second ? SizeValue(dim.second, values).value_or(-1) : dim.first;
      };
      return value(a) == value(b);
    });
  }

  static std::string ToString(const Dims& dims) {
    return absl::StrCat("(",
                        absl::StrJoin(dims, ",",
                                      [](std::string* out, const Dim& dim) {
                                        absl::StrAppend(out,
                                                        dim.second ? "?" : absl::StrCat(dim.first));
                                      }),
                        ")");
  }

  // ---- memory ----

  // Every combination of values of the variables, `values_each` of each: its ends and what lies
  // evenly between.
  std::vector<VariableValues> Combinations(int64_t values_each) const {
    std::vector<VariableValues> all(1);
    for (const UOp u : variables_) {
      const VariableArg& var = u.data<VariableArg>();
      const auto width = static_cast<uint64_t>(var.max) - static_cast<uint64_t>(var.min);
      const auto steps = static_cast<int64_t>(
          std::min<uint64_t>(width, static_cast<uint64_t>(std::max<int64_t>(values_each - 1, 1))));
      std::vector<VariableValues> more;
      for (int64_t step = 0; step <= steps; ++step) {
        const auto at = steps == 0 ? 0 : static_cast<unsigned __int128>(width) * step / steps;
        for (VariableValues values : all) {
          values[var.name] =
              static_cast<int64_t>(static_cast<uint64_t>(var.min) + static_cast<uint64_t>(at));
          more.push_back(std::move(values));
        }
        if (static_cast<int64_t>(more.size()) > kMaxCombinations) break;
      }
      all = std::move(more);
    }
    return all;
  }
  // All of them where they are few enough; else the ends and the middle.
  const std::vector<VariableValues>& Combinations() {
    if (!combinations_.empty()) return combinations_;
    double count = 1;
    for (const UOp u : variables_) {
      const VariableArg& var = u.data<VariableArg>();
      count *= static_cast<double>(var.max) - static_cast<double>(var.min) + 1;
    }
    combinations_ = Combinations(count <= kMaxCombinations ? kMaxCombinations : 3);
    return combinations_;
  }

  absl::Status CheckMemory() {
    for (const UOp u : nodes_) {
      if (u.is(Op::kValid) && u.src(0).is(Op::kView)) {
        BEAMD_RETURN_IF_ERROR(CheckAccess({u, u.src(0), nullptr}));
      }
    }
    for (const Access& access : accesses_) BEAMD_RETURN_IF_ERROR(CheckAccess(access));
    for (const Access& store : accesses_) {
      if (!store.node.is(Op::kStore)) continue;
      for (const Access& other : accesses_) {
        if (other.buffer->id != store.buffer->id || other.node == store.node) continue;
        if (other.node.is(Op::kStore)) {
          return Fault(store.node, "STORED_TWICE",
                       absl::StrCat("slot ", store.buffer->id, " is stored by another STORE"),
                       "src[0]");
        }
        BEAMD_RETURN_IF_ERROR(CheckLoadOfStored(other, store));
      }
    }
    return absl::OkStatus();
  }

  absl::Status OutOfBuffer(const Access& access, int64_t element, int64_t size) const {
    return Fault(access.node, "INDEX_OUT_OF_BUFFER",
                 element < 0 ? absl::StrCat("index ", element, " is below the buffer in slot ",
                                            access.buffer->id)
                             : absl::StrCat("index ", element, " leaves the buffer in slot ",
                                            access.buffer->id, " of ", size, " elements"),
                 "src[1]", size > 0 ? std::optional<int64_t>(size - 1) : std::nullopt, element);
  }

  // Elements that the buffer has: what is stated, an image's texels, or as many as are used.
  static int64_t SizeOf(const Access& access) {
    constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
    if (access.buffer == nullptr) return kUnknown;
    const DType dtype = access.node.src(0).dtype();
    if (access.buffer->size_elements > 0) return static_cast<int64_t>(access.buffer->size_elements);
    if (dtype.is_image()) return int64_t{4} * dtype.image_height * dtype.image_width;
    return kUnknown;
  }

  absl::Status CheckAccess(const Access& access) {
    const int64_t size = SizeOf(access);
    const bool any_index = access.buffer == nullptr;
    const auto fits = [&](const IndexBounds& b) {
      return b.empty || (b.inside && (any_index || (b.index.min >= 0 && b.index.max < size)));
    };
    const IndexBounds bounds = IndexBoundsOf(access.view);
    if (bounds.sizes_ok && fits(bounds)) return absl::OkStatus();
    if (bounds.exact) {
      return OutOfBuffer(access, bounds.index.min < 0 ? bounds.index.min : bounds.index.max, size);
    }
    for (const VariableValues& values : Combinations()) {
      if (--steps_ < 0) return absl::OkStatus();
      const absl::StatusOr<ViewIndex> view = ViewIndex::Create(access.view, values);
      if (!view.ok()) {
        return Fault(access.node, "NEGATIVE_SIZE", view.status().message(), "view_arg");
      }
      const IndexBounds known = IndexBoundsOf(*view);
      if (fits(known)) continue;
      const ViewIndex once = view->WithoutRepeats();
      if (once.WalkLength() > steps_) continue;  // undecided
      absl::Status status;
      once.ForEachValid([&](std::span<const int64_t>, int64_t element, bool left_view) {
        if (left_view) {
          status = Fault(access.node, "INDEX_OUT_OF_VIEW",
                         "an index leaves the view that it counts in", "view_arg");
        } else if (!any_index && (element < 0 || element >= size)) {
          status = OutOfBuffer(access, element, size);
        }
        return status.ok();
      });
      steps_ -= once.WalkLength();
      BEAMD_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  absl::Status CheckLoadOfStored(const Access& load, const Access& store) {
    if (load.view == store.view) return absl::OkStatus();
    const IndexBounds loaded = IndexBoundsOf(load.view), stored = IndexBoundsOf(store.view);
    if (loaded.empty || stored.empty || loaded.index.max < stored.index.min ||
        stored.index.max < loaded.index.min) {
      return absl::OkStatus();
    }
    for (const VariableValues& values : Combinations()) {
      if (--steps_ < 0) return absl::OkStatus();
      BEAMD_ASSIGN_OR_RETURN(const ViewIndex from, ViewIndex::Create(load.view, values));
      BEAMD_ASSIGN_OR_RETURN(const ViewIndex to, ViewIndex::Create(store.view, values));
      if (SameElements(from, to)) continue;
      const int64_t steps =
          std::min(from.WalkLength(), kMaxSteps) + std::min(to.WalkLength(), kMaxSteps);
      if (steps > steps_) continue;  // undecided
      steps_ -= steps;
      absl::flat_hash_set<int64_t> elements;
      to.ForEachValid([&](std::span<const int64_t>, int64_t element, bool) {
        elements.insert(element);
        return true;
      });
      absl::Status status;
      std::vector<int64_t> at;
      from.ForEachValid([&](std::span<const int64_t> point, int64_t element, bool) {
        // The store's point: reduced axes are of size 1 there.
        at.assign(point.begin(), point.end());
        for (size_t i = 0; i < at.size(); ++i) at[i] = to.shape()[i] == 1 ? 0 : at[i];
        if (to.Index(at) == element || !elements.contains(element)) return true;
        status = Fault(load.node, "LOADS_WHAT_ANOTHER_POINT_STORES",
                       absl::StrCat("reads element ", element, " of slot ", load.buffer->id,
                                    ", which another point stores"),
                       "src[1]", {}, element);
        return false;
      });
      BEAMD_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  // Proven without walking: wherever `from` is valid, `to` is and has the same element.
  static bool SameElements(const ViewIndex& from, const ViewIndex& to) {
    if (from.views().size() != 1 || to.views().size() != 1) return false;
    const ViewIndex::View &a = from.views()[0], &b = to.views()[0];
    int64_t offset = b.offset;
    for (size_t i = 0; i < a.shape.size(); ++i) {
      const auto [begin, end] = a.valid[i];
      if (begin >= end) return true;  // nothing is loaded
      const bool one = b.shape[i] == 1;
      const int64_t stride = one ? 0 : b.strides[i];
      if (one ? b.valid[i].second != 1 || b.valid[i].first != 0
              : begin < b.valid[i].first || end > b.valid[i].second) {
        return false;
      }
      // On an axis with one valid coordinate only the element there counts.
      if (end - begin > 1 && a.strides[i] != stride) return false;
      offset += (stride - a.strides[i]) * begin;
    }
    return offset == a.offset;
  }

  UOp sink_;
  std::vector<UOp> nodes_;
  std::vector<int64_t> index_;  // by id: the number that errors give the node
  std::vector<Access> accesses_;
  std::vector<UOp> variables_;
  std::vector<VariableValues> combinations_;
  int64_t steps_ = kMaxSteps;
};

}  // namespace

absl::Status VerifyKernel(UOp sink, std::span<const UOp> wire_nodes) {
  return KernelCheck(sink, wire_nodes).Run();
}

}  // namespace beamd

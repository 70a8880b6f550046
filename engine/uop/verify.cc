#include "engine/uop/verify.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"

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

  // Every source from `first` on is a size that the argument names, and it names no other source.
  absl::Status SizesAreUsed(int first, absl::string_view field) const {
    std::vector<bool> used(u_.src_count(), false);
    int32_t other = -1;
    const auto use = [&](const IntOrSrc& v) {
      if (v.src < 0) return;
      if (v.src < first) {
        other = v.src;
      } else {
        used[v.src] = true;
      }
    };
    if (u_.has_data<IntsArg>()) std::ranges::for_each(u_.data<IntsArg>().values, use);
    if (u_.has_data<BufferArg>()) std::ranges::for_each(u_.data<BufferArg>().shape, use);
    if (u_.has_data<ViewsArg>()) {
      for (const ViewArg& view : u_.data<ViewsArg>().views) {
        std::ranges::for_each(view.shape, use);
        std::ranges::for_each(view.strides, use);
        use(view.offset);
        for (size_t i = 0; view.mask && i < view.mask->size(); ++i) {
          use((*view.mask)[i].first);
          use((*view.mask)[i].second);
        }
      }
    }
    if (other >= 0) {
      return Fault("SYMBOLIC", absl::StrCat("takes source ", other, " as a size"), field);
    }
    for (int i = first; i < u_.src_count(); ++i) {
      if (!used[i]) {
        return Fault("ARITY", absl::StrCat("source ", i, " is a size that nothing takes"),
                     SrcField(i), first, u_.src_count());
      }
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
  if (!t.is_image()) return absl::OkStatus();
  if (t.scalar != Scalar::kFloat16 && t.scalar != Scalar::kFloat32) {
    return check.Fault("DTYPE", absl::StrCat("an image holds no ", Name(t.scalar)), "dtype.scalar");
  }
  if (t.lanes != 1) {
    return check.Fault("LANES", absl::StrCat("an image holds no vectors of ", t.lanes),
                       "dtype.lanes", 1, t.lanes);
  }
  const uint64_t stated = check.node().data<BufferArg>().size_elements;
  if (stated != 0 && stated != static_cast<uint64_t>(ImageElements(t))) {
    return check.Fault("IMAGE", absl::StrCat(stated, " elements are no ", ToString(t)),
                       "buffer_arg.size_elements", ImageElements(t), static_cast<int64_t>(stated));
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
  const DType element = ElementOf(buffer.dtype());
  if (!store) return check.Is(element);
  BEAMD_RETURN_IF_ERROR(check.Is(DType()));
  return check.SrcIs(2, element);
}

// In a kernel the target is a pointer, in a tensor graph a value that lies in a buffer.
absl::Status VerifyAssign(const NodeCheck& check) {
  const UOp u = check.node();
  BEAMD_RETURN_IF_ERROR(check.Arity(2, std::numeric_limits<int>::max()));
  BEAMD_RETURN_IF_ERROR(check.IsValue());
  BEAMD_RETURN_IF_ERROR(check.SrcIs(1, u.dtype()));
  const DType target = u.src(0).dtype();
  if ((target.is_pointer() ? ElementOf(target) : target) != u.dtype()) {
    return check.Fault(
        "DTYPE",
        absl::StrCat("source 0 is ", ToString(target), ", which holds no ", ToString(u.dtype())),
        "src[0]");
  }
  if (!u.arg().has_value()) return check.Arity(2);
  BEAMD_RETURN_IF_ERROR(check.HasArg<ViewsArg>("view_arg"));
  BEAMD_RETURN_IF_ERROR(check.SizesFrom(2));
  BEAMD_RETURN_IF_ERROR(check.SizesAreUsed(2, "view_arg"));
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
  if (u.is(Op::kPermute | Op::kFlip)) {
    BEAMD_RETURN_IF_ERROR(check.Arity(1));
    const std::vector<IntOrSrc>& values = u.data<IntsArg>().values;
    if (std::ranges::all_of(values, [](const IntOrSrc& v) { return v.src < 0; })) {
      return absl::OkStatus();
    }
    return check.Fault("SYMBOLIC", "takes numbers only", "ints_arg.symbolic");
  }
  BEAMD_RETURN_IF_ERROR(check.SizesFrom(1));
  return check.SizesAreUsed(1, "ints_arg");
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
      BEAMD_RETURN_IF_ERROR(check.SizesFrom(0));
      return check.SizesAreUsed(0, "buffer_arg.shape");
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

}  // namespace beamd

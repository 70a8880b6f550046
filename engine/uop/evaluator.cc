#include "engine/uop/evaluator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/uop/bounded_real.h"
#include "engine/uop/int_alu.h"
#include "engine/uop/store_points.h"

namespace beamd {
namespace {

// The error of a value of which nothing is known; of an integer, the only one but 0.
constexpr double kInf = BoundedReal::kUnknown;
// What rounding both factors to 10 bits does to a product, and the product of the two errors.
constexpr double kTwoTf32Roundings = 2 * 0x1p-11 + 0x1p-22;

// Values of every 16-bit pattern, decoded once.
const std::vector<double>& ShortFloats(Scalar s) {
  const auto make = [](Scalar scalar) {
    std::vector<double> values(65536);
    for (uint32_t bits = 0; bits < values.size(); ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      values[bits] = LoadFloat(&pattern, scalar);
    }
    return values;
  };
  static const std::vector<double> f16 = make(Scalar::kFloat16), bf16 = make(Scalar::kBFloat16);
  return s == Scalar::kFloat16 ? f16 : bf16;
}

const char* Address(const EvalBuffer& buffer, int64_t element) {
  const int64_t place = buffer.uniform ? 0 : element;
  return static_cast<const char*>(buffer.data) + place * SizeBytes(buffer.scalar);
}

double LoadReal(const EvalBuffer& buffer, int64_t element) {
  const char* at = Address(buffer, element);
  if (SizeBytes(buffer.scalar) != 2) return LoadFloat(at, buffer.scalar);
  const auto low = static_cast<unsigned char>(at[0]), high = static_cast<unsigned char>(at[1]);
  return ShortFloats(buffer.scalar)[low | high << 8];
}

int64_t LoadInteger(const EvalBuffer& buffer, int64_t element) {
  return LoadInt(Address(buffer, element), buffer.scalar);
}

// ---- blocks of points ----

// The values of a node at the points of a block; one of the first two is used, by its dtype.
struct Column {
  std::vector<double> real;
  std::vector<int64_t> integer;
  std::vector<double> error;

  BoundedReal Get(size_t i) const { return {real[i], error[i]}; }
  void Set(size_t i, BoundedReal r) {
    real[i] = r.v;
    error[i] = r.e;
  }
};

// Coordinates of points, an axis at a time.
using Points = std::vector<std::vector<int64_t>>;

struct Region;

// A node in a region, its sources being columns of the region.
struct Step {
  UOp node;
  std::vector<int> src;
  std::optional<ViewIndex> view;
  const EvalBuffer* buffer = nullptr;
  int region = -1;               // REDUCE_AXIS: the region of its source
  std::vector<int64_t> reduced;  // REDUCE_AXIS: the sizes of its axes
  int64_t terms = 1;             // REDUCE_AXIS: their product
  bool may_be_exact = false;     // a MUL that tensor cores don't round
  bool rounds_factors = false;   // a MUL whose factors they round to 10 bits
};

// The nodes between a value and the reductions below it: all have the points of the value.
struct Region {
  std::vector<Step> steps;  // sources first; the last one is the value
  std::vector<Column> columns;
  Points points;  // of the block that is evaluated
  size_t block = 0;
  double work = 0;  // nodes times points that one point costs
};

// Evaluates one ADD, MUL or MAX reduction, term by term.
class Fold {
 public:
  Fold(Op op, Scalar s) : op_(op), s_(s) {
    if (op == Op::kMul) product_ = {1, 0};
    if (op == Op::kMax) product_ = {-kInf, 0};
    integer_ = op == Op::kMul ? 1 : op == Op::kMax ? MinInt(s) : 0;
  }

  void AddReal(BoundedReal x) {
    if (op_ == Op::kMul) {
      product_ = Multiply(product_, x, s_);
    } else if (op_ == Op::kMax) {
      product_ = Maximum(product_, x);
    } else {
      sum_ += x.v;
      absolute_ += std::abs(x.v);
      squares_ += x.v * x.v;
      errors_ += x.e;
      finite_ &= std::isfinite(x.v);
    }
  }
  void AddInteger(int64_t x, double error) {
    integer_ = IntAlu(op_, s_, integer_, x);
    errors_ += error;
  }

  BoundedReal Result(int64_t terms) const {
    if (op_ != Op::kAdd) return product_;
    const auto exact = static_cast<double>(sum_);
    BoundedReal r{RoundToFloat(exact, s_), kInf};
    if (!(errors_ < kInf)) return r;
    if (!finite_) return {r.v, 0};
    if (terms == 0) return {0, 0};
    const double root = std::sqrt(static_cast<double>(terms));
    const double e = Unit(s_) * (4 + 2 * root) * (std::abs(exact) + 3 * std::sqrt(squares_)) +
                     errors_ * std::min(1.0, 3 / root);
    if (std::isfinite(r.v)) {
      // Some order may leave the dtype on the way.
      if (absolute_ + errors_ <= MaxFinite(s_) && e < kInf) r.e = e;
    } else if (std::abs(exact) == absolute_ && std::abs(exact) - e > MaxFinite(s_)) {
      r.e = 0;
    }
    return r;
  }
  int64_t integer() const { return integer_; }
  double errors() const { return errors_; }

 private:
  Op op_;
  Scalar s_;
  BoundedReal product_{0, 0};
  long double sum_ = 0;
  double absolute_ = 0, squares_ = 0, errors_ = 0;
  bool finite_ = true;
  int64_t integer_ = 0;
};

}  // namespace

struct Evaluator::Plan {
  struct Store {
    int region = -1;
    EvalBuffer buffer;
    StorePoints points;
  };

  EvalInputs inputs;
  std::vector<Region> regions;
  absl::flat_hash_map<UOp, int> region_of;                // by the region's value
  absl::flat_hash_map<UOp, std::vector<int64_t>> shapes;  // of nodes that have one
  absl::flat_hash_map<uint64_t, Store> stores;            // by slot
  size_t steps = 0;

  absl::Status Build(UOp sink);
  absl::Status FindShapes(std::span<const UOp> nodes);
  absl::Status BuildRegion(UOp value, int index);
  absl::StatusOr<Step> BuildStep(UOp u, const absl::flat_hash_map<UOp, int>& column);
  absl::Status Buffer(UOp define_global, const EvalBuffer** buffer) const;

  // Evaluates a region at the first `count` of its points.
  absl::Status Run(int region, size_t count);
  absl::Status RunStep(Region& r, size_t index, size_t count);
  absl::Status RunLoad(const Region& r, const Step& step, Column& out, size_t count) const;
  absl::Status RunReduce(const Region& r, const Step& step, Column& out, size_t count);
  absl::StatusOr<std::vector<EvalValue>> Evaluate(uint64_t slot, std::span<const int64_t> elements);
};

// ---- planning ----

absl::Status Evaluator::Plan::Buffer(UOp define_global, const EvalBuffer** buffer) const {
  if (!define_global.is(Op::kDefineGlobal) || !define_global.has_data<BufferArg>()) {
    return absl::InvalidArgumentError("an access to what is no buffer of the kernel");
  }
  const uint64_t slot = define_global.data<BufferArg>().id;
  const auto it = inputs.buffers.find(slot);
  if (it == inputs.buffers.end()) {
    return absl::InvalidArgumentError(absl::StrCat("no content for the buffer in slot ", slot));
  }
  if (it->second.scalar != define_global.scalar()) {
    return absl::InvalidArgumentError(absl::StrCat("the buffer in slot ", slot, " holds ",
                                                   Name(define_global.scalar()), ", not ",
                                                   Name(it->second.scalar)));
  }
  *buffer = &it->second;
  return absl::OkStatus();
}

absl::Status Evaluator::Plan::FindShapes(std::span<const UOp> nodes) {
  for (const UOp u : nodes) {
    if (u.is(Op::kView)) {
      BEAMD_ASSIGN_OR_RETURN(const ViewIndex view, ViewIndex::Create(u, inputs.variables));
      shapes[u] = view.shape();
      continue;
    }
    for (const UOp s : u.src()) {
      const auto it = shapes.find(s);
      if (it == shapes.end()) continue;
      const std::vector<int64_t> shape = it->second;
      const auto [own, fresh] = shapes.emplace(u, shape);
      if (!fresh && own->second != shape && !u.is(Op::kSink)) {
        return absl::InvalidArgumentError(absl::StrCat(Name(u.op()), " of different shapes"));
      }
    }
    if (!u.is(Op::kReduceAxis)) continue;
    const auto own = shapes.find(u);
    if (own == shapes.end()) return absl::InvalidArgumentError("a reduction without a shape");
    for (const int32_t axis : u.data<ReduceArg>().axes) {
      if (axis < 0 || static_cast<size_t>(axis) >= own->second.size()) {
        return absl::InvalidArgumentError("a reduction of an axis that isn't there");
      }
      own->second[axis] = 1;
    }
  }
  return absl::OkStatus();
}

absl::Status Evaluator::Plan::Build(UOp sink) {
  if (!sink.is(Op::kSink)) return absl::InvalidArgumentError("a kernel's root is a SINK");
  const std::vector<UOp> nodes = Toposort(sink);
  BEAMD_RETURN_IF_ERROR(FindShapes(nodes));
  // Reductions come after those below them, so that their regions are there.
  for (const UOp u : nodes) {
    if (!u.is(Op::kReduceAxis | Op::kStore)) continue;
    const UOp value = u.src(u.is(Op::kStore) ? 2 : 0);
    if (!region_of.contains(value)) {
      const int index = static_cast<int>(regions.size());
      regions.emplace_back();
      BEAMD_RETURN_IF_ERROR(BuildRegion(value, index));
      region_of[value] = index;
    }
    if (u.is(Op::kReduceAxis)) continue;
    const EvalBuffer* buffer = nullptr;
    BEAMD_RETURN_IF_ERROR(Buffer(u.src(0), &buffer));
    BEAMD_ASSIGN_OR_RETURN(ViewIndex view, ViewIndex::Create(u.src(1), inputs.variables));
    // A value without a shape has the store's points.
    Region& region = regions[region_of.at(value)];
    if (region.points.size() < view.shape().size()) {
      region.points.resize(view.shape().size(), std::vector<int64_t>(region.block));
    }
    BEAMD_ASSIGN_OR_RETURN(StorePoints points, StorePoints::Create(std::move(view)));
    stores.emplace(u.src(0).data<BufferArg>().id,
                   Store{region_of.at(value), *buffer, std::move(points)});
  }
  return absl::OkStatus();
}

absl::Status Evaluator::Plan::BuildRegion(UOp value, int index) {
  // What the region evaluates: everything below the value, but not below a reduction, a buffer or a
  // view. A stack of its own, as a client chooses the depth.
  std::vector<UOp> order;
  absl::flat_hash_map<UOp, int> column;
  std::vector<std::pair<UOp, bool>> stack = {{value, false}};
  while (!stack.empty()) {
    const auto [u, expanded] = stack.back();
    stack.pop_back();
    if (column.contains(u)) continue;
    if (expanded) {
      column[u] = static_cast<int>(order.size());
      order.push_back(u);
      continue;
    }
    stack.emplace_back(u, true);
    if (u.is(Op::kReduceAxis | Op::kLoad | Op::kPreload | Op::kValid)) continue;
    const int first = u.is(Op::kAssign) ? 1 : 0;
    const int last = u.is(Op::kAssign) ? 2 : u.src_count();
    for (int i = first; i < last; ++i) {
      if (!column.contains(u.src(i))) stack.emplace_back(u.src(i), false);
    }
  }
  constexpr size_t kMaxSteps = 4000000;
  steps += order.size();
  if (steps > kMaxSteps) {
    return absl::ResourceExhaustedError("reductions share too many nodes to be planned");
  }

  Region region;
  region.block = std::clamp<size_t>((size_t{1} << 19) / order.size(), 32, 1024);
  for (const UOp u : order) {
    BEAMD_ASSIGN_OR_RETURN(Step step, BuildStep(u, column));
    region.work += 1;
    if (step.region >= 0) {
      region.work += static_cast<double>(step.terms) * regions[step.region].work;
      // Tensor cores multiply short floats exactly: MUL, then a widening CAST, then the sum.
      Step& cast = regions[step.region].steps.back();
      cast.rounds_factors = inputs.allow_tf32 && u.data<ReduceArg>().op == Op::kAdd &&
                            cast.node.is(Op::kMul) && cast.node.scalar() == Scalar::kFloat32;
      if (u.data<ReduceArg>().op == Op::kAdd && cast.node.is(Op::kCast) &&
          cast.node.src(0).is(Op::kMul) && IsFloat(cast.node.scalar()) &&
          SizeBytes(cast.node.scalar()) > 2 && SizeBytes(cast.node.src(0).scalar()) == 2) {
        regions[step.region].steps[cast.src[0]].may_be_exact = IsFloat(cast.node.src(0).scalar());
      }
    }
    Column& c = region.columns.emplace_back();
    (IsFloat(u.scalar()) ? c.real.resize(region.block) : c.integer.resize(region.block));
    c.error.resize(region.block);
    if (u.is_const()) {
      std::ranges::fill(c.real, u.float_value());
      std::ranges::fill(c.integer, u.int_value());
    }
    region.steps.push_back(std::move(step));
  }
  if (const auto it = shapes.find(value); it != shapes.end()) {
    region.points.assign(it->second.size(), std::vector<int64_t>(region.block));
  }
  regions[index] = std::move(region);
  return absl::OkStatus();
}

absl::StatusOr<Step> Evaluator::Plan::BuildStep(UOp u,
                                                const absl::flat_hash_map<UOp, int>& column) {
  Step step{.node = u};
  switch (u.op()) {
    case Op::kConst:
      return step;
    case Op::kDefineVar:
      BEAMD_RETURN_IF_ERROR(SizeValue(u, inputs.variables).status());
      return step;
    case Op::kLoad:
    case Op::kPreload: {
      BEAMD_RETURN_IF_ERROR(Buffer(u.src(0), &step.buffer));
      BEAMD_ASSIGN_OR_RETURN(step.view, ViewIndex::Create(u.src(1), inputs.variables));
      return step;
    }
    case Op::kValid: {
      // Of a variable: valid everywhere.
      if (!u.src(0).is(Op::kView)) return step;
      BEAMD_ASSIGN_OR_RETURN(step.view, ViewIndex::Create(u.src(0), inputs.variables));
      return step;
    }
    case Op::kReduceAxis: {
      step.region = region_of.at(u.src(0));
      const std::vector<int64_t>& shape = shapes.at(u.src(0));
      for (const int32_t axis : u.data<ReduceArg>().axes) {
        step.reduced.push_back(shape[axis]);
        if (__builtin_mul_overflow(step.terms, shape[axis], &step.terms)) {
          return absl::ResourceExhaustedError("a reduction of more terms than 64 bits count");
        }
      }
      return step;
    }
    case Op::kAssign:
      step.src.push_back(column.at(u.src(1)));
      return step;
    default:
      if (!u.is(kAlu | Op::kCast | Op::kBitcast)) {
        return absl::InvalidArgumentError(absl::StrCat(Name(u.op()), " has no value in a kernel"));
      }
      for (const UOp s : u.src()) step.src.push_back(column.at(s));
      return step;
  }
}

// ---- running ----

absl::Status Evaluator::Plan::Run(int region, size_t count) {
  Region& r = regions[region];
  for (size_t step = 0; step < r.steps.size(); ++step) {
    BEAMD_RETURN_IF_ERROR(RunStep(r, step, count));
  }
  return absl::OkStatus();
}

namespace {

// Fills `mask` with the validity and `index` with the elements of a view at points of a block.
void IndexBlock(const ViewIndex& view, const Points& points, size_t count,
                std::vector<int64_t>& index, std::vector<char>& valid) {
  const ViewIndex::View& last = view.views().back();
  index.assign(count, last.offset);
  valid.assign(count, 1);
  if (view.views().size() == 1) {
    for (size_t axis = 0; axis < last.shape.size(); ++axis) {
      const int64_t* at = points[axis].data();
      const int64_t stride = last.strides[axis];
      const auto [begin, end] = last.valid[axis];
      if (begin > 0 || end < last.shape[axis]) {
        for (size_t i = 0; i < count; ++i) valid[i] &= at[i] >= begin && at[i] < end;
      }
      if (stride == 0) continue;
      for (size_t i = 0; i < count; ++i) index[i] += stride * at[i];
    }
    return;
  }
  std::vector<int64_t> point(last.shape.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t axis = 0; axis < point.size(); ++axis) point[axis] = points[axis][i];
    const std::optional<int64_t> element = view.Index(point);
    valid[i] = element.has_value() ? 1 : 0;
    index[i] = element.value_or(0);
  }
}

void RunAluReal(const Step& step, std::span<const Column> in, Column& out, size_t count) {
  const Scalar s = step.node.scalar();
  const Column& a = in[step.src[0]];
  const auto each = [&](auto op) {
    for (size_t i = 0; i < count; ++i) out.Set(i, op(i));
  };
  const auto b = [&](size_t i) { return in[step.src[1]].Get(i); };
  switch (step.node.op()) {
    case Op::kNeg:
      return each([&](size_t i) { return BoundedReal{-a.real[i], a.error[i]}; });
    case Op::kAdd:
      return each([&](size_t i) { return Add(a.Get(i), b(i), s); });
    case Op::kSub:
      return each([&](size_t i) { return Add(a.Get(i), {-b(i).v, b(i).e}, s); });
    case Op::kMul:
      if (step.rounds_factors) {
        return each([&](size_t i) {
          BoundedReal r = Multiply(a.Get(i), b(i), s);
          if (std::isfinite(r.v)) r.e += kTwoTf32Roundings * std::abs(r.v);
          return r;
        });
      }
      if (!step.may_be_exact) {
        return each([&](size_t i) { return Multiply(a.Get(i), b(i), s); });
      }
      return each([&](size_t i) {
        BoundedReal r = Multiply(a.Get(i), b(i), s);
        // The exact product of what overflows is finite, and of what is subnormal further away than
        // u of the rounded one.
        const bool overflow = std::isinf(r.v) && std::isfinite(a.real[i]) && std::isfinite(b(i).v);
        r.e = overflow ? kInf : r.e + SubnormalUnit(s);
        return r;
      });
    case Op::kFdiv:
      return each([&](size_t i) { return Divide(a.Get(i), b(i), s); });
    case Op::kRecip:
      return each([&](size_t i) { return Reciprocal(a.Get(i), s); });
    case Op::kSqrt:
      return each([&](size_t i) { return SquareRoot(a.Get(i), s); });
    case Op::kExp2:
      return each([&](size_t i) { return Exp2(a.Get(i), s); });
    case Op::kLog2:
      return each([&](size_t i) { return Log2(a.Get(i), s); });
    case Op::kSin:
      return each([&](size_t i) { return Sine(a.Get(i), s); });
    case Op::kMax:
      return each([&](size_t i) { return Maximum(a.Get(i), b(i)); });
    case Op::kMulAcc:
      return each(
          [&](size_t i) { return Add(Multiply(a.Get(i), b(i), s), in[step.src[2]].Get(i), s); });
    default:
      CheckFailed(__FILE__, __LINE__, "an op on floats", Name(step.node.op()));
  }
}

// Integer and bool results.
void RunAluInteger(const Step& step, std::span<const Column> in, Column& out, size_t count) {
  const Op op = step.node.op();
  const Scalar operand = step.node.src(0).scalar();
  const Column& a = in[step.src[0]];
  const bool unary = step.src.size() == 1;
  const Column& b = in[step.src[unary ? 0 : 1]];
  if (IsFloat(operand)) {  // a comparison
    for (size_t i = 0; i < count; ++i) {
      const double x = a.real[i], y = b.real[i];
      out.integer[i] = op == Op::kCmpLt ? x < y : x != y;
      out.error[i] = ComparisonIsOpen(a.Get(i), b.Get(i)) ? kInf : 0;
    }
    return;
  }
  if (op == Op::kMulAcc) {
    const Column& c = in[step.src[2]];
    for (size_t i = 0; i < count; ++i) {
      const int64_t product = IntAlu(Op::kMul, operand, a.integer[i], b.integer[i]);
      out.integer[i] = IntAlu(Op::kAdd, operand, product, c.integer[i]);
      out.error[i] = a.error[i] + b.error[i] + c.error[i];
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    out.integer[i] = IntAlu(op, operand, a.integer[i], unary ? 0 : b.integer[i]);
    out.error[i] = a.error[i] + (unary ? 0 : b.error[i]);
  }
}

void RunWhere(const Step& step, std::span<const Column> in, Column& out, size_t count) {
  const Column& condition = in[step.src[0]];
  const bool real = IsFloat(step.node.scalar());
  for (size_t i = 0; i < count; ++i) {
    const Column& arm = in[step.src[condition.integer[i] != 0 ? 1 : 2]];
    if (real) {
      out.real[i] = arm.real[i];
    } else {
      out.integer[i] = arm.integer[i];
    }
    out.error[i] = condition.error[i] + arm.error[i];
  }
}

void RunCast(const Step& step, std::span<const Column> in, Column& out, size_t count) {
  const Scalar from = step.node.src(0).scalar(), to = step.node.scalar();
  const Column& a = in[step.src[0]];
  for (size_t i = 0; i < count; ++i) {
    if (IsFloat(from) && IsFloat(to)) {
      out.Set(i, Convert(a.Get(i), to));
    } else if (IsFloat(to)) {
      const BoundedReal r = Convert(a.integer[i], from, to);
      out.Set(i, {r.v, r.e + a.error[i]});
    } else if (IsFloat(from)) {
      out.integer[i] = Truncate(a.real[i], to);
      out.error[i] = TruncationIsOpen(a.Get(i), to) ? kInf : 0;
    } else {
      out.integer[i] = WrapInt(a.integer[i], to);
      out.error[i] = a.error[i];
    }
  }
}

void RunBitcast(const Step& step, std::span<const Column> in, Column& out, size_t count) {
  const Scalar from = step.node.src(0).scalar(), to = step.node.scalar();
  const Column& a = in[step.src[0]];
  for (size_t i = 0; i < count; ++i) {
    char bytes[8] = {};
    IsFloat(from) ? StoreFloat(a.real[i], from, bytes) : StoreInt(a.integer[i], from, bytes);
    if (IsFloat(to)) {
      out.real[i] = LoadFloat(bytes, to);
    } else {
      out.integer[i] = LoadInt(bytes, to);
    }
    out.error[i] = a.error[i] == 0 ? 0 : kInf;
  }
}

}  // namespace

absl::Status Evaluator::Plan::RunStep(Region& r, size_t index, size_t count) {
  const Step& step = r.steps[index];
  Column& out = r.columns[index];
  switch (step.node.op()) {
    case Op::kConst:  // filled when it was planned
      break;
    case Op::kDefineVar: {
      BEAMD_ASSIGN_OR_RETURN(const int64_t value, SizeValue(step.node, inputs.variables));
      std::fill_n(out.integer.begin(), count, value);
      break;
    }
    case Op::kLoad:
    case Op::kPreload:
      return RunLoad(r, step, out, count);
    case Op::kValid: {
      std::vector<int64_t> element;
      std::vector<char> valid(count, 1);
      if (step.view) IndexBlock(*step.view, r.points, count, element, valid);
      std::copy_n(valid.begin(), count, out.integer.begin());
      break;
    }
    case Op::kReduceAxis:
      return RunReduce(r, step, out, count);
    case Op::kAssign:
      out = r.columns[step.src[0]];
      break;
    case Op::kWhere:
      RunWhere(step, r.columns, out, count);
      break;
    case Op::kCast:
      RunCast(step, r.columns, out, count);
      break;
    case Op::kBitcast:
      RunBitcast(step, r.columns, out, count);
      break;
    default:
      if (IsFloat(step.node.scalar())) {
        RunAluReal(step, r.columns, out, count);
      } else {
        RunAluInteger(step, r.columns, out, count);
      }
  }
  return absl::OkStatus();
}

absl::Status Evaluator::Plan::RunLoad(const Region& r, const Step& step, Column& out,
                                      size_t count) const {
  std::vector<int64_t> index;
  std::vector<char> valid;
  IndexBlock(*step.view, r.points, count, index, valid);
  const EvalBuffer& buffer = *step.buffer;
  const bool real = IsFloat(step.node.scalar());
  for (size_t i = 0; i < count; ++i) {
    // A masked element reads as 0, and its index means nothing.
    if (valid[i] != 0 && (index[i] < 0 || index[i] >= buffer.elements)) {
      return absl::OutOfRangeError(
          absl::StrCat("a load of element ", index[i], " of ", buffer.elements));
    }
    if (real) {
      out.real[i] = valid[i] != 0 ? LoadReal(buffer, index[i]) : 0;
    } else {
      out.integer[i] = valid[i] != 0 ? LoadInteger(buffer, index[i]) : 0;
    }
  }
  return absl::OkStatus();
}

absl::Status Evaluator::Plan::RunReduce(const Region& r, const Step& step, Column& out,
                                        size_t count) {
  const ReduceArg& reduce = step.node.data<ReduceArg>();
  const Scalar s = step.node.scalar();
  Region& inner = regions[step.region];
  std::vector<Fold> folds(count, Fold(reduce.op, s));
  std::vector<size_t> owner(inner.block);  // the outer point of each inner one
  size_t filled = 0;
  const auto flush = [&]() -> absl::Status {
    BEAMD_RETURN_IF_ERROR(Run(step.region, filled));
    const Column& terms = inner.columns.back();
    for (size_t i = 0; i < filled; ++i) {
      if (IsFloat(s)) {
        folds[owner[i]].AddReal(terms.Get(i));
      } else {
        folds[owner[i]].AddInteger(terms.integer[i], terms.error[i]);
      }
    }
    filled = 0;
    return absl::OkStatus();
  };
  std::vector<int64_t> at(reduce.axes.size());
  for (size_t p = 0; p < count; ++p) {
    std::ranges::fill(at, 0);
    for (int64_t term = 0; term < step.terms; ++term) {
      for (size_t axis = 0; axis < inner.points.size(); ++axis) {
        inner.points[axis][filled] = r.points[axis][p];
      }
      for (size_t i = 0; i < at.size(); ++i) inner.points[reduce.axes[i]][filled] = at[i];
      owner[filled++] = p;
      if (filled == inner.block) BEAMD_RETURN_IF_ERROR(flush());
      for (size_t i = at.size(); i-- > 0 && ++at[i] == step.reduced[i];) at[i] = 0;
    }
  }
  if (filled > 0) BEAMD_RETURN_IF_ERROR(flush());
  for (size_t p = 0; p < count; ++p) {
    if (IsFloat(s)) {
      out.Set(p, folds[p].Result(step.terms));
    } else {
      out.integer[p] = folds[p].integer();
      out.error[p] = folds[p].errors();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<EvalValue>> Evaluator::Plan::Evaluate(
    uint64_t slot, std::span<const int64_t> elements) {
  const auto content = inputs.buffers.find(slot);
  if (content == inputs.buffers.end()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no buffer in slot ", slot));
  }
  const EvalBuffer& buffer = content->second;
  std::vector<EvalValue> values(elements.size());
  const auto store = stores.find(slot);
  std::vector<size_t> owner;  // which of `elements` each point of the block is
  const auto flush = [&]() -> absl::Status {
    BEAMD_RETURN_IF_ERROR(Run(store->second.region, owner.size()));
    const Region& region = regions[store->second.region];
    for (size_t i = 0; i < owner.size(); ++i) {
      EvalValue& value = values[owner[i]];
      if (IsFloat(buffer.scalar)) {
        // An image's texels may be narrower than its values.
        BoundedReal x = region.columns.back().Get(i);
        if (region.steps.back().node.scalar() != buffer.scalar) {
          x = Convert(x, buffer.scalar);
        }
        value.real = x.v;
        value.error = x.e;
      } else {
        value.integer = region.columns.back().integer[i];
        value.error = region.columns.back().error[i];
      }
      value.undecided = !(value.error < kInf);
    }
    owner.clear();
    return absl::OkStatus();
  };
  std::vector<int64_t> point;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] < 0 || elements[i] >= buffer.elements) {
      return absl::OutOfRangeError(
          absl::StrCat("element ", elements[i], " of a buffer of ", buffer.elements));
    }
    values[i].scalar = buffer.scalar;
    if (store == stores.end() || !store->second.points.Find(elements[i], point)) {
      IsFloat(buffer.scalar) ? void(values[i].real = LoadReal(buffer, elements[i]))
                             : void(values[i].integer = LoadInteger(buffer, elements[i]));
      continue;
    }
    Region& region = regions[store->second.region];
    for (size_t axis = 0; axis < point.size(); ++axis) {
      region.points[axis][owner.size()] = point[axis];
    }
    owner.push_back(i);
    if (owner.size() == region.block) BEAMD_RETURN_IF_ERROR(flush());
  }
  if (!owner.empty()) BEAMD_RETURN_IF_ERROR(flush());
  return values;
}

Evaluator::Evaluator(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
Evaluator::Evaluator(Evaluator&&) noexcept = default;
Evaluator& Evaluator::operator=(Evaluator&&) noexcept = default;
Evaluator::~Evaluator() = default;

absl::StatusOr<Evaluator> Evaluator::Create(UOp sink, EvalInputs inputs) {
  auto plan = std::make_unique<Plan>();
  plan->inputs = std::move(inputs);
  BEAMD_RETURN_IF_ERROR(plan->Build(sink));
  return Evaluator(std::move(plan));
}

absl::StatusOr<std::vector<EvalValue>> Evaluator::Evaluate(uint64_t slot,
                                                           std::span<const int64_t> elements) {
  return plan_->Evaluate(slot, elements);
}

absl::StatusOr<std::vector<EvalValue>> Evaluator::EvaluateAll(uint64_t slot) {
  const auto it = plan_->inputs.buffers.find(slot);
  std::vector<int64_t> elements(it == plan_->inputs.buffers.end() ? 0 : it->second.elements);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<int64_t>(i);
  return plan_->Evaluate(slot, elements);
}

double Evaluator::WorkPerElement(uint64_t slot) const {
  const auto it = plan_->stores.find(slot);
  return it == plan_->stores.end() ? 0 : plan_->regions[it->second.region].work;
}

// ---- comparing ----

Comparison CompareFloat(double got, const EvalValue& want) {
  if (want.undecided) return Comparison::kUndecided;
  const auto result = [](bool equal) {
    return equal ? Comparison::kEqual : Comparison::kDifferent;
  };
  if (std::isnan(want.real) || std::isnan(got)) {
    return result(std::isnan(want.real) && std::isnan(got));
  }
  if (std::isinf(want.real)) return result(got == want.real);
  // Within the error of what the dtype holds at all.
  if (std::isinf(got)) {
    return result(std::signbit(got) == std::signbit(want.real) &&
                  std::abs(want.real) + 2 * want.error > MaxFinite(want.scalar));
  }
  return result(std::abs(got - want.real) <= 2 * want.error);
}

Comparison CompareInt(int64_t got, const EvalValue& want) {
  if (want.undecided) return Comparison::kUndecided;
  return got == want.integer ? Comparison::kEqual : Comparison::kDifferent;
}

Comparison CompareElement(const void* got, const EvalValue& want) {
  return IsFloat(want.scalar) ? CompareFloat(LoadFloat(got, want.scalar), want)
                              : CompareInt(LoadInt(got, want.scalar), want);
}

}  // namespace beamd

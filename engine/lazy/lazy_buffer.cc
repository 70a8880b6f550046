#include "engine/lazy/lazy_buffer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "absl/hash/hash.h"
#include "engine/base/option.h"
#include "engine/base/status.h"
#include "engine/dtype/image.h"
#include "engine/lazy/fresh_values.h"
#include "engine/lazy/lazy_node.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {

LazyNode::LazyNode(LazyContext& owner) : context(&owner), id(owner.next_id_++) {
  ++owner.live_nodes_;
}

LazyNode::~LazyNode() {
  if (contiguous_of != nullptr) contiguous_of->contiguous_child = nullptr;
  if (contiguous_child != nullptr) contiguous_child->contiguous_of = nullptr;
  if (cached) context->cache_.erase(this);
  --context->live_nodes_;
}

void LazyNode::Release(LazyNode* node) {
  if (--node->refs != 0) return;
  thread_local std::vector<LazyNode*> dying;
  thread_local bool busy = false;
  dying.push_back(node);
  if (busy) return;
  busy = true;
  while (!dying.empty()) {
    LazyNode* next = dying.back();
    dying.pop_back();
    delete next;
  }
  busy = false;
}

LazyBuffer::LazyBuffer(LazyNode* node) : node_(node) {
  if (node_ != nullptr) ++node_->refs;
}
LazyBuffer::LazyBuffer(const LazyBuffer& other) : LazyBuffer(other.node_) {}
LazyBuffer::~LazyBuffer() {
  if (node_ != nullptr) LazyNode::Release(node_);
}

namespace {

using TrackerPtr = std::shared_ptr<const ShapeTracker>;

TrackerPtr Share(ShapeTracker st) { return std::make_shared<const ShapeTracker>(std::move(st)); }

template <typename H>
H HashSize(H h, const SInt& v) {
  if (v.is_number()) return H::combine(std::move(h), v.number());
  return H::combine(std::move(h), v.expr());
}

struct NodeKey {
  const LazyNode* node;

  template <typename H>
  friend H AbslHashValue(H h, const NodeKey& key) {
    const LazyNode& n = *key.node;
    h = H::combine(std::move(h), n.made_by, n.dtype, n.image.Bits64(), n.device);
    for (uint64_t id : n.src_ids) h = H::combine(std::move(h), id);
    for (const beamd::View& v : n.st->views()) {
      for (const SInt& s : v.shape) h = HashSize(std::move(h), s);
      for (const SInt& s : v.strides) h = HashSize(std::move(h), s);
      h = HashSize(std::move(h), v.offset);
      h = H::combine(std::move(h), v.mask.has_value());
    }
    if (const auto* value = std::get_if<ConstValue>(&n.arg)) {
      h = H::combine(std::move(h), value->kind(), value->Bits());
    } else if (const auto* expression = std::get_if<UOp>(&n.arg)) {
      h = H::combine(std::move(h), *expression);
    } else if (const auto* reduce = std::get_if<ReduceArg>(&n.arg)) {
      h = H::combine(std::move(h), reduce->op, reduce->axes);
    }
    return h;
  }
};

}  // namespace

namespace {

// What FreshValuesScope asks for: values of nodes before this one don't count.
thread_local const LazyContext* fresh_context = nullptr;
thread_local uint64_t first_fresh_id = 0;

bool IsStale(const LazyNode& node) {
  return node.context == fresh_context && node.realized && node.id < first_fresh_id;
}

}  // namespace

// What makes nodes: a friend of both classes, in the file that alone may.
class LazyMaker {
 public:
  static LazyNode* Node(const LazyBuffer& b) { return b.node_; }

  static LazyBuffer Base(LazyContext& context, const std::string* device, TrackerPtr st,
                         Scalar dtype, Op op, LazyArg arg, std::span<const LazyBuffer> srcs,
                         bool enable_cache) {
    return Base(context, device, std::move(st), dtype, ImageAmong(dtype, srcs), op, std::move(arg),
                srcs, enable_cache);
  }

  static LazyBuffer Base(LazyContext& context, const std::string* device, TrackerPtr st,
                         Scalar dtype, DType image, Op op, LazyArg arg,
                         std::span<const LazyBuffer> srcs, bool enable_cache) {
    if (op != Op::kConst && st->size() == SInt(0)) {
      return Zero(context, device, st->shape(), dtype);
    }
    auto node = std::make_unique<LazyNode>(context);
    node->op = node->made_by = op;
    node->dtype = dtype;
    node->image = image;
    node->device = device;
    node->st = std::move(st);
    node->arg = std::move(arg);
    for (const LazyBuffer& s : srcs) node->src_ids.push_back(s.id());
    if (enable_cache) {
      if (LazyBuffer known = Known(*node)) return known;
      Remember(*node);
    }
    node->srcs.assign(srcs.begin(), srcs.end());
    return LazyBuffer(node.release());
  }

  static LazyBuffer View(const LazyBuffer& base, TrackerPtr st) {
    LazyNode& b = *base.node_;
    auto node = std::make_unique<LazyNode>(*b.context);
    node->made_by = Op::kView;
    node->dtype = b.dtype;
    node->device = b.device;
    node->st = std::move(st);
    node->src_ids.push_back(b.id);
    if (options::kLazyCache != 0) {
      if (LazyBuffer known = Known(*node)) return known;
      Remember(*node);
    }
    node->base = base;
    return LazyBuffer(node.release());
  }

  static LazyBuffer Zero(LazyContext& context, const std::string* device, const Shape& shape,
                         Scalar dtype) {
    return LazyBuffer::Const(context, ConstValue(0), shape, dtype, *device);
  }

  static const std::string* Device(LazyContext& context, absl::string_view name) {
    return context.InternDevice(name);
  }
  static const TrackerPtr& Tracker(const LazyBuffer& b) { return b.node_->st; }
  static uint64_t NextId(const LazyContext& context) { return context.next_id_; }

 private:
  // 0.10.0: images come first in least_upper_dtype.
  static DType ImageAmong(Scalar dtype, std::span<const LazyBuffer> srcs) {
    if (dtype != Scalar::kFloat32) return DType();
    const auto it = std::find_if(srcs.begin(), srcs.end(),
                                 [](const LazyBuffer& b) { return b.image().is_image(); });
    return it == srcs.end() ? DType() : it->image();
  }
  static LazyBuffer Known(LazyNode& node) {
    node.hash = absl::HashOf(NodeKey{&node});
    auto& cache = node.context->cache_;
    const auto it = cache.find(&node);
    if (it == cache.end()) return LazyBuffer();
    if (!IsStale(**it)) return LazyBuffer(*it);
    (*it)->cached = false;
    cache.erase(it);
    return LazyBuffer();
  }
  static void Remember(LazyNode& node) {
    node.context->cache_.insert(&node);
    node.cached = true;
  }
};

namespace {

LazyBuffer MakeBase(const LazyBuffer& like, TrackerPtr st, Scalar dtype, Op op, LazyArg arg,
                    std::span<const LazyBuffer> srcs, bool enable_cache) {
  return LazyMaker::Base(like.context(), LazyMaker::Node(like)->device, std::move(st), dtype, op,
                         std::move(arg), srcs, enable_cache);
}

TrackerPtr Row(const Shape& shape) { return Share(ShapeTracker::FromShape(shape)); }

// The row-major tracker of b's shape: b's own where it is that.
TrackerPtr RowLike(const LazyBuffer& b) {
  return b.st().contiguous() ? LazyMaker::Tracker(b) : Row(b.shape());
}

bool EmptyMask(const View& view) {
  return view.mask && std::any_of(view.mask->begin(), view.mask->end(),
                                  [](const auto& range) { return range.first == range.second; });
}

// A float function of one constant, as exact as SEMANTICS asks and more.
std::optional<ConstValue> FoldFunction(Op op, Scalar dtype, double x) {
  double v = 0;
  switch (op) {
    case Op::kRecip:
      v = 1 / x;
      break;
    case Op::kSqrt:
      v = std::sqrt(x);
      break;
    case Op::kExp2:
      v = std::exp2(x);
      break;
    case Op::kLog2:
      v = std::log2(x);
      break;
    case Op::kSin:
      v = std::sin(x);
      break;
    default:
      return std::nullopt;
  }
  // 16-bit floats round from f32.
  if (SizeBytes(dtype) == 2) v = RoundToFloat(v, Scalar::kFloat32);
  return ConstValue(v).As(dtype);
}

// The value of `op` over constants of `dtype`, or nothing where it doesn't fold.
std::optional<ConstValue> FoldAlu(Op op, Scalar dtype, Scalar out,
                                  std::span<const ConstValue> values) {
  if (values.size() == 1 && IsFloat(dtype)) {
    if (const auto value = FoldFunction(op, dtype, values[0].as_float())) return value;
  }
  UOpGraph graph;
  absl::InlinedVector<UOp, 3> src;
  for (size_t i = 0; i < values.size(); ++i) {
    const Scalar s = op == Op::kWhere && i == 0 ? Scalar::kBool : dtype;
    src.push_back(IsFloat(s) ? graph.ConstFloat(s, values[i].as_float())
                             : graph.Const(s, values[i].as_int()));
  }
  const UOp folded = Simplify(graph.Make(op, out, src));
  if (!folded.is_const()) return std::nullopt;
  if (IsFloat(out)) return ConstValue(folded.float_value());
  return ConstValue(folded.int_value()).As(out);
}

// x op y where one is a constant that makes it the other, or a constant.
LazyBuffer FoldIdentity(Op op, const LazyBuffer& x, const LazyBuffer& y) {
  const auto value = [](const LazyBuffer& b) -> std::optional<ConstValue> {
    return b.is_unmasked_const() ? std::optional(b.const_value()) : std::nullopt;
  };
  const std::optional<ConstValue> a = value(x);
  const std::optional<ConstValue> b = value(y);
  const bool is_float = IsFloat(x.dtype());
  // On floats only -0.0 keeps every value, and 0 is not absorbing (NaN, inf).
  const auto neutral_in_sum = [&](const ConstValue& v) {
    return is_float ? v.IsNegativeZero() : v.Is(0);
  };
  switch (op) {
    case Op::kAdd:
      if (b && neutral_in_sum(*b)) return x;
      if (a && neutral_in_sum(*a)) return y;
      break;
    case Op::kMul:
      if (a && a->Is(1)) return y;
      if (b && b->Is(1)) return x;
      if (!is_float && a && a->Is(0)) return y.ConstLike(0);
      if (!is_float && b && b->Is(0)) return x.ConstLike(0);
      break;
    case Op::kIdiv:
      if (b && b->Is(1)) return x;
      break;
    default:
      break;
  }
  return LazyBuffer();
}

// A base that has a row-major copy is read through the copy.
LazyBuffer ThroughChild(const LazyBuffer& b) {
  const LazyNode* node = b.node();
  if (node->base || node->contiguous_child == nullptr) return b;
  if (IsStale(*node->contiguous_child)) return b;
  return LazyBuffer(node->contiguous_child).WithView(*node->seen_through_child);
}

// Elements one behind another from some offset on, in row-major order.
bool Consecutive(const ShapeTracker& st) {
  if (st.views().size() != 1) return false;
  const View& v = st.views()[0];
  return !v.mask && v.strides == StridesForShape(v.shape);
}

// Kernels take for granted that buffers begin at a multiple of this many bytes.
constexpr int64_t kWindowAlignment = 64;

// A constant has no buffer, be it a number or an expression.
bool OfConst(const LazyBuffer& b) { return b.base().op() == Op::kConst; }

bool CanView(const LazyBuffer& b) {
  if (OfConst(b) || b.image().is_image() || !Consecutive(b.st())) return false;
  const SInt& offset = b.st().views()[0].offset;
  return offset.is_number() && offset.number() * SizeBytes(b.dtype()) % kWindowAlignment == 0;
}

// What a row-major base of `shape` is stored as. 0.10.0: to_uop, "make things that can't be images
// not images".
bool FitsImage(const Shape& shape, DType image) {
  if (!image.is_image() || !AllNumbers(shape)) return false;
  const auto last = std::find_if(shape.rbegin(), shape.rend(),
                                 [](const SInt& size) { return !ProvenEq(size, 1); });
  return last != shape.rend() && last->number() % 4 == 0 &&
         Prod(shape) == SInt(ImageElements(image));
}

}  // namespace

// --- making ---

LazyBuffer LazyBuffer::Empty(LazyContext& context, const Shape& shape, Scalar dtype,
                             absl::string_view device) {
  const std::string* name = LazyMaker::Device(context, device);
  LazyBuffer made = LazyMaker::Base(context, name, Row(shape), dtype, Op::kBuffer, {}, {},
                                    /*enable_cache=*/false);
  if (made.op() == Op::kBuffer) made.node_->realized = true;
  return made;
}

LazyBuffer LazyBuffer::Const(LazyContext& context, ConstValue value, const Shape& shape,
                             Scalar dtype, absl::string_view device) {
  const LazyBuffer base =
      LazyMaker::Base(context, LazyMaker::Device(context, device), Row({}), dtype, Op::kConst,
                      value.As(dtype), {}, /*enable_cache=*/true);
  return base.Reshape(Shape(shape.size(), SInt(1))).Expand(shape);
}

LazyBuffer LazyBuffer::Const(LazyContext& context, UOp expression, const Shape& shape, Scalar dtype,
                             absl::string_view device) {
  const LazyBuffer base = LazyMaker::Base(context, LazyMaker::Device(context, device), Row({}),
                                          dtype, Op::kConst, expression, {}, /*enable_cache=*/true);
  return base.Reshape(Shape(shape.size(), SInt(1))).Expand(shape);
}

LazyBuffer LazyBuffer::FromBuffer(LazyContext& context, std::shared_ptr<TensorBuffer> buffer,
                                  const Shape& shape) {
  LazyBuffer made = Empty(context, shape, ElementOf(buffer->pointer()).scalar, buffer->device);
  if (made.op() != Op::kBuffer) return made;
  made.node_->image = buffer->image;
  made.node_->buffer = std::move(buffer);
  return made;
}

// --- looking ---

LazyContext& LazyBuffer::context() const { return *node_->context; }
const std::string& LazyBuffer::device() const { return *node_->device; }
Scalar LazyBuffer::dtype() const { return node_->dtype; }
DType LazyBuffer::image() const { return (node_->base ? node_->base.node_ : node_)->image; }
const ShapeTracker& LazyBuffer::st() const { return *node_->st; }
SInt LazyBuffer::size() const { return st().size(); }
LazyBuffer LazyBuffer::base() const { return node_->base ? node_->base : *this; }
bool LazyBuffer::is_base() const { return !node_->base; }
Op LazyBuffer::op() const { return node_->op; }
const LazyArg& LazyBuffer::arg() const { return node_->arg; }
std::span<const LazyBuffer> LazyBuffer::srcs() const { return node_->srcs; }
uint64_t LazyBuffer::id() const { return node_->id; }
int64_t LazyBuffer::use_count() const { return node_->refs; }

const std::shared_ptr<TensorBuffer>& LazyBuffer::buffer() const {
  LazyNode& n = *node_;
  BEAMD_CHECK(!n.base, "only a base has a buffer");
  if (n.buffer) return n.buffer;
  if (n.op == Op::kAssign) return n.buffer = n.srcs[0].base().buffer();
  n.buffer = std::make_shared<TensorBuffer>();
  n.buffer->device = *n.device;
  n.buffer->dtype = n.dtype;
  if (n.op == Op::kCopy) {
    // Bytes are copied, whatever they are.
    const TensorBuffer& source = *n.srcs[0].base().buffer();
    n.buffer->dtype = source.dtype;
    n.buffer->image = source.image;
  } else if (FitsImage(n.st->shape(), n.image)) {
    n.buffer->dtype = n.image.scalar;
    n.buffer->image = n.image;
  }
  // A symbolic size takes the memory of its largest value.
  n.buffer->size_elements = n.st->size().max();
  if (n.op == Op::kBufferView) {
    const LazyBuffer& source = n.srcs[0];
    n.buffer->parent = source.base().buffer();
    n.buffer->offset_bytes = source.st().views()[0].offset.number() * SizeBytes(source.dtype());
    while (n.buffer->parent->parent) {
      n.buffer->offset_bytes += n.buffer->parent->offset_bytes;
      n.buffer->parent = n.buffer->parent->parent;
    }
  }
  return n.buffer;
}

bool LazyBuffer::is_realized() const { return (node_->base ? node_->base.node_ : node_)->realized; }
bool LazyBuffer::forced_realize() const { return node_->forced_realize; }
void LazyBuffer::set_forced_realize() const { node_->forced_realize = true; }

bool LazyBuffer::is_const() const {
  const LazyNode& b = node_->base ? *node_->base.node_ : *node_;
  return b.op == Op::kConst && std::holds_alternative<ConstValue>(b.arg);
}
bool LazyBuffer::is_unmasked_const() const { return is_const() && !st().masked(); }
ConstValue LazyBuffer::const_value() const {
  return std::get<ConstValue>((node_->base ? node_->base.node_ : node_)->arg);
}

// --- computing ---

LazyBuffer LazyBuffer::Alu(Op op, const LazyBuffer& b, const LazyBuffer& c) const {
  const std::array<LazyBuffer, 2> others{b, c};
  return Alu(op, others);
}

LazyBuffer LazyBuffer::Alu(Op op, std::span<const LazyBuffer> others) const {
  absl::InlinedVector<LazyBuffer, 3> src;
  src.push_back(ThroughChild(*this));
  for (const LazyBuffer& b : others) src.push_back(ThroughChild(b));
  const Scalar operand = src.back().dtype();
  for (size_t i = 0; i < src.size(); ++i) {
    const bool condition = op == Op::kWhere && i == 0;
    BEAMD_CHECK(src[i].dtype() == (condition ? Scalar::kBool : operand), "operands' dtypes fit");
    BEAMD_CHECK(src[i].shape() == shape(), "operands have one shape");
    BEAMD_CHECK(LazyMaker::Node(src[i])->device == node_->device, "operands are on one device");
  }
  const Scalar out = kComparison.Has(op) ? Scalar::kBool : operand;

  if (std::all_of(src.begin(), src.end(),
                  [](const LazyBuffer& b) { return b.is_unmasked_const(); })) {
    absl::InlinedVector<ConstValue, 3> values;
    for (const LazyBuffer& b : src) values.push_back(b.const_value());
    if (const std::optional<ConstValue> value = FoldAlu(op, operand, out, values)) {
      return Const(context(), *value, shape(), out, device());
    }
  }
  if (src.size() == 2) {
    if (LazyBuffer folded = FoldIdentity(op, *this, others[0])) return folded;
  }
  return MakeBase(*this, RowLike(*this), out, op, {}, src, options::kLazyCache != 0);
}

LazyBuffer LazyBuffer::ConstLike(ConstValue value) const {
  return Const(context(), value, shape(), dtype(), device());
}

LazyBuffer LazyBuffer::Cast(Scalar to) const {
  if (dtype() == to) return *this;
  if (is_unmasked_const()) {
    return Const(context(), const_value().As(to, dtype()), shape(), to, device());
  }
  if (!is_base() && options::kCastBeforeView != 0 && SizeBytes(to) <= SizeBytes(dtype())) {
    return base().Cast(to).WithView(st());
  }
  return MakeBase(*this, RowLike(*this), to, Op::kCast, {}, std::span(this, 1),
                  options::kLazyCache != 0);
}

LazyBuffer LazyBuffer::CastImage(DType image) const {
  BEAMD_CHECK(dtype() == Scalar::kFloat32, "an image's values are float32");
  if (this->image() == image) return *this;
  return LazyMaker::Base(context(), node_->device, RowLike(*this), dtype(), image, Op::kCast, {},
                         std::span(this, 1), options::kLazyCache != 0);
}

LazyBuffer LazyBuffer::Bitcast(Scalar to) const {
  if (dtype() == to) return *this;
  BEAMD_CHECK(SizeBytes(dtype()) == SizeBytes(to), "a bitcast keeps the size");
  // A masked element reads as 0 in either dtype.
  if (!is_base() && options::kCastBeforeView != 0) return base().Bitcast(to).WithView(st());
  return MakeBase(*this, RowLike(*this), to, Op::kBitcast, {}, std::span(this, 1),
                  options::kLazyCache != 0);
}

namespace {

LazyBuffer ReduceOnce(const LazyBuffer& b, Op op, std::span<const int> axes) {
  ReduceArg arg;
  arg.op = op;
  Shape shape = b.shape();
  for (int axis : axes) {
    if (ProvenEq(shape[axis], 1)) continue;
    arg.axes.push_back(axis);
    shape[axis] = 1;
  }
  if (arg.axes.empty()) return b;
  std::sort(arg.axes.begin(), arg.axes.end());
  return MakeBase(b, Row(shape), b.dtype(), Op::kReduceAxis, std::move(arg), std::span(&b, 1),
                  options::kLazyCache != 0);
}

ConstValue Identity(Op op, Scalar dtype) {
  if (op == Op::kAdd) return ConstValue(0);
  if (op == Op::kMul) return ConstValue(1);
  if (IsFloat(dtype)) return ConstValue(-HUGE_VAL);
  return ConstValue(MinInt(dtype));
}

// A reduction of `count` times the same value.
ConstValue Repeated(Op op, ConstValue value, int64_t count, Scalar dtype) {
  if (op == Op::kMax) return value;
  if (IsFloat(dtype)) {
    const double v = value.as_float();
    return ConstValue(op == Op::kAdd ? v * static_cast<double>(count)
                                     : std::pow(v, static_cast<double>(count)));
  }
  auto v = static_cast<uint64_t>(value.as_int());
  if (op == Op::kAdd) return ConstValue(static_cast<int64_t>(v * static_cast<uint64_t>(count)));
  uint64_t power = 1;
  for (int64_t n = count; n > 0; n >>= 1) {
    if ((n & 1) != 0) power *= v;
    v *= v;
  }
  return ConstValue(static_cast<int64_t>(power));
}

// The axis to split and the size of the part that goes to the second kernel; 0: none does.
std::pair<int, int64_t> SplitOf(const LazyBuffer& b, std::span<const int> axes, int64_t outputs) {
  const std::vector<std::optional<SInt>> strides = b.st().RealStrides(/*ignore_valid=*/true);
  // At most 2^22 outputs of the first kernel, at least 8 parts.
  const int64_t most =
      std::min<int64_t>(256, (int64_t{1} << options::kReduceOpSplitSize.value()) / outputs);
  for (int axis : axes) {
    if (strides[axis] == SInt(0)) continue;
    for (int64_t parts = most; parts >= 8; --parts) {
      if (b.shape()[axis].number() % parts == 0) return {axis, parts};
    }
  }
  return {0, 0};
}

}  // namespace

LazyBuffer LazyBuffer::Reduce(Op op, std::span<const int> axes) const {
  Shape reduced = shape();
  for (int axis : axes) {
    BEAMD_CHECK(axis >= 0 && axis < static_cast<int>(reduced.size()), "axes are in range");
    reduced[axis] = 1;
  }
  const bool numbers = AllNumbers(shape());
  const bool empty = size() == SInt(0);
  if (empty && Prod(reduced) != SInt(0)) {
    return Const(context(), Identity(op, dtype()), reduced, dtype(), device());
  }
  int64_t count = 1;
  if (numbers) {
    for (int axis : axes) count *= shape()[axis].number();
  }
  if (numbers && is_unmasked_const()) {
    return Const(context(), Repeated(op, const_value(), count, dtype()), reduced, dtype(),
                 device());
  }
  if (options::kSplitReduceOp == 0 || !numbers || empty ||
      count < options::kReduceOpSplitThreshold) {
    return ReduceOnce(*this, op, axes);
  }
  const auto [axis, parts] = SplitOf(*this, axes, Prod(reduced).number());
  if (parts == 0) return ReduceOnce(*this, op, axes);
  // The parts go last, where the second kernel reads them one behind another.
  Shape split = shape();
  split[axis] = split[axis] / SInt(parts);
  split.insert(split.begin() + axis, SInt(parts));
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(split.size()); ++i) {
    if (i != axis) order.push_back(i);
  }
  order.push_back(axis);
  const int last = static_cast<int>(reduced.size());
  const LazyBuffer partial = ReduceOnce(Reshape(split).Permute(order), op, axes);
  return ReduceOnce(partial, op, std::span(&last, 1)).Reshape(reduced);
}

LazyBuffer LazyBuffer::Contiguous() const {
  if (st().contiguous() && size() == base().size() && !OfConst(*this)) {
    base().set_forced_realize();
    return *this;
  }
  // Of a constant it is memory to be filled, each its own: two states that begin with 0.
  LazyBuffer made =
      MakeBase(*this, Row(shape()), dtype(), CanView(*this) ? Op::kBufferView : Op::kContiguous, {},
               std::span(this, 1), options::kLazyCache != 0 && !OfConst(*this));
  const LazyBuffer source = base();
  if (std::optional<ShapeTracker> inverse = st().Invert(source.shape())) {
    LazyNode& b = *source.node_;
    LazyNode& child = *made.node_;
    if (b.contiguous_child != nullptr) b.contiguous_child->contiguous_of = nullptr;
    if (child.contiguous_of != nullptr) child.contiguous_of->contiguous_child = nullptr;
    b.contiguous_child = &child;
    b.seen_through_child = Share(*std::move(inverse));
    child.contiguous_of = &b;
  }
  return made;
}

namespace {

LazyBuffer CopyBase(const LazyBuffer& b, absl::string_view device) {
  return LazyMaker::Base(b.context(), LazyMaker::Device(b.context(), device), Row(b.shape()),
                         b.dtype(), Op::kCopy, std::string(device), std::span(&b, 1),
                         /*enable_cache=*/false);
}

LazyBuffer Copy(const LazyBuffer& b, absl::string_view device) {
  const LazyBuffer base = b.base();
  if (OfConst(b)) {
    const auto* const expression = std::get_if<UOp>(&base.arg());
    const LazyBuffer there =
        expression != nullptr
            ? LazyBuffer::Const(b.context(), *expression, base.shape(), b.dtype(), device)
            : LazyBuffer::Const(b.context(), b.const_value(), base.shape(), b.dtype(), device);
    return there.WithView(b.st());
  }
  // A copy of a copy is one.
  if (b.st().contiguous() && b.size() == base.size() && !base.is_realized() &&
      base.op() == Op::kCopy) {
    return base.srcs()[0].CopyTo(device).Reshape(b.shape());
  }
  // Less goes over the wire if the part that is seen is cut out first.
  if (ProvenLt(b.size(), base.size())) return CopyBase(b.Contiguous(), device);
  return CopyBase(base, device).WithView(b.st());
}

}  // namespace

LazyBuffer LazyBuffer::CopyTo(absl::string_view to) const {
  return to == device() ? *this : Copy(*this, to);
}
LazyBuffer LazyBuffer::Clone() const { return Copy(*this, device()); }

LazyBuffer LazyBuffer::Assign(const LazyBuffer& value) const {
  BEAMD_CHECK(is_realized(), "what is assigned to has a buffer");
  BEAMD_CHECK(size() == value.size() && dtype() == value.dtype(), "the value fits its target");
  LazyArg arg;
  if (!st().contiguous()) arg = LazyMaker::Tracker(*this);
  const LazyBuffer target = base();
  const std::array<LazyBuffer, 2> src{target, value.Reshape(shape())};
  return LazyMaker::Base(context(), target.node_->device, LazyMaker::Tracker(target), dtype(),
                         target.image(), Op::kAssign, std::move(arg), src, /*enable_cache=*/true)
      .WithView(st());
}

// --- moving ---

LazyBuffer LazyBuffer::WithView(ShapeTracker moved) const {
  if (size() == SInt(0) || EmptyMask(moved.views().back())) {
    return Const(context(), ConstValue(0), moved.shape(), dtype(), device());
  }
  if (moved.contiguous() && base().shape() == moved.shape()) return base();
  return LazyMaker::View(base(), Share(std::move(moved)));
}

LazyBuffer LazyBuffer::Reshape(const Shape& to) const {
  return to == shape() ? *this : WithView(st().Reshape(to));
}
LazyBuffer LazyBuffer::Pad(std::span<const std::pair<SInt, SInt>> amounts) const {
  return WithView(st().Pad(amounts));
}
LazyBuffer LazyBuffer::Expand(const Shape& to) const {
  return to == shape() ? *this : WithView(st().Expand(to));
}
LazyBuffer LazyBuffer::Permute(std::span<const int> order) const {
  return WithView(st().Permute(order));
}
LazyBuffer LazyBuffer::Shrink(std::span<const std::pair<SInt, SInt>> ranges) const {
  return WithView(st().Shrink(ranges));
}
LazyBuffer LazyBuffer::Flip(std::span<const int> axes) const { return WithView(st().Flip(axes)); }

void LazyBuffer::MarkRealized() const {
  LazyNode& n = *node_;
  BEAMD_CHECK(!n.base, "only a base is realised");
  buffer();
  n.realized = true;
  n.op = Op::kBuffer;
  // Their last handles may be here: they die outside the node.
  std::vector<LazyBuffer> srcs = std::move(n.srcs);
  n.srcs.clear();
}

// --- sugar ---

LazyBuffer operator+(const LazyBuffer& a, const LazyBuffer& b) { return a.Alu(Op::kAdd, b); }
LazyBuffer operator+(const LazyBuffer& a, ConstValue b) { return a + a.ConstLike(b); }
LazyBuffer operator-(const LazyBuffer& a) {
  return a.dtype() == Scalar::kBool ? a.Alu(Op::kCmpNe, a.ConstLike(true)) : a * ConstValue(-1);
}
LazyBuffer operator-(const LazyBuffer& a, const LazyBuffer& b) { return a + -b; }
LazyBuffer operator*(const LazyBuffer& a, const LazyBuffer& b) { return a.Alu(Op::kMul, b); }
LazyBuffer operator*(const LazyBuffer& a, ConstValue b) { return a * a.ConstLike(b); }
LazyBuffer operator/(const LazyBuffer& a, const LazyBuffer& b) {
  return IsFloat(a.dtype()) ? a * b.Alu(Op::kRecip) : a.Alu(Op::kIdiv, b);
}

FreshValuesScope::FreshValuesScope(const LazyContext& context) {
  BEAMD_CHECK(fresh_context == nullptr, "scopes of fresh values don't nest");
  fresh_context = &context;
  first_fresh_id = LazyMaker::NextId(context);
}

FreshValuesScope::~FreshValuesScope() { fresh_context = nullptr; }

}  // namespace beamd

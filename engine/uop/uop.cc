#include "engine/uop/uop.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Murmur3's finaliser: a cheap, well-mixed step for hashes that must not depend on addresses.
constexpr uint64_t Mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9FB21C651E98DF25;
  return h ^ h >> 32;
}

uint64_t HashText(absl::string_view text) {
  uint64_t h = 0xCBF29CE484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return Mix(h, text.size());
}

uint64_t HashInt(const IntOrSrc& v) { return Mix(static_cast<uint64_t>(v.value), v.src + 1); }

uint64_t HashInts(const std::vector<IntOrSrc>& values) {
  uint64_t h = values.size();
  for (const IntOrSrc& v : values) h = Mix(h, HashInt(v));
  return h;
}

struct ContentHasher {
  uint64_t operator()(const ViewsArg& a) const {
    uint64_t h = a.views.size();
    for (const ViewArg& v : a.views) {
      h = Mix(h, HashInts(v.shape));
      h = Mix(h, HashInts(v.strides));
      h = Mix(h, HashInt(v.offset));
      h = Mix(h, v.mask ? 1 : 0);
      if (!v.mask) continue;
      for (const auto& [begin, end] : *v.mask) h = Mix(Mix(h, HashInt(begin)), HashInt(end));
    }
    return h;
  }
  uint64_t operator()(const ReduceArg& a) const {
    uint64_t h = static_cast<uint64_t>(a.op);
    for (const int32_t axis : a.axes) h = Mix(h, axis);
    return h;
  }
  uint64_t operator()(const VariableArg& a) const {
    return Mix(Mix(HashText(a.name), a.min), a.max);
  }
  uint64_t operator()(const KernelInfo& a) const {
    return Mix(Mix(a.local_dims, a.upcasted), a.dont_use_locals ? 1 : 0);
  }
  uint64_t operator()(const std::string& a) const { return HashText(a); }
  uint64_t operator()(const IntsArg& a) const { return HashInts(a.values); }
  uint64_t operator()(const BufferArg& a) const {
    return Mix(Mix(Mix(a.id, a.size_elements), HashInts(a.shape)), HashText(a.device));
  }
  uint64_t operator()(const LanesArg& a) const {
    uint64_t h = a.lanes.size();
    for (const int64_t lane : a.lanes) h = Mix(h, lane);
    return h;
  }
  uint64_t operator()(const RangeArg& a) const {
    return Mix(Mix(static_cast<uint64_t>(a.kind), a.axis), a.stage);
  }
};

}  // namespace

uint64_t ContentHash(const ArgData& data) {
  return Mix(std::visit(ContentHasher(), data), data.index());
}

Arg Arg::Float(double v) {
  if (std::isnan(v)) v = std::numeric_limits<double>::quiet_NaN();
  return Arg(Kind::kFloat, std::bit_cast<uint64_t>(v));
}

double Arg::as_float() const {
  return kind_ == Kind::kFloat ? std::bit_cast<double>(word_)
                               : static_cast<double>(static_cast<int64_t>(word_));
}

struct UOpGraph::ArgTable {
  // Few arguments share a hash, and a node of the map never moves.
  std::unordered_multimap<uint64_t, ArgData> by_hash;
};

UOpGraph::UOpGraph() : table_(256), args_(std::make_unique<ArgTable>()) {}
UOpGraph::~UOpGraph() = default;

Arg UOpGraph::Intern(ArgData data) {
  const uint64_t hash = ContentHash(data);
  const auto [first, last] = args_->by_hash.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (it->second == data) return Arg::Data(&it->second);
  }
  return Arg::Data(&args_->by_hash.emplace(hash, std::move(data))->second);
}

UOp UOpGraph::Make(Op op, DType dtype, std::span<const UOp> src, Arg arg) {
  uint64_t h = Mix(static_cast<uint64_t>(op) + 1, dtype.Bits64());
  h = Mix(h, static_cast<uint64_t>(arg.kind()));
  h = Mix(h, arg.data() != nullptr ? ContentHash(*arg.data()) : arg.word());
  for (const UOp s : src) h = Mix(h, s.hash());
  if ((count_ + 1) * 2 > table_.size()) Grow();

  const size_t mask = table_.size() - 1;
  size_t slot = h & mask;
  for (; table_[slot]; slot = (slot + 1) & mask) {
    const UOp n = table_[slot];
    if (n.hash() == h && n.op() == op && n.dtype() == dtype && n.arg() == arg &&
        std::ranges::equal(n.src(), src)) {
      return n;
    }
  }

  BEAMD_CHECK(src.size() <= std::numeric_limits<uint16_t>::max(),
              "a node has at most 65535 sources");
  const size_t need = sizeof(UOpNode) + src.size_bytes();
  if (page_left_ < need) {
    page_left_ = std::max(size_t{16} << 10, need);
    pages_.push_back(std::make_unique_for_overwrite<char[]>(page_left_));
    page_ = pages_.back().get();
  }
  OpSet src_ops;
  for (const UOp s : src) src_ops = src_ops | s.op();
  auto* node = new (page_)
      UOpNode{op, static_cast<uint16_t>(src.size()), count_++, dtype, arg, src_ops, this, h};
  std::uninitialized_copy(src.begin(), src.end(), reinterpret_cast<UOp*>(node + 1));
  page_ += need;
  page_left_ -= need;
  return table_[slot] = UOp(node);
}

void UOpGraph::Grow() {
  std::vector<UOp> old(table_.size() * 2);
  old.swap(table_);
  for (const UOp n : old) {
    if (!n) continue;
    size_t slot = n.hash() & (table_.size() - 1);
    while (table_[slot]) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = n;
  }
}

UOp UOpGraph::Const(DType dtype, int64_t value) {
  if (IsFloat(dtype.scalar)) return ConstFloat(dtype, static_cast<double>(value));
  const int64_t wrapped = WrapInt(value, dtype.scalar);
  return Make(Op::kConst, dtype, {},
              dtype.scalar == Scalar::kBool ? Arg::Bool(wrapped != 0) : Arg::Int(wrapped));
}

UOp UOpGraph::ConstFloat(DType dtype, double value) {
  if (IsFloat(dtype.scalar)) {
    return Make(Op::kConst, dtype, {}, Arg::Float(RoundToFloat(value, dtype.scalar)));
  }
  if (dtype.scalar == Scalar::kBool) return Const(dtype, value != 0 ? 1 : 0);
  if (std::isnan(value)) return Const(dtype, 0);
  // 2^63 and above reach only uint64; its greatest value is the bits of -1.
  if (dtype.scalar == Scalar::kUint64) {
    if (value >= 0x1p64) return Const(dtype, -1);
    return Const(dtype, value <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(value)));
  }
  const int64_t lo = MinInt(dtype.scalar), hi = MaxInt(dtype.scalar);
  if (value <= static_cast<double>(lo)) return Const(dtype, lo);
  if (value >= static_cast<double>(hi)) return Const(dtype, hi);
  return Const(dtype, static_cast<int64_t>(value));
}

UOp UOpGraph::Variable(std::string name, int64_t min, int64_t max, DType dtype) {
  return Make(Op::kDefineVar, dtype, {}, Intern(VariableArg{std::move(name), min, max}));
}

UOp UOpGraph::Import(UOp u) {
  if (&u.graph() == this) return u;
  absl::flat_hash_map<UOp, UOp> copy;
  std::vector<UOp> src;
  for (const UOp n : Toposort(u)) {
    src.clear();
    for (const UOp s : n.src()) src.push_back(copy.at(s));
    const Arg arg = n.arg().data() != nullptr ? Intern(*n.arg().data()) : n.arg();
    copy[n] = Make(n.op(), n.dtype(), src, arg);
  }
  return copy.at(u);
}

std::vector<UOp> Toposort(std::span<const UOp> roots) {
  std::vector<UOp> order;
  if (roots.empty()) return order;
  std::vector<bool> seen(roots[0].graph().size());
  struct Frame {
    UOp node;
    int next_src;
  };
  std::vector<Frame> stack;
  for (const UOp root : roots) {
    if (seen[root.id()]) continue;
    seen[root.id()] = true;
    stack.push_back({root, 0});
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next_src == top.node.src_count()) {
        order.push_back(top.node);
        stack.pop_back();
        continue;
      }
      const UOp s = top.node.src(top.next_src++);
      if (seen[s.id()]) continue;
      seen[s.id()] = true;
      stack.push_back({s, 0});
    }
  }
  return order;
}

UOp Substitute(UOp u, std::span<const UOp> nodes, std::span<const UOp> replacement) {
  BEAMD_CHECK(nodes.size() == replacement.size(), "one replacement a node");
  std::vector<UOp> done(u.graph().size());
  for (size_t i = 0; i < nodes.size(); ++i) done[nodes[i].id()] = replacement[i];
  std::vector<UOp> src;
  for (const UOp n : Toposort(u)) {
    if (done[n.id()]) continue;
    src.clear();
    for (const UOp s : n.src()) src.push_back(done[s.id()]);
    done[n.id()] = std::ranges::equal(src, n.src()) ? n : n.WithSrc(src);
  }
  return done[u.id()];
}

UOp UOp::ConstLike(int64_t value) const { return graph().Const(dtype(), value); }

UOp UOp::WithSrc(std::span<const UOp> src) const { return graph().Make(op(), dtype(), src, arg()); }

UOp Alu(Op op, UOp a) { return a.graph().Make(op, a.dtype(), {a}); }

UOp Alu(Op op, UOp a, UOp b) {
  const DType dtype = kComparison.Has(op) ? DType(Scalar::kBool, a.lanes()) : a.dtype();
  return a.graph().Make(op, dtype, {a, b});
}

UOp Where(UOp condition, UOp then, UOp otherwise) {
  return then.graph().Make(Op::kWhere, then.dtype(), {condition, then, otherwise});
}

UOp Cast(UOp a, DType dtype) {
  return a.dtype() == dtype ? a : a.graph().Make(Op::kCast, dtype, {a});
}

UOp Not(UOp a) { return Alu(Op::kCmpNe, a, a.ConstLike(1)); }
UOp Ne(UOp a, UOp b) { return Alu(Op::kCmpNe, a, b); }
UOp Eq(UOp a, UOp b) { return Not(Ne(a, b)); }

namespace internal {

void WrongArg(UOp u) { CheckFailed(__FILE__, __LINE__, "has_data<T>()", Name(u.op())); }

}  // namespace internal
}  // namespace beamd

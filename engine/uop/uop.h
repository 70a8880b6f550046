// Nodes of every graph that the engine works on, and the graph that owns them.
//
// Invariants:
//   * a node and its sources live in one UOpGraph; crossing graphs is an explicit Import;
//   * inside one graph, equal structure means equal address (hash-consing);
//   * nodes are immutable and trivially destructible; the graph frees them all at once;
//   * a graph is confined to one thread at a time.
//
// A client chooses how deep a graph is: walk it with Toposort or an own stack, never by recursion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/dtype/dtype.h"
#include "engine/uop/arg.h"
#include "engine/uop/op.h"

namespace beamd {

class UOpGraph;

// What an analysis remembers about the nodes of one graph. It follows from the nodes alone, so it
// holds as long as the graph lives.
class GraphMemo {
 public:
  virtual ~GraphMemo() = default;
};

// A node as stored; its sources stand right behind it in the arena.
struct UOpNode {
  Op op;
  uint16_t src_count;
  uint32_t id;  // creation order in its graph: dense, so side tables are plain vectors
  DType dtype;
  Arg arg;
  OpSet src_ops;  // ops of the sources, kept for early reject
  UOpGraph* graph;
  uint64_t hash;  // of the structure; the same in every graph and process
};

// A handle: the address of a node, or nothing. Equal handles of one graph mean equal structure.
class UOp {
 public:
  constexpr UOp() = default;
  constexpr UOp(std::nullptr_t) {}  // null is "no node"
  constexpr explicit UOp(const UOpNode* node) : node_(node) {}

  Op op() const { return node_->op; }
  DType dtype() const { return node_->dtype; }
  Scalar scalar() const { return node_->dtype.scalar; }
  int lanes() const { return node_->dtype.lanes; }
  uint32_t id() const { return node_->id; }
  OpSet src_ops() const { return node_->src_ops; }
  UOpGraph& graph() const { return *node_->graph; }
  int src_count() const { return node_->src_count; }
  UOp src(int i) const { return src()[i]; }
  std::span<const UOp> src() const {
    return {reinterpret_cast<const UOp*>(node_ + 1), node_->src_count};
  }
  uint64_t hash() const { return node_->hash; }

  const Arg& arg() const { return node_->arg; }
  // The interned argument of type T. BEAMD_CHECKs that the node carries one.
  template <typename T>
  const T& data() const;
  template <typename T>
  bool has_data() const {
    return arg().data() != nullptr && std::holds_alternative<T>(*arg().data());
  }

  bool is(Op op) const { return node_->op == op; }
  bool is(OpSet ops) const { return ops.Has(node_->op); }
  bool is_const() const { return node_->op == Op::kConst; }
  // CONST with this integer (or bool) value.
  bool is_const_int(int64_t value) const {
    return is_const() && arg().kind() != Arg::Kind::kFloat && arg().as_int() == value;
  }
  // Value of a CONST of an integer or bool dtype.
  int64_t int_value() const { return arg().as_int(); }
  double float_value() const { return arg().as_float(); }

  // A constant of this node's dtype (lanes too). The integer is converted: to a float, to bool.
  UOp ConstLike(int64_t value) const;
  // The same op, dtype and arg over other sources.
  UOp WithSrc(std::span<const UOp> src) const;

  constexpr explicit operator bool() const { return node_ != nullptr; }
  constexpr bool operator==(const UOp&) const = default;
  const UOpNode* node() const { return node_; }

  template <typename H>
  friend H AbslHashValue(H h, const UOp& u) {
    return H::combine(std::move(h), u.node_);
  }

 private:
  const UOpNode* node_ = nullptr;
};

// Orders nodes the same way in every process; for anything stored or sorted.
inline uint64_t StableKey(UOp u) { return u.hash(); }

// Owns nodes. Not thread-safe.
class UOpGraph {
 public:
  UOpGraph();
  ~UOpGraph();
  UOpGraph(const UOpGraph&) = delete;
  UOpGraph& operator=(const UOpGraph&) = delete;

  // The node with this structure, made if it isn't there. Sources belong to this graph. `arg` is a
  // number, or data that this graph interned (Intern, or another node's arg()).
  UOp Make(Op op, DType dtype, std::span<const UOp> src, Arg arg = {});
  UOp Make(Op op, DType dtype, std::initializer_list<UOp> src, Arg arg = {}) {
    return Make(op, dtype, std::span<const UOp>(src.begin(), src.size()), arg);
  }
  Arg Intern(ArgData data);

  // CONST of an integer or bool dtype: `value` wraps to it. Of a float dtype: converts.
  UOp Const(DType dtype, int64_t value);
  // CONST of a float dtype: rounds `value` to it. Of an integer dtype: truncates, saturating.
  UOp ConstFloat(DType dtype, double value);
  UOp Bool(bool value) { return Const(Scalar::kBool, value ? 1 : 0); }
  // An integer variable, bounds inclusive.
  UOp Variable(std::string name, int64_t min, int64_t max, DType dtype = Scalar::kInt32);

  // Copies `u` and everything below it from any graph into this one.
  UOp Import(UOp u);

  size_t size() const { return count_; }

  // Where engine/symbolic keeps bounds and simplified forms; null until it does.
  std::unique_ptr<GraphMemo>& symbolic_memo() { return symbolic_memo_; }

 private:
  void Grow();

  std::vector<UOp> table_;
  uint32_t count_ = 0;
  std::vector<std::unique_ptr<char[]>> pages_;
  char* page_ = nullptr;
  size_t page_left_ = 0;
  struct ArgTable;
  std::unique_ptr<ArgTable> args_;
  std::unique_ptr<GraphMemo> symbolic_memo_;
};

// Every node below and including the roots, sources before users; each once. The order is that of a
// depth-first walk, sources left to right.
std::vector<UOp> Toposort(std::span<const UOp> roots);
inline std::vector<UOp> Toposort(UOp root) { return Toposort(std::span<const UOp>(&root, 1)); }

// `u` with nodes replaced: replacement[i] stands for nodes[i]. Nothing is simplified.
UOp Substitute(UOp u, std::span<const UOp> nodes, std::span<const UOp> replacement);

// a op b in a's graph. The result has a's dtype; comparisons give bool with a's lanes.
UOp Alu(Op op, UOp a);
UOp Alu(Op op, UOp a, UOp b);
inline UOp operator+(UOp a, UOp b) { return Alu(Op::kAdd, a, b); }
inline UOp operator-(UOp a, UOp b) { return Alu(Op::kAdd, a, Alu(Op::kMul, b, b.ConstLike(-1))); }
inline UOp operator-(UOp a) { return Alu(Op::kMul, a, a.ConstLike(-1)); }
inline UOp operator*(UOp a, UOp b) { return Alu(Op::kMul, a, b); }
inline UOp operator/(UOp a, UOp b) { return Alu(Op::kIdiv, a, b); }
inline UOp operator%(UOp a, UOp b) { return Alu(Op::kMod, a, b); }
inline UOp operator<(UOp a, UOp b) { return Alu(Op::kCmpLt, a, b); }
inline UOp operator&(UOp a, UOp b) { return Alu(Op::kAnd, a, b); }
inline UOp operator|(UOp a, UOp b) { return Alu(Op::kOr, a, b); }
inline UOp operator^(UOp a, UOp b) { return Alu(Op::kXor, a, b); }
inline UOp operator+(UOp a, int64_t b) { return a + a.ConstLike(b); }
inline UOp operator-(UOp a, int64_t b) { return a + a.ConstLike(-b); }
inline UOp operator*(UOp a, int64_t b) { return a * a.ConstLike(b); }
inline UOp operator/(UOp a, int64_t b) { return a / a.ConstLike(b); }
inline UOp operator%(UOp a, int64_t b) { return a % a.ConstLike(b); }
inline UOp operator<(UOp a, int64_t b) { return a < a.ConstLike(b); }
UOp Where(UOp condition, UOp then, UOp otherwise);
UOp Cast(UOp a, DType dtype);
// !a, for bool.
UOp Not(UOp a);
// a != b; a == b; a >= b.
UOp Ne(UOp a, UOp b);
UOp Eq(UOp a, UOp b);
inline UOp Ge(UOp a, UOp b) { return Not(a < b); }
inline UOp Ge(UOp a, int64_t b) { return Not(a < b); }

namespace internal {
[[noreturn]] void WrongArg(UOp u);
}  // namespace internal

template <typename T>
const T& UOp::data() const {
  if (!has_data<T>()) internal::WrongArg(*this);
  return std::get<T>(*arg().data());
}

}  // namespace beamd

#include "engine/lower/linearize.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/base/status.h"
#include "engine/kernel/tensor_core.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

constexpr int kRoot = 0;

// A loop and what stands in it. Block 0 is the function itself.
struct Block {
  UOp range;        // null for the root
  int parent = -1;  // -1: not placed yet
  int depth = 0;
  std::vector<UOp> accumulators;  // opened just before this loop
};

class Linearizer {
 public:
  Linearizer(UOp sink, const TargetCaps& caps)
      : g_(sink.graph()), caps_(caps), order_(Toposort(sink)) {}

  absl::StatusOr<LinearProgram> Run() {
    FindLoops();
    if (ranges_.size() > 64) return absl::ResourceExhaustedError("more than 64 loops");
    FindMasks();
    BEAMD_RETURN_IF_ERROR(NestLoops());
    PlaceNodes();
    AddEdges();
    BEAMD_RETURN_IF_ERROR(EmitBlock());
    SeparateTurns();
    FindAlignment();
    return std::move(program_);
  }

 private:
  using Mask = uint64_t;

  // Of one reduction's loops: its stage tells which.
  static int StageOf(UOp range) { return range.data<RangeArg>().stage; }

  void FindLoops() {
    for (const UOp u : order_) {
      if (u.is(Op::kRange)) ranges_.push_back(u);
    }
    // Outer before inner among the loops of one stage.
    std::stable_sort(ranges_.begin(), ranges_.end(), [](UOp a, UOp b) {
      const RangeArg &x = a.data<RangeArg>(), &y = b.data<RangeArg>();
      return std::make_pair(x.stage, x.axis) < std::make_pair(y.stage, y.axis);
    });
    for (size_t i = 0; i < ranges_.size(); ++i) {
      bit_[ranges_[i]] = static_cast<int>(i);
      stages_[StageOf(ranges_[i])].push_back(static_cast<int>(i));
    }
  }

  // The loops that a node stands in. A stage's accumulators have their loops in common, and with
  // them what is around those: an accumulator that varies less than another is where that one is.
  void FindMasks() {
    mask_.assign(g_.size(), 0);
    for (const auto& [stage, unused] : stages_) around_[stage] = 0;
    for (bool stable = false; !stable;) {
      stable = true;
      std::vector<std::pair<UOp, int>> assigned;
      for (const UOp u : order_) {
        Mask m = u.is(Op::kRange) ? Mask{1} << bit_[u] : 0;
        for (const UOp s : u.src()) m |= mask_[s.id()];
        if (u.is(Op::kAssign)) {
          const int stage = StageOf(u.src(0).src(1));
          // The value that leaves the loops; inside them the node is its new value.
          m = (m | around_[stage]) & ~mask_[u.src(0).id()];
          around_[stage] |= m;
          assigned.emplace_back(u, stage);
        }
        mask_[u.id()] = m;
      }
      for (const auto& [u, stage] : assigned) {
        stable &= mask_[u.id()] == (around_[stage] & ~mask_[u.src(0).id()]);
      }
    }
  }

  // The loops of a stage stand inside every loop that their results vary with.
  absl::Status NestLoops() {
    blocks_.assign(ranges_.size() + 1, Block());
    blocks_[kRoot].parent = kRoot;
    for (const UOp u : order_) {
      if (u.is(Op::kAssign)) accumulators_[StageOf(u.src(0).src(1))].push_back(u.src(0));
    }
    std::vector<int> left;
    for (const auto& [stage, unused] : stages_) left.push_back(stage);
    while (!left.empty()) {
      const size_t before = left.size();
      std::erase_if(left, [&](int stage) {
        Mask unplaced = 0;
        for (size_t i = 0; i < ranges_.size(); ++i) {
          if (blocks_[i + 1].parent < 0) unplaced |= Mask{1} << i;
        }
        if ((around_[stage] & unplaced) != 0) return false;
        int parent = Deepest(around_[stage]);
        for (const int i : stages_[stage]) {
          Block& b = blocks_[i + 1];
          b.range = ranges_[i];
          b.parent = parent;
          b.depth = blocks_[parent].depth + 1;
          parent = i + 1;
        }
        blocks_[stages_[stage].front() + 1].accumulators = accumulators_[stage];
        return true;
      });
      if (left.size() == before) return absl::InternalError("reductions that need each other");
    }
    return absl::OkStatus();
  }

  int Deepest(Mask m) const {
    int deepest = kRoot;
    for (size_t i = 0; i < ranges_.size(); ++i) {
      if ((m >> i & 1) != 0 && blocks_[i + 1].depth > blocks_[deepest].depth) {
        deepest = static_cast<int>(i) + 1;
      }
    }
    return deepest;
  }

  void PlaceNodes() {
    block_of_.assign(g_.size(), kRoot);
    for (const UOp u : order_) {
      Mask m = mask_[u.id()];
      if (u.is(Op::kAssign)) m |= mask_[u.src(0).id()];
      block_of_[u.id()] = u.is(Op::kRange) ? bit_[u] + 1 : Deepest(m);
    }
  }

  // ---- the order inside a block: nodes and inner loops are its items ----

  // An item: a node by its id, or an inner loop by -block.
  using Item = int64_t;
  struct Items {
    std::vector<std::pair<Item, Item>> edges;
    std::vector<std::pair<int64_t, Item>> members;  // priority, item
  };

  bool IsItem(UOp u) const { return !u.is(Op::kRange | Op::kAcc | Op::kSink); }

  Item ItemIn(int block, UOp u) const {
    int b = block_of_[u.id()];
    if (b == block) return u.id();
    while (blocks_[b].parent != block) b = blocks_[b].parent;
    return -b;
  }
  int CommonBlock(int a, int b) const {
    while (a != b) {
      if (blocks_[a].depth >= blocks_[b].depth) {
        a = blocks_[a].parent;
      } else {
        b = blocks_[b].parent;
      }
    }
    return a;
  }
  void AddEdge(UOp first, UOp then) {
    const int block = CommonBlock(block_of_[first.id()], block_of_[then.id()]);
    const Item a = ItemIn(block, first), b = ItemIn(block, then);
    if (a == b) return;
    // A loop's index and its accumulators are there as soon as the loop is open.
    if (a >= 0 && !IsItem(first)) return;
    items_[block].edges.emplace_back(a, b);
  }

  void AddEdges() {
    items_.resize(blocks_.size());
    std::vector<bool> has_loop(blocks_.size());
    absl::flat_hash_map<UOp, std::vector<UOp>> loads, stores;
    for (size_t i = 0; i < order_.size(); ++i) {
      const UOp u = order_[i];
      if (u.is(Op::kSink)) continue;
      if (u.is(Op::kLoad | Op::kStore) && u.src(0).src(0).is(Op::kDefineGlobal)) {
        (u.is(Op::kLoad) ? loads : stores)[u.src(0).src(0)].push_back(u);
      }
      const int block = block_of_[u.id()];
      if (IsItem(u)) items_[block].members.emplace_back(i, u.id());
      for (int b = block; b != kRoot && !has_loop[b]; b = blocks_[b].parent) {
        has_loop[b] = true;
        items_[blocks_[b].parent].members.emplace_back(i, -b);
      }
      for (const UOp s : u.src()) AddEdge(s, u);
    }
    for (const auto& [buffer, to] : stores) {
      const auto from = loads.find(buffer);
      if (from == loads.end()) continue;
      for (const UOp load : from->second) {
        for (const UOp store : to) AddEdge(load, store);
      }
    }
  }

  // Earliest first among those whose operands are there.
  absl::StatusOr<std::vector<Item>> Sorted(const Items& items) const {
    absl::flat_hash_map<Item, int> waits;
    absl::flat_hash_map<Item, std::vector<Item>> users;
    absl::flat_hash_map<Item, int64_t> priority;
    for (const auto& [p, item] : items.members) priority[item] = p;
    for (const auto& [a, b] : items.edges) {
      users[a].push_back(b);
      ++waits[b];
    }
    using Ready = std::pair<int64_t, Item>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (const auto& [p, item] : items.members) {
      if (!waits.contains(item)) ready.emplace(p, item);
    }
    std::vector<Item> sorted;
    while (!ready.empty()) {
      const Item item = ready.top().second;
      ready.pop();
      sorted.push_back(item);
      const auto it = users.find(item);
      if (it == users.end()) continue;
      for (const Item user : it->second) {
        if (--waits[user] == 0) ready.emplace(priority.at(user), user);
      }
    }
    if (sorted.size() != items.members.size()) return absl::InternalError("a cycle between loops");
    return sorted;
  }

  // Arithmetic operations of a node.
  double OpsOf(UOp u) const {
    if (u.is(Op::kWmma)) {
      return 2.0 * static_cast<double>(TensorCoresOf(caps_)[u.arg().as_int()].ElementsPerThread());
    }
    if (!u.is(kAlu)) return 0;
    return u.lanes() * (u.is(Op::kMulAcc) ? 2 : 1);
  }

  // Writes the whole nest, with an own stack: a block at a place in its sorted items.
  absl::Status EmitBlock() {
    std::vector<UOp> by_id(g_.size());
    for (const UOp u : order_) by_id[u.id()] = u;
    struct Open {
      int block;
      std::vector<Item> items;
      size_t next;
    };
    std::vector<Open> stack;
    BEAMD_ASSIGN_OR_RETURN(std::vector<Item> root, Sorted(items_[kRoot]));
    stack.push_back({kRoot, std::move(root), 0});
    std::vector<double> turns = {1};
    while (!stack.empty()) {
      Open& top = stack.back();
      if (top.next == top.items.size()) {
        if (top.block != kRoot) {
          program_.ops.push_back(g_.Make(Op::kEndLoop, Scalar::kVoid, {blocks_[top.block].range}));
        }
        turns.pop_back();
        stack.pop_back();
        continue;
      }
      const Item item = top.items[top.next++];
      if (item >= 0) {
        const UOp u = by_id[item];
        program_.ops.push_back(u);
        program_.image.compute_ops += turns.back() * OpsOf(u);
        continue;
      }
      const int block = static_cast<int>(-item);
      const Block& b = blocks_[block];
      for (const UOp acc : b.accumulators) program_.ops.push_back(acc);
      program_.ops.push_back(b.range);
      if (b.range.data<RangeArg>().kind == RangeArg::Kind::kGlobal && !program_.slice_range) {
        program_.slice_range = b.range;
      }
      const Bounds extent = BoundsOf(b.range.src(0));
      const double middle =
          static_cast<double>(extent.min) / 2 + static_cast<double>(extent.max) / 2;
      turns.push_back(turns.back() * std::max(middle, 0.0));
      BEAMD_ASSIGN_OR_RETURN(std::vector<Item> items, Sorted(items_[block]));
      stack.push_back({block, std::move(items), 0});
    }
    return absl::OkStatus();
  }

  // Shared memory that a loop fills in every turn: the next turn's stores wait until the group has
  // read what this one's left, unless some barrier of the loop makes them wait already.
  void SeparateTurns() {
    struct Turn {
      absl::flat_hash_map<UOp, size_t> first_store, last_load;  // of the buffers it fills; of all
      std::vector<size_t> barriers;
    };
    const bool shared = std::ranges::any_of(order_, [](UOp u) { return u.is(Op::kDefineLocal); });
    if (!shared) return;
    std::vector<UOp> ops;
    std::vector<Turn> loops;
    for (const UOp u : program_.ops) {
      if (u.is(Op::kEndLoop)) {
        const Turn turn = std::move(loops.back());
        loops.pop_back();
        const bool mixed = std::ranges::any_of(turn.first_store, [&](const auto& store) {
          const auto load = turn.last_load.find(store.first);
          return load != turn.last_load.end() &&
                 std::ranges::none_of(turn.barriers, [&](size_t at) {
                   return at > load->second || at < store.second;
                 });
        });
        if (mixed) ops.push_back(g_.Make(Op::kBarrier, Scalar::kVoid, {}));
      }
      if (u.is(Op::kLoad | Op::kStore) && u.src(0).src(0).is(Op::kDefineLocal)) {
        const UOp buffer = u.src(0).src(0);
        if (u.is(Op::kStore) && !loops.empty()) {
          loops.back().first_store.emplace(buffer, ops.size());
        }
        for (Turn& turn : loops) {
          if (u.is(Op::kLoad)) turn.last_load[buffer] = ops.size();
        }
      }
      if (u.is(Op::kBarrier) && !loops.empty()) loops.back().barriers.push_back(ops.size());
      if (u.is(Op::kRange)) loops.emplace_back();
      ops.push_back(u);
    }
    program_.ops = std::move(ops);
  }

  void FindAlignment() {
    program_.index_alignment.assign(g_.size(), 1);
    for (const UOp u : program_.ops) {
      if (!u.is(Op::kLoad | Op::kStore)) continue;
      int64_t alignment = 0;
      for (const UOp term : SplitAssociative(u.src(0).src(1), Op::kAdd)) {
        alignment = std::gcd(alignment, term.is_const() ? term.int_value() : ConstFactor(term));
      }
      // 64 elements are aligned enough for any vector.
      program_.index_alignment[u.id()] =
          static_cast<int32_t>(alignment == 0 ? 64 : std::gcd(alignment, 64));
    }
  }

  UOpGraph& g_;
  const TargetCaps& caps_;
  const std::vector<UOp> order_;
  std::vector<UOp> ranges_;
  absl::flat_hash_map<UOp, int> bit_;
  std::map<int, std::vector<int>> stages_;
  std::map<int, std::vector<UOp>> accumulators_;
  std::map<int, Mask> around_;  // a stage's loops
  std::vector<Mask> mask_;
  std::vector<Block> blocks_;
  std::vector<int> block_of_;
  std::vector<Items> items_;
  LinearProgram program_;
};

}  // namespace

absl::StatusOr<LinearProgram> Linearize(UOp sink, const TargetCaps& caps) {
  return Linearizer(sink, caps).Run();
}

}  // namespace beamd

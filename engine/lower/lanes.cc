#include "engine/lower/lanes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "absl/status/status.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

// Widest vector in memory, in bytes: two AVX2 registers, one of AVX-512. Wider ones only spill.
constexpr int kMaxVectorBytes = 64;

bool IsUnrolled(UOp range) {
  const RangeArg::Kind kind = range.data<RangeArg>().kind;
  return kind == RangeArg::Kind::kUpcast || kind == RangeArg::Kind::kUnroll;
}

// How deep in the loop nest an expression changes: output axes first, reductions inside them.
int64_t DepthKey(RangeMask loops, const UnrollAnalysis& a) {
  int64_t deepest = -1;
  for (size_t i = 0; i < a.loops.size(); ++i) {
    if ((loops >> i & 1) == 0) continue;
    const RangeArg& r = a.loops[i].data<RangeArg>();
    deepest = std::max(deepest, (int64_t{r.stage} << 16) + r.axis);
  }
  return deepest;
}

// Terms of the base are added up from the outermost loop in, so that each partial sum leaves the
// loops it doesn't need.
Access TakeApart(UOp index, const UnrollAnalysis& a, const std::vector<int>& range_of) {
  Access access;
  std::vector<UOp> terms = SplitAssociative(index, Op::kAdd);
  std::stable_sort(terms.begin(), terms.end(), [&](UOp x, UOp y) {
    return DepthKey(a.loop_deps[x.id()], a) < DepthKey(a.loop_deps[y.id()], a);
  });
  for (const UOp term : terms) {
    const RangeMask mask = a.DepsOf(term);
    const bool scaled = term.is(Op::kMul) && term.src(1).is_const();
    const UOp factor = scaled ? term.src(0) : term;
    if (term.is_const()) {
      access.offset += term.int_value();
    } else if (mask == 0) {
      access.base = access.base ? access.base + term : term;
    } else if (factor.is(Op::kRange)) {
      access.coefficients.emplace_back(range_of[factor.id()], scaled ? term.src(1).int_value() : 1);
    } else {
      access.hard_terms.push_back(term);
      access.hard_mask |= mask;
    }
  }
  return access;
}

int LoopBit(const UnrollAnalysis& a, UOp range) {
  return static_cast<int>(std::find(a.loops.begin(), a.loops.end(), range) - a.loops.begin());
}

// Rough cycles of one scalar or one register-wide operation.
double OpCost(UOp u) {
  switch (u.op()) {
    case Op::kExp2:
    case Op::kLog2:
    case Op::kSin:
    case Op::kThreefry:
      return 12;
    case Op::kIdiv:
    case Op::kMod:
      return 16;
    case Op::kRecip:
    case Op::kSqrt:
    case Op::kFdiv:
      return 4;
    case Op::kConst:
    case Op::kDefineGlobal:
    case Op::kDefineVar:
    case Op::kRange:
    case Op::kIndex:
    case Op::kSink:
      return 0;
    default:
      return 1;
  }
}

class CostModel {
 public:
  CostModel(const UnrollAnalysis& a, const TargetCaps& caps) : a_(a), caps_(caps) {
    turns_.assign(a.deps.size(), 1);
    std::vector<double> extents;
    for (const UOp loop : a.loops) extents.push_back(Extent(loop));
    for (const UOp u : a.nodes) {
      // A reduction runs where its operand does.
      const RangeMask around = a.loop_deps[(u.is(Op::kReduce) ? u.src(0) : u).id()];
      for (size_t i = 0; i < extents.size(); ++i) {
        if (around >> i & 1) turns_[u.id()] *= extents[i];
      }
    }
  }

  double Cost(const Lanes& lanes) const {
    double total = 0;
    for (const UOp u : a_.nodes) {
      const RangeMask all = a_.DepsOf(u) | (u.is(Op::kReduce) ? a_.DepsOf(u.src(0)) : 0);
      double copies = 1;
      for (size_t r = 0; r < a_.ranges.size(); ++r) {
        if ((all & ~lanes.mask) >> r & 1) copies *= static_cast<double>(a_.extents[r]);
      }
      total += copies * turns_[u.id()] * CostOfOne(u, lanes, (all & lanes.mask) != 0);
      if (u.is(Op::kReduce)) total += turns_[u.id()] * SpillCost(u, lanes);
    }
    return total;
  }

 private:
  static double Extent(UOp range) {
    return range.src(0).is_const()
               ? std::max<double>(1, static_cast<double>(range.src(0).int_value()))
               : static_cast<double>(BoundsOf(range.src(0)).max);
  }

  double Registers(Scalar s, int lanes) const {
    return std::max(1.0, std::ceil(1.0 * lanes * std::max(SizeBytes(s), 1) / caps_.vector_bytes));
  }

  // What a turn of a reduction pays for accumulators that find no register: each is loaded and
  // stored.
  double SpillCost(UOp reduce, const Lanes& lanes) const {
    const RangeMask outputs = a_.DepsOf(reduce);
    double accumulators = 1;
    for (size_t r = 0; r < a_.ranges.size(); ++r) {
      if ((outputs & ~lanes.mask) >> r & 1) accumulators *= static_cast<double>(a_.extents[r]);
    }
    if (((outputs | a_.DepsOf(reduce.src(0))) & lanes.mask) != 0) {
      accumulators *= Registers(reduce.scalar(), lanes.count);
    }
    // Operands come from memory or are short-lived.
    const double registers = caps_.vector_bytes >= 64 ? 32 : 16;
    return 2 * std::max(0.0, accumulators - registers);
  }

  double CostOfOne(UOp u, const Lanes& lanes, bool vector) const {
    if (!u.is(Op::kLoad | Op::kStore)) {
      const double cost = OpCost(u);
      return vector ? cost * Registers(u.scalar(), lanes.count) : cost;
    }
    if (!vector) return 1;
    const Scalar s = u.src(0).scalar();
    const double registers = Registers(s, lanes.count);
    const Access& access = a_.accesses.at(u.src(0));
    if ((access.hard_mask & lanes.mask) != 0) return 2.5 * lanes.count;
    int64_t expected = 1;
    bool contiguous = true, splat = true;
    int64_t first = 0;
    for (const int r : lanes.ranges) {
      const int64_t c = access.CoefficientOf(r);
      if (expected == 1) first = c;
      contiguous &= c == expected;
      splat &= c == 0;
      expected *= a_.extents[r];
    }
    if (contiguous) {
      const bool masked =
          u.src(0).src_count() > 2 && (a_.DepsOf(u.src(0).src(2)) & lanes.mask) != 0;
      return registers * (masked ? 2 : 1);
    }
    if (splat) return 1 + registers;
    if (lanes.ranges.size() == 1 && std::abs(first) <= 3) return 2.5 * registers;
    // Rows along another range can be loaded whole and transposed.
    for (const auto& [r, c] : access.coefficients) {
      if (u.is(Op::kLoad) && c == 1 && (lanes.mask >> r & 1) == 0) return 3.5 * registers;
    }
    return 2.5 * lanes.count;
  }

  const UnrollAnalysis& a_;
  const TargetCaps& caps_;
  std::vector<double> turns_;
};

// Whether both belong to the output, or to the same reduction.
bool SameOwner(UOp a, UOp b) {
  const RangeArg &x = a.data<RangeArg>(), &y = b.data<RangeArg>();
  return x.kind == y.kind && x.stage == y.stage;
}

}  // namespace

int64_t Access::CoefficientOf(int range) const {
  for (const auto& [r, c] : coefficients) {
    if (r == range) return c;
  }
  return 0;
}

absl::StatusOr<UnrollAnalysis> AnalyseUnroll(UOp sink) {
  UnrollAnalysis a;
  const std::vector<UOp> all = Toposort(sink);
  const size_t size = sink.graph().size();
  a.deps.assign(size, 0);
  a.loop_deps.assign(size, 0);
  std::vector<int> range_of(size, -1);
  for (const UOp u : all) {
    RangeMask mask = 0, loops = 0;
    for (const UOp s : u.src()) {
      mask |= a.deps[s.id()];
      loops |= a.loop_deps[s.id()];
    }
    if (u.is(Op::kRange) && !IsUnrolled(u)) {
      if (a.loops.size() == 64) return absl::ResourceExhaustedError("more than 64 loops");
      loops |= RangeMask{1} << a.loops.size();
      a.loops.push_back(u);
    }
    if (u.is(Op::kRange) && IsUnrolled(u)) {
      if (a.ranges.size() == 64) return absl::ResourceExhaustedError("more than 64 unrolled axes");
      range_of[u.id()] = static_cast<int>(a.ranges.size());
      mask = RangeMask{1} << a.ranges.size();
      a.ranges.push_back(u);
      a.extents.push_back(u.src(0).int_value());
    }
    // Of the ranges of a WMMA the output's stay.
    if (u.is(Op::kWmma)) {
      RangeMask closed = 0, output = 0;
      for (int i = 2; i < u.src_count(); ++i) {
        const RangeMask bit = a.deps[u.src(i).id()];
        if (!u.src(i).is(Op::kRange)) continue;
        const bool is_output = u.src(i).data<RangeArg>().kind == RangeArg::Kind::kUpcast;
        (is_output ? output : closed) |= bit;
        if (!IsUnrolled(u.src(i))) loops &= ~(RangeMask{1} << LoopBit(a, u.src(i)));
      }
      mask = (mask & ~closed) | output;
    }
    // A barrier is one, whatever comes before it.
    if (u.is(Op::kBarrier)) mask = 0;
    if (u.is(Op::kReduce)) {
      for (int i = 1; i < u.src_count(); ++i) {
        mask &= ~a.deps[u.src(i).id()];
        if (!IsUnrolled(u.src(i))) loops &= ~(RangeMask{1} << LoopBit(a, u.src(i)));
      }
    }
    a.deps[u.id()] = mask;
    a.loop_deps[u.id()] = loops;
  }

  // A second walk for the nodes that are values: an INDEX's position is not.
  std::vector<bool> seen(size);
  std::vector<std::pair<UOp, int>> stack = {{sink, 0}};
  seen[sink.id()] = true;
  while (!stack.empty()) {
    auto& [u, next] = stack.back();
    if (next == u.src_count()) {
      a.nodes.push_back(u);
      if (u.is(Op::kIndex)) a.accesses.emplace(u, TakeApart(u.src(1), a, range_of));
      stack.pop_back();
      continue;
    }
    const int i = next++;
    const UOp s = u.src(i);
    if ((u.is(Op::kIndex) && i == 1) || seen[s.id()]) continue;
    seen[s.id()] = true;
    stack.emplace_back(s, 0);
  }
  return a;
}

Lanes ChooseLanes(const UnrollAnalysis& a, const TargetCaps& caps) {
  Lanes best;
  if (a.ranges.empty()) return best;
  const CostModel model(a, caps);
  double best_cost = model.Cost(best);
  std::set<std::vector<int>> tried;

  const auto grow = [&](const Access* access, int first, int max_lanes) {
    Lanes lanes;
    for (int next = first; next >= 0;) {
      lanes.ranges.push_back(next);
      lanes.mask |= RangeMask{1} << next;
      lanes.count *= static_cast<int>(a.extents[next]);
      if (lanes.count > max_lanes) break;
      if (lanes.count > 1 && tried.insert(lanes.ranges).second) {
        const double cost = model.Cost(lanes);
        if (cost < best_cost) best_cost = cost, best = lanes;
      }
      next = -1;
      if (access == nullptr) break;
      for (const auto& [r, c] : access->coefficients) {
        if (c == lanes.count && (lanes.mask >> r & 1) == 0 &&
            SameOwner(a.ranges[r], a.ranges[first])) {
          next = r;
        }
      }
    }
  };

  // Of what is computed with; places are 64 bits wide, but become constants, scalars or masks.
  int widest = 1;
  for (const UOp u : a.nodes) {
    if (u.is(Op::kStore)) widest = std::max(widest, SizeBytes(u.src(1).scalar()));
    if (u.is(Op::kLoad | Op::kCast | Op::kBitcast | Op::kReduce)) {
      widest = std::max(widest, SizeBytes(u.scalar()));
    }
  }
  const int max_lanes = std::max(4, kMaxVectorBytes / widest);
  for (const UOp u : a.nodes) {
    if (!u.is(Op::kIndex)) continue;
    const Access& access = a.accesses.at(u);
    for (const auto& [r, c] : access.coefficients) {
      if (c == 1 && (access.hard_mask >> r & 1) == 0) grow(&access, r, max_lanes);
    }
  }
  for (size_t r = 0; r < a.ranges.size(); ++r) grow(nullptr, static_cast<int>(r), max_lanes);
  return best;
}

}  // namespace beamd

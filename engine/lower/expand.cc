#include "engine/lower/expand.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernel/tensor_core.h"
#include "engine/lower/lanes.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

// Independent sums that hide the latency of a fused multiply-add on a CPU: 4 cycles at 2 a cycle. A
// GPU hides it behind other work-items.
constexpr int kWantedChains = 8;

// The value of each unrolled range at one copy of a node.
using Digits = std::array<int32_t, 64>;

// What a node became: a copy for every value of the ranges in `mask`, the lowest bit slowest.
struct Copies {
  RangeMask mask = 0;
  std::vector<UOp> copy;
};

// Ops of index arithmetic and of the conditions on it.
constexpr OpSet kIndexOps = Op::kRange | Op::kSpecial | Op::kConst | Op::kDefineVar | Op::kAdd |
                            Op::kMul | Op::kIdiv | Op::kMod | Op::kMax | Op::kCmpLt | Op::kCmpNe |
                            Op::kAnd | Op::kOr | Op::kWhere;

UOp Identity(UOpGraph& g, Op op, DType dtype) {
  if (op == Op::kAdd) return g.Const(dtype, 0);
  if (op == Op::kMul) return g.Const(dtype, 1);
  if (IsFloat(dtype.scalar)) {
    return g.ConstFloat(dtype, -std::numeric_limits<double>::infinity());
  }
  return g.Const(dtype, MinInt(dtype.scalar));
}

UOp Splat(UOp u, int lanes) {
  if (lanes == 1 || u.lanes() == lanes) return u;
  if (u.is_const()) return u.graph().Make(Op::kConst, u.dtype().WithLanes(lanes), {}, u.arg());
  const std::vector<UOp> src(lanes, u);
  return u.graph().Make(Op::kVectorize, u.dtype().WithLanes(lanes), src);
}

UOp TakeLanes(UOp v, std::vector<int64_t> lanes) {
  const DType dtype = v.dtype().WithLanes(static_cast<int>(lanes.size()));
  return v.graph().Make(Op::kGep, dtype, {v}, v.graph().Intern(LanesArg{std::move(lanes)}));
}

UOp TakeLane(UOp v, int lane) { return TakeLanes(v, {lane}); }

UOp Join(std::span<const UOp> parts) {
  if (parts.size() == 1) return parts[0];
  int lanes = 0;
  for (const UOp p : parts) lanes += p.lanes();
  return parts[0].graph().Make(Op::kVectorize, parts[0].dtype().WithLanes(lanes), parts);
}

std::vector<int64_t> Iota(int64_t begin, int count, int64_t step = 1) {
  std::vector<int64_t> v(count);
  for (int i = 0; i < count; ++i) v[i] = begin + i * step;
  return v;
}

// The square matrix of `rows` transposed, by log2(n) rounds of interleaving row i with row i + n/2.
std::vector<UOp> Transposed(std::vector<UOp> rows) {
  const int n = static_cast<int>(rows.size());
  std::vector<int64_t> low, high;
  for (int i = 0; i < n; ++i) {
    low.push_back(i / 2 + (i % 2) * n);
    high.push_back(n / 2 + i / 2 + (i % 2) * n);
  }
  for (int round = 1; round < n; round *= 2) {
    std::vector<UOp> next(n);
    for (int i = 0; i < n / 2; ++i) {
      const UOp both[] = {rows[i], rows[i + n / 2]};
      const UOp joined = Join(both);
      next[2 * i] = TakeLanes(joined, low);
      next[2 * i + 1] = TakeLanes(joined, high);
    }
    rows = std::move(next);
  }
  return rows;
}

// An index node over constants folds; so do the identities that substitution makes.
UOp FoldedAlu(UOp like, std::span<const UOp> src) {
  UOpGraph& g = like.graph();
  if (src.size() == 2 && src[0].lanes() == 1 && src[1].lanes() == 1) {
    const UOp a = src[0], b = src[1];
    const bool integers = !IsFloat(a.scalar());
    if (integers && like.is(Op::kAdd) && b.is_const_int(0)) return a;
    if (integers && like.is(Op::kAdd) && a.is_const_int(0)) return b;
    if (integers && like.is(Op::kMul) && b.is_const_int(1)) return a;
    if (integers && like.is(Op::kMul) && a.is_const_int(1)) return b;
    if (a.is_const() && b.is_const() && integers) {
      const std::vector<UOp> none;
      const UOp node = g.Make(like.op(), like.dtype().WithLanes(1), src, like.arg());
      if (const std::optional<int64_t> value = EvaluateInt(node, none, {})) {
        return g.Const(like.dtype().WithLanes(1), *value);
      }
    }
    if (like.is(Op::kAnd) && a.scalar() == Scalar::kBool) {
      if (a.is_const()) return a.int_value() != 0 ? b : a;
      if (b.is_const()) return b.int_value() != 0 ? a : b;
    }
  }
  if (like.is(Op::kWhere) && src[0].is_const()) return src[0].int_value() != 0 ? src[1] : src[2];
  return g.Make(like.op(), like.dtype().WithLanes(src.back().lanes()), src, like.arg());
}

class Expander {
 public:
  Expander(UOp sink, UnrollAnalysis analysis, Lanes lanes, const TargetCaps& caps,
           int64_t max_nodes)
      : g_(sink.graph()),
        sink_(sink),
        caps_(caps),
        a_(std::move(analysis)),
        lanes_(std::move(lanes)),
        max_nodes_(static_cast<int64_t>(sink.graph().size()) + max_nodes),
        table_(sink.graph().size()),
        is_index_(sink.graph().size()) {
    for (const UOp u : a_.nodes) {
      is_index_[u.id()] = u.is(kIndexOps) &&
                          (u.scalar() == Scalar::kInt64 || u.scalar() == Scalar::kBool) &&
                          std::ranges::all_of(u.src(), [&](UOp s) { return is_index_[s.id()]; });
    }
  }

  absl::StatusOr<UOp> Run() {
    for (const UOp u : a_.nodes) {
      if (u.is(Op::kIndex) || is_index_[u.id()]) continue;
      if (u == sink_) return g_.Make(Op::kSink, Scalar::kVoid, CopiesOfSources(u), sink_.arg());
      ExpandNode(u);
      if (static_cast<int64_t>(g_.size()) > max_nodes_) {
        return absl::ResourceExhaustedError("the unrolled kernel has too many operations");
      }
    }
    return absl::InternalError("a graph without a sink");
  }

 private:
  // ---- copies and digits ----

  // Saturates.
  int64_t CountOf(RangeMask mask) const {
    int64_t count = 1;
    for (RangeMask m = mask; m != 0; m &= m - 1) {
      if (__builtin_mul_overflow(count, a_.extents[std::countr_zero(m)], &count)) {
        return std::numeric_limits<int64_t>::max();
      }
    }
    return count;
  }
  void SetDigits(RangeMask mask, int64_t copy, Digits& digits) const {
    for (int r = 63; r >= 0; --r) {
      if ((mask >> r & 1) == 0) continue;
      digits[r] = static_cast<int32_t>(copy % a_.extents[r]);
      copy /= a_.extents[r];
    }
  }
  int64_t CopyAt(RangeMask mask, const Digits& digits) const {
    int64_t copy = 0;
    for (RangeMask m = mask; m != 0; m &= m - 1) {
      const int r = std::countr_zero(m);
      copy = copy * a_.extents[r] + digits[r];
    }
    return copy;
  }
  void SetLane(int lane, Digits& digits) const {
    for (const int r : lanes_.ranges) {
      digits[r] = static_cast<int32_t>(lane % a_.extents[r]);
      lane /= static_cast<int>(a_.extents[r]);
    }
  }
  UOp At(UOp u, const Digits& digits) {
    if (is_index_[u.id()]) return IndexAt(u, digits);
    const Copies& c = table_[u.id()];
    return c.copy[CopyAt(c.mask, digits)];
  }
  bool IsVector(UOp u) const { return (a_.DepsOf(u) & lanes_.mask) != 0; }

  // Runs `make` for every value of the ranges that u varies with, lanes apart.
  template <typename F>
  void EachCopy(UOp u, F make) {
    Copies& c = table_[u.id()];
    c.mask = a_.DepsOf(u) & ~lanes_.mask;
    const int64_t count = CountOf(c.mask);
    if (count > max_nodes_) {
      // Over the limit whatever the copies are; Run reports it.
      max_nodes_ = -1;
      c.copy.assign(1, u);
      return;
    }
    std::vector<UOp> copies(count);
    Digits digits{};
    for (int64_t i = 0; i < count; ++i) {
      SetDigits(c.mask, i, digits);
      copies[i] = make(digits);
      if (static_cast<int64_t>(g_.size()) > max_nodes_) {
        copies.assign(count, copies[i]);
        break;
      }
    }
    table_[u.id()].copy = std::move(copies);
  }

  void ExpandNode(UOp u) {
    switch (u.op()) {
      case Op::kLoad:
        if (caps_.has_local) return LoadNeighbours(u);
        if (TransposeLoads(u)) return;
        return EachCopy(u, [&](const Digits& d) { return Load(u, d); });
      case Op::kBarrier:
        table_[u.id()].copy = {g_.Make(Op::kBarrier, Scalar::kVoid, CopiesOfSources(u))};
        return;
      case Op::kReduce:
        return EachCopy(u, [&](const Digits& d) { return Reduce(u, d); });
      case Op::kWmma:
        return EachCopy(u, [&](const Digits& d) { return Product(u, d); });
      case Op::kStore:
        return caps_.has_local ? StoreNeighbours(u) : Store(u);
      default:
        return EachCopy(u, [&](const Digits& d) { return Alu(u, d); });
    }
  }

  UOp Alu(UOp u, const Digits& digits) {
    std::vector<UOp> src;
    for (const UOp s : u.src()) src.push_back(At(s, digits));
    if (u.src_count() == 0) return u;
    const bool vector = IsVector(u);
    for (size_t i = 0; i < src.size(); ++i) {
      // A scalar condition chooses between whole vectors.
      if (vector && !(u.is(Op::kWhere) && i == 0)) src[i] = Splat(src[i], lanes_.count);
    }
    return FoldedAlu(u, src);
  }

  // ---- index expressions, each simplified where it stands ----

  // With the unrolled ranges in `of` replaced by their digits.
  UOp Instantiate(UOp expression, RangeMask of, const Digits& digits) {
    const RangeMask mask = a_.DepsOf(expression) & of;
    if (mask == 0) return expression;
    const auto key = std::make_tuple(expression, mask, CopyAt(mask, digits));
    if (const auto it = instances_.find(key); it != instances_.end()) return it->second;
    std::vector<UOp>& order = order_of_[expression];
    if (order.empty()) order = Toposort(expression);
    absl::flat_hash_map<UOp, UOp> done;
    std::vector<UOp> src;
    for (const UOp u : order) {
      const RangeMask deps = a_.DepsOf(u) & mask;
      if (deps == 0) {
        done[u] = u;
      } else if (u.is(Op::kRange)) {
        done[u] = g_.Const(u.dtype(), digits[std::countr_zero(deps)]);
      } else {
        src.clear();
        for (const UOp s : u.src()) src.push_back(done[s]);
        done[u] = FoldedAlu(u, src);
      }
    }
    return instances_[key] = Simplify(done[expression]);
  }

  // An index or a condition as a value: a vector only where it varies along the lanes once
  // everything known is used. The clauses of a conjunction are taken one by one, so that those that
  // don't vary stay scalar.
  UOp IndexAt(UOp u, const Digits& digits) {
    if (a_.DepsOf(u) == 0) return u;
    if (!u.is(Op::kAnd)) return AsLanes(Instantiate(u, ~lanes_.mask, digits));
    UOp scalars, vectors;
    for (const UOp clause : SplitAssociative(u, Op::kAnd)) {
      const UOp c = AsLanes(Instantiate(clause, ~lanes_.mask, digits));
      if (c.is_const() && c.int_value() != 0) continue;
      if (c.is_const()) return g_.Bool(false);
      UOp& all = c.lanes() > 1 ? vectors : scalars;
      all = all ? all & c : c;
    }
    if (!vectors) return scalars ? scalars : g_.Bool(true);
    return scalars ? Splat(scalars, lanes_.count) & vectors : vectors;
  }

  // A vector of the expression's values along the lanes; the expression itself where no lane's
  // range is in it.
  UOp AsLanes(UOp expression) {
    if (lanes_.count == 1) return expression;
    if (const auto it = as_lanes_.find(expression); it != as_lanes_.end()) return it->second;
    std::vector<UOp> src;
    for (const UOp u : Toposort(expression)) {
      UOp& lanes = as_lanes_[u];
      if (lanes) continue;
      lanes = u;
      if (u.is(Op::kRange)) {
        if ((DepsOfRange(u) & lanes_.mask) != 0) lanes = LanesOf(u);
        continue;
      }
      src.clear();
      bool vector = false;
      for (const UOp s : u.src()) {
        src.push_back(as_lanes_[s]);
        vector |= src.back().lanes() > 1;
      }
      if (!vector) continue;
      for (size_t i = 0; i < src.size(); ++i) {
        if (!(u.is(Op::kWhere) && i == 0)) src[i] = Splat(src[i], lanes_.count);
      }
      as_lanes_[u] = FoldedAlu(u, src);
    }
    return as_lanes_[expression];
  }
  RangeMask DepsOfRange(UOp range) const {
    return range.id() < a_.deps.size() ? a_.DepsOf(range) : 0;
  }
  UOp LanesOf(UOp range) {
    const int r = std::countr_zero(a_.DepsOf(range));
    std::vector<int64_t> values;
    Digits digits{};
    for (int lane = 0; lane < lanes_.count; ++lane) {
      SetLane(lane, digits);
      values.push_back(digits[r]);
    }
    return g_.Make(Op::kVConst, range.dtype().WithLanes(lanes_.count), {},
                   g_.Intern(LanesArg{std::move(values)}));
  }

  // An element's place: base (null: 0) + offset.
  struct Place {
    UOp base;
    int64_t offset = 0;
  };
  Place PlaceAt(const Access& access, const Digits& digits) {
    Place p{access.base, access.offset};
    for (const auto& [r, c] : access.coefficients) p.offset += c * digits[r];
    for (const UOp term : access.hard_terms) {
      for (const UOp part : SplitAssociative(Instantiate(term, ~RangeMask{0}, digits), Op::kAdd)) {
        if (part.is_const()) {
          p.offset += part.int_value();
        } else {
          p.base = p.base ? p.base + part : part;
        }
      }
    }
    return p;
  }
  UOp IndexOf(const Place& p) {
    if (!p.base) return g_.Const(Scalar::kInt64, p.offset);
    return p.offset == 0 ? p.base : p.base + p.offset;
  }
  UOp Element(UOp address, const Place& p, UOp valid) {
    const UOp buffer = address.src(0), index = IndexOf(p);
    if (!valid || (valid.is_const() && valid.lanes() == 1 && valid.int_value() != 0)) {
      return g_.Make(Op::kIndex, address.dtype(), {buffer, index});
    }
    return g_.Make(Op::kIndex, address.dtype(), {buffer, index, valid});
  }
  // Null where there is no condition; a vector where it varies along the lanes.
  UOp ValidAt(UOp address, const Digits& digits) {
    return address.src_count() > 2 ? At(address.src(2), digits) : UOp();
  }
  UOp ScalarValidAt(UOp address, const Digits& digits) {
    return address.src_count() > 2 ? Instantiate(address.src(2), ~RangeMask{0}, digits) : UOp();
  }
  static bool Never(UOp valid) { return valid && valid.is_const() && valid.int_value() == 0; }

  // Places of all lanes: offsets from one base, if there is one for all of them.
  struct LanePlaces {
    std::vector<Place> lane;
    bool one_base = true;
    bool IsRamp(int64_t step) const {
      for (size_t i = 1; i < lane.size(); ++i) {
        if (lane[i].offset - lane[i - 1].offset != step) return false;
      }
      return one_base;
    }
  };
  LanePlaces PlacesAt(const Access& access, Digits digits) {
    LanePlaces places;
    for (int lane = 0; lane < lanes_.count; ++lane) {
      SetLane(lane, digits);
      places.lane.push_back(PlaceAt(access, digits));
      places.one_base &= places.lane[lane].base == places.lane[0].base;
    }
    return places;
  }

  // ---- memory ----

  // Everything that the sources of u became.
  std::vector<UOp> CopiesOfSources(UOp u) {
    std::vector<UOp> all;
    for (const UOp s : u.src()) {
      if (is_index_[s.id()]) continue;
      const std::vector<UOp>& copies = table_[s.id()].copy;
      all.insert(all.end(), copies.begin(), copies.end());
    }
    return all;
  }

  UOp LoadOf(UOp u, UOp element, int lanes) {
    const DType dtype = u.dtype().WithLanes(lanes);
    if (u.src_count() == 1) return g_.Make(Op::kLoad, dtype, {element});
    return g_.Make(Op::kLoad, dtype, {element, table_[u.src(1).id()].copy[0]});
  }

  UOp Load(UOp u, const Digits& digits) {
    const UOp address = u.src(0);
    const Access& access = a_.accesses.at(address);
    const UOp valid = ValidAt(address, digits);
    if (!IsVector(u)) {
      if (Never(valid)) return g_.Const(u.dtype(), 0);
      return LoadOf(u, Element(address, PlaceAt(access, digits), valid), 1);
    }
    const int n = lanes_.count;
    if (Never(valid)) return g_.Const(u.dtype().WithLanes(n), 0);
    const bool lane_valid = valid && valid.lanes() > 1;
    const LanePlaces places = PlacesAt(access, digits);
    if (places.IsRamp(1)) return LoadOf(u, Element(address, places.lane[0], valid), n);
    if (places.IsRamp(-1)) {
      const std::vector<int64_t> reversed = Iota(n - 1, n, -1);
      const UOp mask = lane_valid ? TakeLanes(valid, reversed) : valid;
      return TakeLanes(LoadOf(u, Element(address, places.lane[n - 1], mask), n), reversed);
    }
    if (!lane_valid && n >= 4) {
      if (const UOp strided = LoadStrided(u, places, valid)) return strided;
    }
    return Gather(u, places, digits, lane_valid ? UOp() : valid);
  }

  // Lanes a few elements apart: whole vectors that cover them, then a shuffle. Everything between
  // two elements of a buffer is in the buffer. Null where they are too far apart, or few distinct
  // elements would do.
  UOp LoadStrided(UOp u, const LanePlaces& places, UOp valid) {
    if (!places.one_base) return nullptr;
    const int n = lanes_.count;
    int64_t low = places.lane[0].offset, high = low;
    for (const Place& p : places.lane) {
      low = std::min(low, p.offset);
      high = std::max(high, p.offset);
    }
    const int64_t span = high - low + 1;
    if (span < n || span > 3 * n) return nullptr;
    std::vector<int64_t> starts;
    for (int64_t at = low; at + n <= high; at += n) starts.push_back(at);
    starts.push_back(high - n + 1);
    std::vector<UOp> parts;
    parts.reserve(starts.size());
    for (const int64_t start : starts) {
      parts.push_back(LoadOf(u, Element(u.src(0), {places.lane[0].base, start}, valid), n));
    }
    std::vector<int64_t> taken;
    taken.reserve(places.lane.size());
    for (const Place& p : places.lane) {
      size_t part = 0;
      while (p.offset >= starts[part] + n) ++part;
      taken.push_back(static_cast<int64_t>(part) * n + p.offset - starts[part]);
    }
    return TakeLanes(Join(parts), std::move(taken));
  }

  UOp Gather(UOp u, const LanePlaces& places, Digits digits, UOp scalar_valid) {
    std::vector<UOp> elements;
    for (int lane = 0; lane < lanes_.count; ++lane) {
      SetLane(lane, digits);
      const UOp valid = scalar_valid ? scalar_valid : ScalarValidAt(u.src(0), digits);
      elements.push_back(Never(valid) ? g_.Const(u.dtype(), 0)
                                      : LoadOf(u, Element(u.src(0), places.lane[lane], valid), 1));
    }
    return Join(elements);
  }

  // Lanes far apart whose neighbours along another unrolled range are consecutive: rows are loaded
  // along that range and transposed in registers. False where this does not apply.
  bool TransposeLoads(UOp u) {
    const UOp address = u.src(0);
    const Access& access = a_.accesses.at(address);
    const int n = lanes_.count;
    if (!IsVector(u) || n < 4 || !std::has_single_bit(static_cast<unsigned>(n))) return false;
    if (access.hard_mask != 0 || address.src_count() > 2) return false;
    for (const int r : lanes_.ranges) {
      if (std::abs(access.CoefficientOf(r)) <= 3) return false;
    }
    // The ranges whose digits together count 0 .. n-1 elements.
    const RangeMask others = a_.DepsOf(u) & ~lanes_.mask;
    if (CountOf(others) > max_nodes_) return false;
    std::vector<int> across;
    int64_t width = 1;
    for (bool grown = true; grown && width < n;) {
      grown = false;
      for (const auto& [r, c] : access.coefficients) {
        if (c == width && (others >> r & 1) != 0 && a_.extents[r] > 1) {
          across.push_back(r);
          width *= a_.extents[r];
          grown = true;
          break;
        }
      }
    }
    if (width != n) return false;
    RangeMask across_mask = 0;
    for (const int r : across) across_mask |= RangeMask{1} << r;

    Copies& c = table_[u.id()];
    c.mask = others;
    c.copy.assign(CountOf(others), UOp());
    Digits digits{};
    const RangeMask fixed = others & ~across_mask;
    for (int64_t i = 0; i < CountOf(fixed); ++i) {
      SetDigits(fixed, i, digits);
      for (const int r : across) digits[r] = 0;
      const LanePlaces places = PlacesAt(access, digits);
      std::vector<UOp> rows;
      for (const Place& p : places.lane) rows.push_back(LoadOf(u, Element(address, p, {}), n));
      rows = Transposed(std::move(rows));
      for (int k = 0; k < n; ++k) {
        int rest = k;
        for (const int r : across) {
          digits[r] = static_cast<int32_t>(rest % a_.extents[r]);
          rest /= static_cast<int>(a_.extents[r]);
        }
        c.copy[CopyAt(others, digits)] = rows[k];
      }
    }
    return true;
  }

  void Store(UOp u) {
    const UOp address = u.src(0), value = u.src(1);
    const Access& access = a_.accesses.at(address);
    const RangeMask mask = a_.DepsOf(u) & ~lanes_.mask;
    const int64_t count = CountOf(mask);
    if (count > max_nodes_) {
      max_nodes_ = -1;
      return;
    }
    Digits digits{};
    for (int64_t i = 0; i < count; ++i) {
      SetDigits(mask, i, digits);
      const UOp valid = ValidAt(address, digits);
      if (Never(valid)) continue;
      const UOp v = At(value, digits);
      if (!IsVector(u)) {
        AddStore(u, Element(address, PlaceAt(access, digits), valid), v);
        continue;
      }
      const int n = lanes_.count;
      const UOp vector = Splat(v, n);
      const LanePlaces places = PlacesAt(access, digits);
      const bool lane_valid = valid && valid.lanes() > 1;
      if (places.IsRamp(1)) {
        AddStore(u, Element(address, places.lane[0], valid), vector);
      } else if (places.IsRamp(-1)) {
        const std::vector<int64_t> reversed = Iota(n - 1, n, -1);
        AddStore(
            u,
            Element(address, places.lane[n - 1], lane_valid ? TakeLanes(valid, reversed) : valid),
            TakeLanes(vector, reversed));
      } else {
        Digits lane_digits = digits;
        for (int lane = 0; lane < n; ++lane) {
          SetLane(lane, lane_digits);
          const UOp lane_is_valid = lane_valid ? ScalarValidAt(address, lane_digits) : valid;
          if (Never(lane_is_valid)) continue;
          AddStore(u, Element(address, places.lane[lane], lane_is_valid), TakeLane(vector, lane));
        }
      }
      if (static_cast<int64_t>(g_.size()) > max_nodes_) return;
    }
  }
  void AddStore(UOp u, UOp element, UOp value) {
    std::vector<UOp> src = {element, value};
    if (u.src_count() > 2) src.push_back(table_[u.src(2).id()].copy[0]);
    table_[u.id()].copy.push_back(g_.Make(Op::kStore, Scalar::kVoid, src));
  }

  // ---- memory of a GPU: a work-item's copies next to each other are one access ----

  // One copy of an access.
  struct Item {
    int64_t copy;
    Place place;
    UOp valid;  // null: always
  };
  // Up to caps_.vector_bytes of aligned neighbours; `lanes` is a power of two.
  struct Wide {
    const Item* first;
    int lanes;
  };

  // Every copy's place; copies that never touch memory are left out.
  std::vector<Item> ItemsOf(UOp u, RangeMask mask) {
    std::vector<Item> items;
    const Access& access = a_.accesses.at(u.src(0));
    Digits digits{};
    for (int64_t i = 0; i < CountOf(mask); ++i) {
      SetDigits(mask, i, digits);
      UOp valid = ValidAt(u.src(0), digits);
      if (Never(valid)) continue;
      if (valid && valid.is_const()) valid = nullptr;
      items.push_back({i, PlaceAt(access, digits), valid});
    }
    return items;
  }

  // Sorts `items` and cuts them to runs. Equal places stay neighbours, each a run of its own.
  std::vector<Wide> RunsOf(UOp u, std::vector<Item>& items) const {
    const auto id = [](UOp x) { return x ? int64_t{x.id()} : -1; };
    std::ranges::sort(items, {}, [&](const Item& item) {
      return std::make_tuple(id(item.place.base), id(item.valid), item.place.offset, item.copy);
    });
    const int size = SizeBytes(u.src(0).src(0).scalar());
    std::vector<Wide> runs;
    for (size_t i = 0; i < items.size();) {
      const Item& first = items[i];
      int64_t alignment = caps_.vector_bytes / size;
      alignment = std::gcd(alignment, first.place.offset);
      if (first.place.base) alignment = std::gcd(alignment, AlignmentOf(first.place.base));
      size_t run = 1;
      while (run < static_cast<size_t>(alignment) && i + run < items.size() &&
             items[i + run].place.base == first.place.base && items[i + run].valid == first.valid &&
             items[i + run].place.offset == first.place.offset + static_cast<int64_t>(run)) {
        ++run;
      }
      const auto lanes = static_cast<int>(std::bit_floor(run));
      runs.push_back({&first, lanes});
      i += lanes;
    }
    return runs;
  }

  // What divides every value of an index.
  static int64_t AlignmentOf(UOp index) {
    int64_t alignment = 0;
    for (const UOp term : SplitAssociative(index, Op::kAdd)) {
      alignment = std::gcd(alignment, ConstFactor(term));
    }
    return alignment;
  }

  // False where there are too many; Run reports it.
  bool MayCopy(RangeMask mask) {
    if (CountOf(mask) <= max_nodes_) return true;
    max_nodes_ = -1;
    return false;
  }

  void LoadNeighbours(UOp u) {
    Copies& c = table_[u.id()];
    c.mask = a_.DepsOf(u);
    if (!MayCopy(c.mask)) {
      c.copy.assign(1, u);
      c.mask = 0;
      return;
    }
    c.copy.assign(CountOf(c.mask), g_.Const(u.dtype(), 0));
    std::vector<Item> items = ItemsOf(u, c.mask);
    for (const Wide& run : RunsOf(u, items)) {
      const UOp load = LoadOf(u, Element(u.src(0), run.first->place, run.first->valid), run.lanes);
      for (int lane = 0; lane < run.lanes; ++lane) {
        c.copy[run.first[lane].copy] = run.lanes == 1 ? load : TakeLane(load, lane);
      }
    }
  }

  void StoreNeighbours(UOp u) {
    const RangeMask mask = a_.DepsOf(u);
    if (!MayCopy(mask)) return;
    std::vector<Item> items = ItemsOf(u, mask);
    for (const Wide& run : RunsOf(u, items)) {
      std::vector<UOp> values;
      Digits digits{};
      for (int lane = 0; lane < run.lanes; ++lane) {
        SetDigits(mask, run.first[lane].copy, digits);
        values.push_back(At(u.src(1), digits));
      }
      AddStore(u, Element(u.src(0), run.first->place, run.first->valid), Join(values));
    }
  }

  // ---- reductions ----

  UOp Combine(Op op, UOp a, UOp b) { return ::beamd::Alu(op, a, b); }

  // a + x, with the multiply that x is fused into it where SEMANTICS lets it.
  UOp Accumulate(Op op, UOp sum, UOp x) {
    if (op == Op::kAdd && IsFloat(x.scalar())) {
      if (x.is(Op::kMul)) return g_.Make(Op::kMulAcc, x.dtype(), {x.src(0), x.src(1), sum});
      // A narrow product that is widened may be exact in the wider type.
      if (x.is(Op::kCast) && x.src(0).is(Op::kMul) && IsFloat(x.src(0).scalar()) &&
          SizeBytes(x.src(0).scalar()) < SizeBytes(x.scalar()) &&
          SizeBytes(x.src(0).scalar()) == 2) {
        const UOp product = x.src(0);
        return g_.Make(Op::kMulAcc, x.dtype(),
                       {Cast(product.src(0), x.dtype()), Cast(product.src(1), x.dtype()), sum});
      }
    }
    return Combine(op, sum, x);
  }

  UOp Tree(Op op, std::vector<UOp> values) {
    while (values.size() > 1) {
      std::vector<UOp> next;
      for (size_t i = 0; i + 1 < values.size(); i += 2) {
        next.push_back(Combine(op, values[i], values[i + 1]));
      }
      if (values.size() % 2 == 1) next.push_back(values.back());
      values = std::move(next);
    }
    return values[0];
  }

  UOp AcrossLanes(Op op, UOp v) {
    int n = v.lanes();
    while (n > 1 && n % 2 == 0) {
      v = Combine(op, TakeLanes(v, Iota(0, n / 2)), TakeLanes(v, Iota(n / 2, n / 2)));
      n /= 2;
    }
    if (n == 1) return v;
    std::vector<UOp> lanes;
    lanes.reserve(n);
    for (int i = 0; i < n; ++i) lanes.push_back(TakeLane(v, i));
    return Tree(op, std::move(lanes));
  }

  UOp Reduce(UOp u, Digits digits) {
    const Op op = u.data<ReduceArg>().op;
    const UOp value = u.src(0);
    const RangeMask value_mask = a_.DepsOf(value);
    std::vector<UOp> loops;
    RangeMask unrolled = 0;
    int64_t times =
        1;  // the same value again for every turn of an unrolled range that it doesn't vary with
    for (int i = 1; i < u.src_count(); ++i) {
      const RangeMask bit = a_.DepsOf(u.src(i));
      if (bit == 0) {
        loops.push_back(u.src(i));
      } else if ((bit & value_mask) == 0) {
        times *= a_.extents[std::countr_zero(bit)];
      } else {
        unrolled |= bit;
      }
    }
    const bool lanes_reduced = (unrolled & lanes_.mask) != 0;
    if (lanes_reduced) {
      // Lanes that the value doesn't vary with repeat it already.
      for (int i = 1; i < u.src_count(); ++i) {
        const RangeMask bit = a_.DepsOf(u.src(i));
        if ((bit & lanes_.mask & ~value_mask) != 0) times /= a_.extents[std::countr_zero(bit)];
      }
    }
    const RangeMask copies = unrolled & ~lanes_.mask;
    const bool vector = IsVector(value);
    std::vector<UOp> terms;
    for (int64_t i = 0; i < CountOf(copies); ++i) {
      SetDigits(copies, i, digits);
      // Where the lanes agree, an index stands for all of them.
      terms.push_back(Splat(At(value, digits), vector ? lanes_.count : 1));
    }
    const DType dtype = u.dtype().WithLanes(vector ? lanes_.count : 1);
    if (terms.empty() || times == 0) {
      return Identity(g_, op, u.dtype().WithLanes(IsVector(u) ? lanes_.count : 1));
    }
    if (op == Op::kAdd && times > 1) {
      for (UOp& t : terms) t = ::beamd::Alu(Op::kMul, t, t.ConstLike(times));
    } else if (op == Op::kMul && times > 1) {
      const std::vector<UOp> once = terms;
      for (int64_t i = 1; i < times; ++i) terms.insert(terms.end(), once.begin(), once.end());
    }
    UOp result;
    if (loops.empty()) {
      result = Tree(op, std::move(terms));
    } else {
      const int64_t copies_of_result = CountOf(a_.DepsOf(u) & ~lanes_.mask);
      const int64_t chains =
          caps_.has_local
              ? 1
              : std::clamp<int64_t>(kWantedChains / std::max<int64_t>(copies_of_result, 1), 1,
                                    static_cast<int64_t>(terms.size()));
      std::vector<UOp> sums;
      for (int64_t chain = 0; chain < chains; ++chain) {
        std::vector<UOp> src = {Identity(g_, op, dtype)};
        src.insert(src.end(), loops.begin(), loops.end());
        const UOp acc = g_.Make(Op::kAcc, dtype, src, Arg::Int(accumulators_++));
        UOp sum = acc;
        for (size_t t = chain; t < terms.size(); t += chains) sum = Accumulate(op, sum, terms[t]);
        sums.push_back(g_.Make(Op::kAssign, dtype, {acc, sum}));
      }
      result = Tree(op, std::move(sums));
    }
    return lanes_reduced ? AcrossLanes(op, result) : result;
  }

  // ---- products of a tensor core ----

  // The value at every element of `range`, as one vector.
  UOp VectorAlong(UOp u, UOp range, Digits digits) {
    std::vector<UOp> elements;
    const int bit = std::countr_zero(a_.DepsOf(range));
    for (int64_t i = 0; i < a_.extents[bit]; ++i) {
      digits[bit] = static_cast<int32_t>(i);
      elements.push_back(At(u, digits));
    }
    return Joined(elements);
  }
  // A vector that is taken apart in order is itself.
  UOp Joined(std::span<const UOp> elements) {
    const UOp whole = elements[0].is(Op::kGep) ? elements[0].src(0) : UOp();
    bool same = whole && whole.lanes() == static_cast<int>(elements.size());
    for (size_t i = 0; i < elements.size() && same; ++i) {
      same = elements[i] == TakeLane(whole, static_cast<int>(i));
    }
    return same ? whole : Join(elements);
  }

  // An element of the output's vector, of the same node for all of them. Sources: LowerIndexing.
  UOp Product(UOp u, Digits digits) {
    const TensorCore& core = TensorCoresOf(caps_)[u.arg().as_int()];
    int element = 0, lowest = 0;
    std::vector<UOp> loops;
    std::vector<int> unrolled;
    int outputs = 0;
    for (const TensorCore::Split& split : core.splits) {
      if (split.op != OptOp::kUpcast) continue;
      const UOp range = u.src(4 + outputs++);
      if (range.is(Op::kRange)) {
        element |= digits[std::countr_zero(a_.DepsOf(range))] << lowest;
      }
      lowest += std::countr_zero(static_cast<uint32_t>(split.amount));
    }
    RangeMask copies = 0;
    for (int i = 4 + outputs; i < u.src_count(); ++i) {
      if (a_.DepsOf(u.src(i)) == 0) loops.push_back(u.src(i));
      copies |= a_.DepsOf(u.src(i));
    }
    const DType dtype = u.dtype().WithLanes(core.c.elements());
    UOp sum = g_.Const(dtype, 0), acc;
    if (!loops.empty()) {
      std::vector<UOp> src = {sum};
      src.insert(src.end(), loops.begin(), loops.end());
      // The accumulator of this vector, whichever of its elements is asked for.
      const int64_t outer = CopyAt(a_.DepsOf(u) & ~OutputsOf(u, outputs), digits);
      const auto [number, is_new] =
          product_accumulators_.emplace(std::make_pair(u, outer), accumulators_);
      if (is_new) ++accumulators_;
      sum = acc = g_.Make(Op::kAcc, dtype, src, Arg::Int(number->second));
    }
    for (int64_t i = 0; i < CountOf(copies); ++i) {
      SetDigits(copies, i, digits);
      sum = g_.Make(
          Op::kWmma, dtype,
          {VectorAlong(u.src(0), u.src(2), digits), VectorAlong(u.src(1), u.src(3), digits), sum},
          u.arg());
    }
    if (acc) sum = g_.Make(Op::kAssign, dtype, {acc, sum});
    return TakeLane(sum, element);
  }
  RangeMask OutputsOf(UOp u, int outputs) const {
    RangeMask mask = 0;
    for (int i = 4; i < 4 + outputs; ++i) mask |= a_.DepsOf(u.src(i));
    return mask;
  }

  UOpGraph& g_;
  const UOp sink_;
  const TargetCaps& caps_;
  const UnrollAnalysis a_;
  const Lanes lanes_;
  int64_t max_nodes_;
  std::vector<Copies> table_;
  std::vector<bool> is_index_;
  absl::flat_hash_map<std::tuple<UOp, RangeMask, int64_t>, UOp> instances_;
  absl::flat_hash_map<UOp, UOp> as_lanes_;
  absl::flat_hash_map<UOp, std::vector<UOp>> order_of_;
  int64_t accumulators_ = 0;
  absl::flat_hash_map<std::pair<UOp, int64_t>, int64_t> product_accumulators_;
};

}  // namespace

absl::StatusOr<UOp> Expand(UOp sink, const TargetCaps& caps, int64_t max_nodes) {
  BEAMD_ASSIGN_OR_RETURN(UnrollAnalysis analysis, AnalyseUnroll(sink));
  // Lanes are registers of a CPU; a work-item of a GPU computes with scalars.
  Lanes lanes = caps.has_local ? Lanes() : ChooseLanes(analysis, caps);
  return Expander(sink, std::move(analysis), std::move(lanes), caps, max_nodes).Run();
}

}  // namespace beamd

#include "engine/kernel/vector_products.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/kernel/tiles.h"

namespace beamd {
namespace {

// Rows and columns of a tile, best first: as many sums as hide an addition's latency and leave
// registers for what is multiplied.
constexpr int kRows[] = {4, 6, 5, 3, 2};
constexpr int kColumns[] = {2, 1};

bool Divides(int64_t amount, const SInt& size) {
  return size.is_number() && size.number() > 0 && size.number() % amount == 0;
}

// A factor, as the axes of the full shape see it.
struct Factor {
  std::vector<bool> repeats;      // all its loads have stride 0
  std::vector<bool> consecutive;  // all its loads have stride 1
};

// nullopt: it loads nothing.
std::optional<Factor> FactorOf(const Kernel& k, UOp value) {
  const size_t rank = k.full_shape().size();
  Factor factor{std::vector<bool>(rank, true), std::vector<bool>(rank, true)};
  bool loads = false;
  for (const UOp u : Toposort(value)) {
    if (!u.is(Op::kLoad)) continue;
    const auto at = std::ranges::find(k.bufs(), u);
    if (at == k.bufs().end()) return std::nullopt;
    loads = true;
    const auto strides = k.tracker(static_cast<int>(at - k.bufs().begin())).RealStrides();
    for (size_t axis = 0; axis < rank; ++axis) {
      factor.repeats[axis] = factor.repeats[axis] && strides[axis] == SInt(0);
      factor.consecutive[axis] = factor.consecutive[axis] && strides[axis] == SInt(1);
    }
  }
  return loads ? std::optional(std::move(factor)) : std::nullopt;
}

// Axes of the result along which `moves` goes on while `repeats` stays.
std::vector<bool> OwnAxes(const Kernel& k, const Factor& moves, const Factor& repeats) {
  std::vector<bool> own(k.first_reduce());
  for (size_t axis = 0; axis < own.size(); ++axis) {
    own[axis] = repeats.repeats[axis] && !moves.repeats[axis];
  }
  return own;
}

// The first of `amounts` (times `unit`) that divides one of `axes`, the last such: as an upcast.
std::optional<Opt> UpcastOf(const Kernel& k, const std::vector<bool>& axes,
                            std::span<const int> amounts, int unit = 1) {
  for (const int amount : amounts) {
    for (int axis = static_cast<int>(axes.size()) - 1; axis >= 0; --axis) {
      if (axes[axis] && Divides(amount * unit, k.full_shape()[axis])) {
        return Opt{OptOp::kUpcast, axis, amount * unit};
      }
    }
  }
  return std::nullopt;
}

// What comes later goes first, since an opt that takes a whole axis renumbers what lies behind it.
std::vector<Opt> LastAxisFirst(const Opt& a, const Opt& b) {
  return *a.axis > *b.axis ? std::vector<Opt>{a, b} : std::vector<Opt>{b, a};
}

std::vector<Opt> AlongTheReduction(const Kernel& k, const Factor& a, const Factor& b, int lanes) {
  const int axis = k.first_upcast() - 1;
  if (!a.consecutive[axis] || !b.consecutive[axis] || !Divides(lanes, k.full_shape()[axis])) {
    return {};
  }
  for (const auto& [rows, columns] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const std::optional<Opt> row = UpcastOf(k, OwnAxes(k, *rows, *columns), kRows);
    const std::optional<Opt> column =
        UpcastOf(k, OwnAxes(k, *columns, *rows), std::span(kColumns).first(1));
    if (!row || !column) continue;
    std::vector<Opt> opts = LastAxisFirst(*row, *column);
    opts.insert(opts.begin(), {OptOp::kUnroll, axis - k.first_reduce(), lanes});
    return opts;
  }
  return {};
}

std::vector<Opt> AlongTheResult(const Kernel& k, const Factor& a, const Factor& b, int lanes) {
  const auto stored = k.tracker(0).RealStrides();
  for (const auto& [columns, rows] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    std::vector<bool> axes = OwnAxes(k, *columns, *rows);
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      axes[axis] = axes[axis] && columns->consecutive[axis] && stored[axis] == SInt(1);
    }
    const std::optional<Opt> column = UpcastOf(k, axes, kColumns, lanes);
    const std::optional<Opt> row = UpcastOf(k, OwnAxes(k, *rows, *columns), kRows);
    if (column && row) return LastAxisFirst(*row, *column);
  }
  return {};
}

std::vector<Opt> TileOf(const Kernel& k) {
  if (k.caps().kind != TargetKind::kCpu || k.reduceops().size() != 1 ||
      k.first_reduce() >= k.shape_len() || k.upcasted() != 0) {
    return {};
  }
  const UOp reduce = k.reduceops()[0];
  UOp product = reduce.src(0);
  if (product.is(Op::kCast)) product = product.src(0);
  if (reduce.data<ReduceArg>().op != Op::kAdd || !product.is(Op::kMul)) return {};
  const std::optional<Factor> a = FactorOf(k, product.src(0)), b = FactorOf(k, product.src(1));
  if (!a || !b) return {};
  const int lanes = k.caps().vector_bytes / SizeBytes(reduce.scalar());
  std::vector<Opt> opts = AlongTheReduction(k, *a, *b, lanes);
  return opts.empty() ? AlongTheResult(k, *a, *b, lanes) : opts;
}

}  // namespace

Kernel CpuOptimizations(const Kernel& kernel) {
  const std::vector<Opt> opts = TileOf(kernel);
  Kernel tiled = kernel;
  if (opts.empty() || !tiled.ApplyAll(opts).ok()) {
    return EnlargeTiles(HandCodedOptimizations(kernel));
  }
  return tiled;
}

}  // namespace beamd

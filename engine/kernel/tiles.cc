#include "engine/kernel/tiles.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace beamd {
namespace {

// 16 registers of eight floats hold 64 outputs and leave half of them for operands.
constexpr int64_t kMostOutputs = 64;
constexpr int64_t kMostAlongAxis = 16;
// The unrolled part of the reduction included; what a search may go up to as well.
constexpr int64_t kMostUpcast = 256;

// Global axes that gain by a tile: where outputs lie as an operand does; and where one of two axes
// at least shares what is loaded, as the rows and columns of a product do. The sum of each row of a
// matrix has none: vectors along its reduction are better.
std::vector<bool> AxesToTile(const Kernel& k) {
  std::vector<bool> contiguous(k.global_dims(), false);
  std::vector<bool> shared(k.global_dims(), false);
  for (size_t i = 1; i < k.bufs().size(); ++i) {
    if (!k.bufs()[i].is(Op::kLoad)) continue;
    const ShapeTracker& st = k.tracker(static_cast<int>(i));
    const std::vector<std::optional<SInt>> strides = st.RealStrides(/*ignore_valid=*/true);
    bool reduced = false;
    for (int axis = k.first_reduce(); axis < k.first_upcast(); ++axis) {
      reduced |= strides[axis] != SInt(0);
    }
    if (!reduced) continue;
    for (int axis = 0; axis < k.global_dims(); ++axis) {
      if (strides[axis] == SInt(0)) shared[axis] = true;
    }
    for (int axis : st.UnitStrideAxes(/*ignore_valid=*/true)) {
      if (axis < k.global_dims()) contiguous[axis] = true;
    }
  }
  if (std::count(shared.begin(), shared.end(), true) < 2) return contiguous;
  for (int axis = 0; axis < k.global_dims(); ++axis)
    contiguous[axis] = contiguous[axis] || shared[axis];
  return contiguous;
}

// What the opts so far take of each global axis at once.
std::vector<int64_t> TilesOf(const Kernel& k) {
  std::vector<int64_t> tiles(k.global_dims(), 1);
  for (const Opt& opt : k.applied_opts()) {
    const bool global = opt.axis && *opt.axis >= 0 && *opt.axis < k.global_dims();
    if (opt.op == OptOp::kUpcast && global && opt.amount) tiles[*opt.axis] *= *opt.amount;
  }
  return tiles;
}

}  // namespace

Kernel EnlargeTiles(const Kernel& scheduled) {
  Kernel k = scheduled;
  if (k.caps().has_local || k.reduceops().empty() || k.group_for_reduces() > 0 ||
      k.first_reduce() == k.first_upcast()) {
    return k;
  }
  const std::vector<bool> gains = AxesToTile(k);
  std::vector<int64_t> tiles = TilesOf(k);
  int64_t outputs = 1;
  for (int64_t tile : tiles) outputs *= tile;
  while (true) {
    // The axis with the smallest tile, the last of them: operands are most often contiguous there.
    int best = -1;
    int64_t factor = 0;
    for (int axis = 0; axis < k.global_dims(); ++axis) {
      const SInt& size = k.full_shape()[axis];
      if (!gains[axis] || !size.is_number()) continue;
      for (const int64_t f : {tiles[axis] == 1 ? 4 : 2, 2}) {
        if (size.number() <= f || size.number() % f != 0 || tiles[axis] * f > kMostAlongAxis ||
            outputs * f > kMostOutputs || k.UpcastProduct() * f > kMostUpcast) {
          continue;
        }
        if (best < 0 || tiles[axis] <= tiles[best]) {
          best = axis;
          factor = f;
        }
        break;
      }
    }
    if (best < 0) return k;
    Kernel larger = k;
    if (!larger.Apply(Opt{OptOp::kUpcast, best, static_cast<int>(factor)}).ok()) return k;
    k = std::move(larger);
    tiles[best] *= factor;
    outputs *= factor;
  }
}

}  // namespace beamd

// Answers to tinygrad 0.10.0 codegen/kernel.py, apply_tensor_cores and hand_coded_optimizations: the
// same choices in the same order, so each block names what it decides and none is improved here.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/kernel/kernel.h"

namespace beamd {
namespace {

constexpr int kMatvecBlock = 4, kMatvecThreadsPerRow = 8, kMatvecRowsPerThread = 4;

bool Divides(int64_t amount, const SInt& size) {
  return size.is_number() && size.number() % amount == 0;
}

// The heuristics only ask for what they have checked; where a check leaves a gap, no opt is taken.
bool TryApply(Kernel& k, OptOp op, int axis, int64_t amount) {
  return k.Apply({op, axis, static_cast<int32_t>(amount)}).ok();
}

SInt ProdOf(const Shape& shape, int begin, int end) {
  return Prod(std::span<const SInt>(shape).subspan(begin, end - begin));
}

const SInt& LastStride(const Kernel& k, int buf, int axis) {
  return k.tracker(buf).views().back().strides[axis];
}

bool IsZero(const std::optional<SInt>& stride) { return stride && ProvenEq(*stride, 0); }

// Does a buffer repeat itself along an axis?
bool HasExpandedAxis(const Shape& shape, const std::vector<std::optional<SInt>>& strides) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!ProvenLe(shape[i], 1) && IsZero(strides[i])) return true;
  }
  return false;
}

int BufIndex(const Kernel& k, UOp buf) {
  return static_cast<int>(std::find(k.bufs().begin(), k.bufs().end(), buf) - k.bufs().begin());
}

// Matrix products in a type that the target multiplies by tiles: each warp takes several tiles a
// side, some warps share N.
bool ApplyTensorCores(Kernel& k) {
  if (!TryApply(k, OptOp::kTc, 0, 0)) return false;
  auto take = [&](OptOp op, TileDim dim, std::initializer_list<int> amounts) {
    const std::optional<int> axis = k.TileAxis(dim);
    if (!axis) return;
    for (int amount : amounts) {
      if (!Divides(amount, k.full_shape()[*axis])) continue;
      TryApply(k, op, *axis, amount);
      return;
    }
  };
  take(OptOp::kUpcast, kTileM, {5, 4, 3, 2});
  take(OptOp::kUpcast, kTileN, {5, 4, 3, 2});
  take(OptOp::kLocal, kTileN, {4, 2});
  return true;
}

// Matrix times vector: threads share a row, a work-group takes a block of rows.
bool ApplyMatvec(Kernel& k) {
  if (!k.caps().has_local || !k.caps().has_shared || k.reduceops().empty() || k.shape_len() < 2 ||
      k.first_reduce() >= k.shape_len()) {
    return false;
  }
  const UOp reduce = k.reduceops()[0], product = reduce.src(0);
  if (reduce.data<ReduceArg>().op != Op::kAdd || !product.is(Op::kMul) ||
      !product.src(0).is(Op::kLoad) || !product.src(1).is(Op::kLoad)) {
    return false;
  }
  const ShapeTracker& a = k.tracker(BufIndex(k, product.src(0)));
  const ShapeTracker& b = k.tracker(BufIndex(k, product.src(1)));
  const auto a_strides = a.RealStrides(), b_strides = b.RealStrides();
  const int row = k.first_reduce();
  if (a_strides[row] != SInt(1) ||
      (HasExpandedAxis(a.shape(), a_strides) && HasExpandedAxis(b.shape(), b_strides)) ||
      !Divides(kMatvecThreadsPerRow, k.full_shape()[row])) {
    return false;
  }
  for (int i = 0; i < k.global_dims(); ++i) {
    if (!Divides(kMatvecBlock * kMatvecRowsPerThread, k.full_shape()[i])) continue;
    TryApply(k, OptOp::kGroup, 0, kMatvecThreadsPerRow);
    TryApply(k, OptOp::kLocal, i, kMatvecBlock);
    TryApply(k, OptOp::kUpcast, i, kMatvecRowsPerThread);
    return true;
  }
  return false;
}

// Few outputs of a long reduction: a work-group shares each.
void ApplyGrouping(Kernel& k) {
  const int reduce = k.first_reduce();
  if (!k.caps().has_local || !k.caps().has_shared ||
      !AllNumbers(std::span(k.output_shape()).first(reduce))) {
    return;
  }
  const int64_t outputs = ProdOf(k.output_shape(), 0, reduce).number();
  if (reduce <= 2 && reduce < k.shape_len() && outputs <= 2048 && k.Float4Axes(0).empty()) {
    for (int64_t size : {256, 16}) {
      if (size == 256 && outputs > 32) continue;
      bool divides = true;
      for (int i = 0; i < k.tracker_count(); ++i) {
        const SInt& axis = k.tracker(i).shape()[reduce];
        divides = divides && (Divides(size, axis) || axis == SInt(1));
      }
      if (divides && TryApply(k, OptOp::kGroupTop, 0, size)) break;
    }
  }
  if (k.bufs()[0].src(0).dtype().is_image() && k.group_for_reduces() > 0) {
    const std::vector<int> axes = k.tracker(0).UnitStrideAxes();
    if (axes.size() == 1 && Divides(4, k.output_shape()[axes[0]])) {
      TryApply(k, OptOp::kUpcastMid, axes[0], 4);
    }
  }
}

// The first unit-stride axis of a buffer that four divides, if it can still be vectorised.
std::optional<int> ImageAxis(const Kernel& k, int buf) {
  std::optional<int> first;
  for (int axis : k.tracker(buf).UnitStrideAxes(/*ignore_valid=*/true)) {
    if (!Divides(4, k.tracker(buf).shape()[axis])) continue;
    if (axis >= k.first_upcast()) return std::nullopt;
    if (!first) first = axis;
  }
  if (first) {
    const std::vector<int> mid = k.UpcastInMidReduceAxes();
    if (std::find(mid.begin(), mid.end(), *first) != mid.end()) return std::nullopt;
  }
  return first;
}

void UpcastImages(Kernel& k) {
  for (size_t i = 0; i < k.bufs().size(); ++i) {
    const UOp buf = k.bufs()[i];
    if (!buf.src(0).dtype().is_image()) continue;
    const std::optional<int> axis = ImageAxis(k, static_cast<int>(i));
    if (!axis) continue;
    if (*axis < k.first_reduce()) {
      TryApply(k, OptOp::kUpcast, *axis, 4);
    } else {
      TryApply(k, OptOp::kUnroll, *axis - k.first_reduce(), 4);
    }
  }
}

// Short axes with masks come from stacking: upcast, their masks fold.
void UpcastMaskedAxes(Kernel& k) {
  std::vector<int> axes;
  SInt upcast = ProdOf(k.full_shape(), k.first_upcast(), k.shape_len());
  for (int axis = 0; axis < k.first_reduce(); ++axis) {
    const SInt& size = k.full_shape()[axis];
    if (!size.is_number() || size.number() > 7 || !ProvenLe(upcast * size, 7 * 7)) continue;
    bool masked = false;
    for (int i = 0; i < k.tracker_count() && !masked; ++i) {
      masked = k.tracker(i).AxisIsMasked(axis);
    }
    if (!masked) continue;
    axes.push_back(axis);
    upcast = upcast * size;
  }
  for (auto it = axes.rbegin(); it != axes.rend(); ++it) TryApply(k, OptOp::kUpcast, *it, 0);
}

// Does buffer i have stride 0 on an axis that is upcast already?
bool RepeatsInUpcast(const Kernel& k, int i) {
  if (k.upcasted() == 0) return false;
  const auto strides = k.tracker(i).RealStrides();
  return std::any_of(strides.begin() + k.first_upcast(), strides.end(), IsZero);
}

// Upcasts an axis along which some buffer repeats, while there is work enough for many threads.
void UpcastBroadcasts(Kernel& k) {
  std::vector<int> taken;
  while (!ProvenLt(ProdOf(k.output_shape(), 0, k.first_reduce()), 1024)) {
    std::vector<std::optional<bool>> repeats(k.tracker_count());
    auto repeats_in_upcast = [&](int i) {
      if (!repeats[i]) repeats[i] = RepeatsInUpcast(k, i);
      return *repeats[i];
    };
    // Fewest strided buffers, then the least sum of strides, axis, amount.
    using Choice = std::tuple<int, int64_t, int, int64_t>;
    std::optional<Choice> best;
    for (int axis = 0; axis < k.first_reduce(); ++axis) {
      for (int64_t amount : {3, 4}) {
        if (std::find(taken.begin(), taken.end(), axis) != taken.end() ||
            !Divides(amount, k.full_shape()[axis])) {
          continue;
        }
        bool broadcast = false;
        int strided = 0;
        SInt sum = 0;
        for (int i = 0; i < k.tracker_count(); ++i) {
          const SInt& stride = LastStride(k, i, axis);
          broadcast = broadcast || (stride == SInt(0) && !repeats_in_upcast(i));
          if (!ProvenLe(stride, 0)) ++strided;
          sum = sum + stride;
        }
        if (!broadcast) continue;
        const Choice choice{strided, sum.max(), axis, amount};
        if (!best || choice < *best) best = choice;
      }
    }
    if (!best) break;
    const auto [strided, sum, axis, amount] = *best;
    if (!TryApply(k, OptOp::kUpcast, axis, amount)) break;
    taken.push_back(axis);
  }
}

// Unrolls the innermost reduce loop if it is short, or by four.
void UnrollReduce(Kernel& k) {
  if (k.first_reduce() >= k.first_upcast()) return;
  const Shape& full = k.full_shape();
  bool unrolled = false;  // is a reduce axis unrolled already?
  for (int i = k.first_upcast(); i < k.shape_len(); ++i) {
    unrolled = unrolled || !ProvenEq(full[i], k.output_shape()[i]);
  }
  const SInt upcast = ProdOf(full, k.first_upcast(), k.shape_len());
  if (!(ProvenLe(upcast, 4) || !unrolled) || !(k.upcasted() == 0 || ProvenLt(upcast, 64))) return;
  const SInt last = full[k.first_upcast() - 1];
  if (last.is_number() && last.number() <= 32) {
    TryApply(k, OptOp::kUnroll, k.first_upcast() - 1 - k.first_reduce(), 0);
    if (k.first_reduce() < k.first_upcast() && last.number() <= 3) {
      const SInt& second = k.full_shape()[k.first_upcast() - 1];
      if (second.is_number() && second.number() <= 3) {
        TryApply(k, OptOp::kUnroll, k.first_upcast() - 1 - k.first_reduce(), 0);
      }
    }
  } else if (Divides(4, last)) {
    TryApply(k, OptOp::kUnroll, k.first_upcast() - 1 - k.first_reduce(), 4);
  }
}

// Threads for up to three global axes, those first along which a buffer repeats.
void ApplyLocals(Kernel& k) {
  if (!k.caps().has_local) return;
  std::vector<std::pair<bool, int>> ranking;
  for (int axis = 0; axis < k.first_reduce(); ++axis) {
    bool repeats = false;
    for (int i = 0; i < k.tracker_count(); ++i) {
      repeats = repeats || LastStride(k, i, axis) == SInt(0);
    }
    ranking.emplace_back(repeats, axis);
  }
  std::sort(ranking.rbegin(), ranking.rend());
  std::vector<std::pair<int, int64_t>> chosen;
  int64_t threads = 1;
  for (const auto& [repeats, axis] : ranking) {
    for (int64_t size : {32, 16, 8, 4, 3, 2}) {
      if (size == 32 && axis != 0) continue;
      if (!Divides(size, k.full_shape()[axis]) || threads * size > 128) continue;
      chosen.emplace_back(axis, size);
      threads *= size;
      break;
    }
  }
  if (chosen.size() > 3) chosen.resize(3);
  std::sort(chosen.begin(), chosen.end());
  int gone = 0;  // axes that a LOCAL took whole
  for (const auto& [axis, size] : chosen) {
    const bool whole = k.full_shape()[axis - gone] == SInt(size);
    TryApply(k, OptOp::kLocal, axis - gone, size);
    if (whole) ++gone;
  }
}

}  // namespace

Kernel RequiredOptimizations(const Kernel& kernel) {
  Kernel k = kernel;
  if (k.bufs()[0].src(0).dtype().is_image()) {
    if (const std::optional<int> axis = ImageAxis(k, 0)) TryApply(k, OptOp::kUpcast, *axis, 4);
  }
  return k;
}

Kernel HandCodedOptimizations(const Kernel& kernel) {
  Kernel k = RequiredOptimizations(kernel);
  if (ApplyTensorCores(k) || ApplyMatvec(k)) return k;
  ApplyGrouping(k);
  UpcastImages(k);
  if (k.group_for_reduces() > 0) return k;
  UpcastMaskedAxes(k);
  UpcastBroadcasts(k);
  UnrollReduce(k);
  if (k.upcasted() == 0 && k.first_upcast() > 0 &&
      Divides(4, k.full_shape()[k.first_upcast() - 1])) {
    TryApply(k, OptOp::kUpcast, k.first_upcast() - 1, 4);
  }
  ApplyLocals(k);
  return k;
}

}  // namespace beamd

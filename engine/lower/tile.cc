#include "engine/lower/tile.h"

#include <array>
#include <bit>
#include <cstdint>

#include "engine/base/status.h"
#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

using Bit = TensorCore::Bit;

int WidthOf(const TensorCore::Split& split) {
  return std::countr_zero(static_cast<uint32_t>(split.amount));
}

// By bit of a kernel's coordinate along each side: the bit of the instruction's.
std::array<std::vector<int>, kTileDims> InstructionBits(const TensorCore& core) {
  std::array<std::vector<int>, kTileDims> bits;
  size_t lane = 0, element = 0;
  for (const TensorCore::Split& split : core.splits) {
    std::vector<int>& of_dim = bits[split.dim];
    for (int i = 0; i < WidthOf(split); ++i) {
      if (split.op == OptOp::kUnroll) {
        of_dim.push_back(static_cast<int>(of_dim.size()));
        continue;
      }
      const Bit bit = split.op == OptOp::kLocal ? core.c.lane[lane++] : core.c.element[element++];
      BEAMD_CHECK(bit.dim == split.dim, "a tensor core whose splits are not its layout's");
      of_dim.push_back(bit.bit);
    }
  }
  return bits;
}

// A bit of an index of `width` bits; none: `index` is null.
struct Source {
  UOp index;
  int bit = 0, width = 0;
  bool Follows(const Source& s) const { return index && index == s.index && bit == s.bit + 1; }
};

}  // namespace

std::vector<UOp> TileIndices(const TensorCore& core, const TensorCore::Layout& operand,
                             std::span<const UOp> threads, UOp element) {
  std::vector<Source> lane_bits;
  size_t thread = 0;
  for (const TensorCore::Split& split : core.splits) {
    if (split.op != OptOp::kLocal) continue;
    for (int i = 0; i < WidthOf(split); ++i) {
      lane_bits.push_back({threads[thread], i, WidthOf(split)});
    }
    ++thread;
  }
  const auto find = [&](TileDim dim, int bit) -> Source {
    for (size_t i = 0; i < operand.lane.size(); ++i) {
      const Bit b = operand.lane[i];
      if (!b.repeats() && b.dim == dim && b.bit == bit) return lane_bits[i];
    }
    for (size_t i = 0; i < operand.element.size(); ++i) {
      const Bit b = operand.element[i];
      if (b.dim == dim && b.bit == bit) {
        return {element, static_cast<int>(i), static_cast<int>(operand.element.size())};
      }
    }
    return {};
  };

  const std::array<std::vector<int>, kTileDims> bits = InstructionBits(core);
  std::array<int, kTileDims> used = {};
  std::vector<UOp> indices;
  for (const TensorCore::Split& split : core.splits) {
    UOp index = element.ConstLike(0);
    const int width = WidthOf(split);
    std::vector<Source> sources;
    for (int i = 0; i < width; ++i) {
      sources.push_back(find(split.dim, bits[split.dim][used[split.dim]++]));
    }
    for (int i = 0, end = 0; i < width; i = end) {
      for (end = i + 1; end < width && sources[end].Follows(sources[end - 1]); ++end) {
      }
      const Source& first = sources[i];
      if (!first.index) continue;
      UOp part = first.index / (int64_t{1} << first.bit);
      if (first.bit + end - i < first.width) part = part % (int64_t{1} << (end - i));
      index = index + part * (int64_t{1} << i);
    }
    indices.push_back(Simplify(index));
  }
  return indices;
}

}  // namespace beamd

// Tensor cores as data: instructions by which the threads (lanes) of a warp multiply two small
// matrices, D (M x N) = A (M x K) * B (K x N) + C.
// Spec: tinygrad 0.10.0 renderer/cstyle.py, tensor_cores.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/base/target_caps.h"
#include "engine/dtype/dtype.h"
#include "engine/kernel/opt.h"

namespace beamd {

// The sides of a tile, in the order of TensorCore::dims.
enum TileDim : uint8_t { kTileN, kTileM, kTileK };
inline constexpr int kTileDims = 3;

struct TensorCore {
  // One opt on what is left of an axis. UPCAST and UNROLL stay within a thread, LOCAL is threads.
  struct Split {
    OptOp op;
    TileDim dim;
    int32_t amount;
  };
  // What a bit of a lane's number, or of an element's in a lane's vector, says: bit `bit` of the
  // coordinate along `dim`, or nothing (lanes that differ in it hold the same).
  struct Bit {
    static constexpr int8_t kRepeats = -1;
    TileDim dim;
    int8_t bit;
    constexpr bool repeats() const { return bit == kRepeats; }
  };
  // Which coordinates of a matrix each lane holds, bits from the lowest on.
  struct Layout {
    std::span<const Bit> lane, element;
    constexpr int elements() const { return 1 << element.size(); }
  };

  std::array<int32_t, kTileDims> dims;
  Scalar in;   // of A and B
  Scalar out;  // of C and D
  // From the axes of a kernel to a tile: along each side the amounts multiply to its size.
  std::span<const Split> splits;
  // Of A, of B, of C and D: what the instruction takes and gives, a vector a lane.
  Layout a, b, c;

  // How many axes the threads of a warp make.
  int ThreadAxes() const;
  // Multiplications of a tile that fall to one thread.
  int64_t ElementsPerThread() const;
};

// Those of a target, the first that fits is taken; none where the target has none.
std::span<const TensorCore> TensorCoresOf(const TargetCaps& caps);

}  // namespace beamd

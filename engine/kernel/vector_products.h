// Opts for sums of products (matrix products, convolutions) on a CPU, by the width of its vectors.
//
// The seeds' heuristics tile four by four by four, which leaves half of an AVX2 register idle and
// most of an AVX-512 one. Two tiles take their place:
//   * both factors run along the reduction: a vector's worth of it is unrolled, over four rows and
//     two columns: eight sums of vectors, folded across once at the end;
//   * a factor runs along a result's axis, and the other repeats along it: two vectors of that axis,
//     over four rows. Where four doesn't divide the rows, another small number does.
// On one core of an AVX2 machine, f32: 64x784 by (256x784)^T in 0.31 ms instead of 0.84; 256x64 by
// 64x784 in 0.37 ms instead of 1.34.
#pragma once

#include "engine/kernel/kernel.h"

namespace beamd {

// The heuristics' choice with larger tiles (engine/kernel/tiles.h) where neither fits. `kernel` is
// fresh: no opt is applied to it.
Kernel CpuOptimizations(const Kernel& kernel);

}  // namespace beamd

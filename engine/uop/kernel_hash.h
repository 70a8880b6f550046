// The name of a kernel: a digest of what it computes, over structure and never over wire bytes.
// Keys of records begin with it, so it must not change: a golden file holds samples.
#pragma once

#include "engine/base/hash.h"
#include "engine/uop/uop.h"

namespace beamd {

// The graph under `u` in its canonical form, made in `graph` (which may be u's own). Two graphs
// that are the same kernel have the same node here:
//   * views have stride 0 on axes of size 1, and no mask that covers the whole shape;
//   * the sizes that a VIEW takes from sources stand in the order in which it uses them;
//   * a buffer's stated size is dropped where every access is proven to stay inside it, since it
//     then says nothing about what is computed; where that is open, it decides what is checked.
// Nodes written twice, their order, and the bits of a NaN don't matter to any graph.
UOp CanonicalKernel(UOp u, UOpGraph& graph);

// BLAKE3 over the canonical form, a node's digest being that of its op, dtype, argument and its
// sources' digests.
Digest KernelHash(UOp u);

}  // namespace beamd

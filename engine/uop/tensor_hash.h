// The name of a tensor graph: what a plan of it can be kept under.
#pragma once

#include "engine/base/hash.h"
#include "engine/uop/uop.h"

namespace beamd {

// The verified tensor graph under `u` in its canonical form, made in `graph`, which isn't u's own.
// Two graphs that compute the same with other memory have the same node here:
//   * ids of BUFFERs, and apart from them of EMPTYs, count up in the order of Toposort;
//   * a size in elements is dropped, since the shape says it;
//   * sizes that come from sources stand in the order in which they are used, FLIP's axes in theirs.
UOp CanonicalTensorGraph(UOp u, UOpGraph& graph);

// BLAKE3 over the canonical form. Never equal to a kernel's.
Digest TensorGraphHash(UOp u);

}  // namespace beamd

// Writes out the unrolled axes: some become the lanes of vectors, the others separate nodes.
//
// In:    LowerIndexing's graph: RANGEs of kind kUpcast and kUnroll, REDUCE over ranges.
// Out:   SINK of STOREs without unrolled RANGEs and without REDUCE: ACC and ASSIGN around the loops
// that are left,
//        vectors where ChooseLanes says so, LOADs and STOREs of consecutive elements where it is
//        proven.
// Order: after LowerIndexing, before Linearize.
// Error: ResourceExhausted if more than `max_nodes` nodes come out.
// Spec:  SEMANTICS "ADD reductions" (free order, fused multiply), "Memory" (masked accesses touch
// nothing).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/uop/uop.h"

namespace beamd {

absl::StatusOr<UOp> Expand(UOp sink, const TargetCaps& caps, int64_t max_nodes);

}  // namespace beamd

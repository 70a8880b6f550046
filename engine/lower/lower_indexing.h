// Replaces every VIEW by index arithmetic and every axis by a RANGE: what is left says what happens
// at one point of the kernel's shape.
//
// In:    Kernel::OptimizedAst: full shape <global><local><group><reduce><upcast/unroll>, one axis
//        per dim.
// Out:   SINK of STORE(INDEX(buf, idx[, valid]), value); LOAD(INDEX(...)); VALID is its condition;
//        REDUCE(value, ranges...). Index expressions are int64, simplified, in elements. Each
//        reduction has ranges of its own, but reductions over the same axes that don't need each
//        other share them. An image is the buffer of its texels' elements, with a CAST at loads and
//        stores where those aren't float32.
//        GPUs: axes of the grid and of the group are expressions of SPECIALs. What a grouped
//        reduction leaves in shared memory is LOAD(INDEX(DEFINE_LOCAL(elements), ...), BARRIER(
//        STORE)), where the STORE's value is that of a work-item; outputs are stored by one of the
//        work-items that share a point, after a BARRIER where others read what it overwrites. A
//        tensor core's sum is WMMA(a, b, ranges): a and b at the elements that a lane holds of them,
//        then the range of each one's elements, the output's ranges within the tile, those summed
//        over outside of it.
// Order: after the opts, before Expand.
// Error: InvalidArgument if an upcast axis is symbolic; ResourceExhausted if the target can't launch
//        so much; Unimplemented for shared memory on a CPU.
// Spec:  tinygrad 0.10.0 codegen/lowerer.py. Differs: ranges stay ranges, also the unrolled ones;
//        Expand turns them to lanes. Images have no coordinates: no target here has textures.
#pragma once

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/tensor_core.h"
#include "engine/uop/uop.h"

namespace beamd {

// `core`: what computes the sums, or null. `group_items`: of a kernel without locals,
// Kernel::group_items. `caps` must outlive the call.
absl::StatusOr<UOp> LowerIndexing(UOp sink, const TargetCaps& caps,
                                  const TensorCore* core = nullptr, int64_t group_items = 0);

}  // namespace beamd

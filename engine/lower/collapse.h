// Sums that only count become arithmetic: a loop that adds x wherever i + j < c adds it a number of
// times that is known.
//
// In:    LowerIndexing's graph.
// Out:   equal values; fewer ranges under REDUCE, so fewer loops. An arange of n elements costs n,
//        not n squared.
// Order: after LowerIndexing, before Expand.
// Spec:  SEMANTICS "ADD reductions": the order is free, so n equal terms may be one product.
//        tinygrad 0.10.0 uopgraph.py, loop_collapse.
#pragma once

#include "engine/uop/uop.h"

namespace beamd {

UOp CollapseLoops(UOp sink);

}  // namespace beamd

// Index arithmetic in 32 bits where every intermediate value is proven to fit.
//
// In:    Expand's graph; index expressions are int64.
// Out:   equal values. Comparisons, divisions and remainders of index expressions work on int32
//        where their operands and everything below them fit; the rest, addresses among them, stays
//        int64.
// Order: after Expand, before Linearize.
// Spec:  SEMANTICS "Memory": wrong widths are faults, not tuning choices.
//
// Addresses stay wide because a 64-bit CPU adds them for nothing and would have to extend narrow
// ones; a vector of 32-bit comparisons is half as long as one of 64-bit, and a narrow division
// costs half.
#pragma once

#include "engine/uop/uop.h"

namespace beamd {

UOp NarrowIndices(UOp sink);

}  // namespace beamd

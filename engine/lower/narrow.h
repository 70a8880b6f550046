// Index arithmetic in 32 bits where every intermediate value is proven to fit.
//
// In:    Expand's graph; index expressions are int64.
// Out:   equal values. Comparisons, divisions and remainders of index expressions work on int32
//        where their operands and everything below them fit; on a CPU the rest, addresses among
//        them, stays int64. On a GPU all that fits is int32, loops and addresses too.
// Order: after Expand, before Linearize.
// Spec:  SEMANTICS "Memory": wrong widths are faults, not tuning choices.
//
// A 64-bit CPU adds wide addresses for nothing and would have to extend narrow ones; a vector of
// 32-bit comparisons is half as long as one of 64-bit, and a narrow division costs half. A GPU makes
// two or more operations of every 64-bit one, and holds its operands in two registers.
#pragma once

#include "engine/base/target_caps.h"
#include "engine/uop/uop.h"

namespace beamd {

UOp NarrowIndices(UOp sink, const TargetCaps& caps);

}  // namespace beamd

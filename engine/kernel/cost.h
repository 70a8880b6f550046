// What a kernel has to do, whatever its opts: for tables that say where time should go.
#pragma once

#include "engine/uop/uop.h"

namespace beamd {

// A size that is an expression counts as its largest value.
struct KernelCost {
  // ALU ops on elements; an element that goes into a reduction is one more, MULACC two. Casts,
  // moves and what computes an index are none.
  double operations = 0;
  // Of each buffer as many elements as a view of it has, but no more than up to the last one that it
  // touches, once if loaded and once if stored: what goes over the memory bus if caches are perfect.
  double bytes = 0;
};

// Of a verified kernel graph (engine/uop/verify.h).
KernelCost CostOf(UOp sink);

}  // namespace beamd

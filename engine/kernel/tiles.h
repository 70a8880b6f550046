// Larger output tiles than the heuristics choose, for a CPU.
#pragma once

#include "engine/kernel/kernel.h"

namespace beamd {

// `scheduled` with more UPCASTs where a reduction on a CPU gains by them: each element that is loaded
// serves several outputs, and vectors are wider than four floats. A kernel that gains nothing, or
// has local axes, comes back as it is.
//
// 0.10.0's heuristics stop at 4 x 4, the same for every target; HandCodedOptimizations keeps to
// that, since what it chooses is compared and searched from.
Kernel EnlargeTiles(const Kernel& scheduled);

}  // namespace beamd

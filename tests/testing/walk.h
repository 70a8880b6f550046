// Random lists of opts.
#pragma once

#include <cstdint>
#include <random>

#include "engine/kernel/kernel.h"

namespace beamd::testing {

// `kernel` after `steps` legal actions of a search, fewer where nothing is legal any more. An opt's
// kind is drawn first, so that the rare ones come up too.
Kernel RandomWalk(Kernel kernel, uint64_t steps, std::mt19937_64& random);

}  // namespace beamd::testing

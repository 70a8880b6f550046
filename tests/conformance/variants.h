// The opt lists that a kernel is run or built with.
#pragma once

#include <string>
#include <vector>

#include "engine/kernel/kernel.h"

namespace beamd::conformance {

// None, the heuristics', and three random walks over legal actions, seeded by the kernel's id.
std::vector<Kernel> Variants(const Kernel& kernel, const std::string& id);

}  // namespace beamd::conformance

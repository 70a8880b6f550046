// The CPU that this process runs on, as LLVM names it.
#pragma once

#include "engine/base/target_caps.h"

namespace beamd {

// Its name, features (sorted) and widest vector.
TargetCaps HostCaps();

}  // namespace beamd

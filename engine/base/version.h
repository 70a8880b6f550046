// The version of what is built from this tree: the daemon and its tools.
#pragma once

namespace beamd {

inline constexpr char kBeamdVersion[] = "0.1";

}  // namespace beamd

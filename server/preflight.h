// What would keep `beamd serve` from what its configuration says, found out before it starts.
#pragma once

#include <string>
#include <vector>

#include "server/config/serve_config.h"

namespace beamd {

// Faults of files: those that it appends to can't be opened, certificates don't parse. A line each.
// Makes and changes nothing.
std::vector<std::string> CheckFiles(const ServeConfig& config);

// Devices that are named and that no driver of this machine has, a line each. The drivers are asked
// by a child of this process, which takes up to twenty seconds.
std::vector<std::string> CheckDevices(const ServeConfig& config);

}  // namespace beamd

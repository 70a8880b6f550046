// What would keep `beamd serve` from what its configuration says, found out before it starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/config/serve_config.h"

namespace beamd {

// Faults of paths, a line each that names the flag and what is at fault: a file that it appends to
// can't be opened, a folder isn't there. Only the store's folders are made. Makes and changes
// nothing. Serve itself looks at these before it begins.
std::vector<std::string> CheckPaths(const ServeConfig& config);
// These, and the faults of the store's folder and of certificates. Makes and changes nothing.
std::vector<std::string> CheckFiles(const ServeConfig& config);

// The descriptors that this process may have once it raised its limit.
int64_t DescriptorLimit();
// A session's buffer is a descriptor each: where `limit` of them has no room for all that `config`
// grants, the limits of buffers are lowered in it, so that connections, the store and children have
// theirs. A line that says so, or empty.
std::string FitDescriptors(int64_t limit, ServeConfig& config);

// Devices that are named and that no driver of this machine has, a line each. The drivers are asked
// by a child of this process, which takes up to twenty seconds.
std::vector<std::string> CheckDevices(const ServeConfig& config);

}  // namespace beamd

// A schedule as a picture: items, and the buffers that go between them.
#pragma once

#include <span>
#include <string>

#include "engine/schedule/schedule.h"

namespace beamd {

// In Graphviz's language (engine/uop/dot.h). `names` has a line an item that tells what it is
// (a kernel's name), or is empty.
std::string ScheduleDot(const Schedule& schedule, std::span<const std::string> names = {});

}  // namespace beamd

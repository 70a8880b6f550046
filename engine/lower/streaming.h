// Which stores should go past the caches: those that fill, line after line, a buffer that no cache
// could keep.
//
// A normal store first reads the line that it overwrites; where every line is written whole and
// comes back to nobody soon, a third of an element-wise kernel's traffic is that read.
#pragma once

#include "engine/lower/program.h"

namespace beamd {

// Fills in program.streamed from its ops and image.buffers.
void MarkStreamedStores(LinearProgram& program);

}  // namespace beamd

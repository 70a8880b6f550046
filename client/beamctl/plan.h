// What a tensor graph comes to, as a table.
#pragma once

#include "client/beamctl/model.h"

namespace beamd {

// On standard output: an item of the schedule a row, with shapes, work, memory and the heuristics'
// opts, and totals below; as JSON a line an item and one of totals.
void PrintPlan(const Model& model, bool json);

}  // namespace beamd

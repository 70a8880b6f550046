// The way back from views to movements: tensor graphs on the wire speak of RESHAPE and PERMUTE, not
// of strides.
#pragma once

#include <optional>
#include <vector>

#include "engine/shape/shape_tracker.h"
#include "engine/uop/op.h"

namespace beamd {

// RESHAPE, EXPAND: the new shape; PERMUTE: the order; FLIP: the axes; PAD, SHRINK: two an axis. As
// the wire's ints_arg.
struct Movement {
  Op op;
  Shape values;
  bool operator==(const Movement&) const = default;
};

// Movements that show of a value of shape `base` what `st` shows of a buffer that holds it
// row-major: the same element, or the same masked place, at every point. Every view of numbers has
// some; the ones that movements made have the plain ones back, but for their order. A view whose
// strides overlap takes copies of the value side by side (EXPAND), as 0.10.0's pool does. nullopt
// where it isn't proven of a symbolic view that some movements are its own.
std::optional<std::vector<Movement>> MovementsOf(const ShapeTracker& st, const Shape& base);

}  // namespace beamd

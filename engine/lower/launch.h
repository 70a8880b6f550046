// Which index of a launch each axis of a GPU's kernel is.
//
// A grid and a work-group have three dimensions with limits; a kernel has as many axes as its opts
// leave. Axes that are next to each other share a dimension where there are more than three, and a
// product that no dimension holds is spread over several.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/shape/sint.h"
#include "engine/uop/uop.h"

namespace beamd {

struct GridPlan {
  // Of each axis, int64, made of SPECIALs "g0".."g2", as few as possible of them divided.
  std::vector<UOp> indices;
  // SPECIALs among them whose extent is that of the launch, but not always that of the kernel; what
  // stands for each in the end, with the kernel's extent. Simplifying must not see these: what holds
  // under the condition of one access would change the extent for all.
  std::vector<UOp> specials, bounded;
};

// A grid for axes of `extents`, the last of which is the fastest: that of dimension x.
// `group_items`: the kernel has no local axes and leaves its groups to us (NOLOCALS). Dimensions
// are then split into groups of work-items "l0".."l2" where something divides them: into groups of
// at most so many, x first, then y and z; with 0 along x alone, into as many as seem best.
// ResourceExhausted: more work-groups than the limits let a launch have.
absl::StatusOr<GridPlan> PlanGrid(UOpGraph& graph, std::span<const SInt> extents,
                                  const TargetCaps& caps,
                                  std::optional<int64_t> group_items = std::nullopt);

// The indices of a work-group's axes, of SPECIALs "l0".."l2", in the same way. ResourceExhausted:
// more work-items than the target's largest local_max. InvalidArgument: a symbolic extent.
absl::StatusOr<std::vector<UOp>> PlanGroup(UOpGraph& graph, std::span<const SInt> extents,
                                           const TargetCaps& caps);

}  // namespace beamd

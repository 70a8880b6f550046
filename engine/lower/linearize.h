// Puts the nodes in execution order: each in the outermost loop that it can stand in.
//
// In:    Expand's graph.
// Out:   the list that program.h describes, with the alignment of each access; slice_range is the
//        outermost loop of the output's axes. Loops that fill shared memory anew each turn get the
//        barrier that keeps their turns apart.
// Order: last.
// Spec:  SEMANTICS "Memory": of one point, loads of a slot come before stores to it.
#pragma once

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/lower/program.h"
#include "engine/uop/uop.h"

namespace beamd {

absl::StatusOr<LinearProgram> Linearize(UOp sink, const TargetCaps& caps);

}  // namespace beamd

// What no opt changes about a kernel: found once, shared by every copy. For engine/kernel only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/kernel.h"
#include "engine/shape/shape_tracker.h"
#include "engine/uop/uop.h"

namespace beamd {

struct Kernel::Facts {
  UOp ast;
  const TargetCaps* caps = nullptr;
  std::vector<UOp> bufs;
  std::vector<UOp> reduceops;
  int full_buf_index = 0;
  int accumulator_bytes = 0;  // of the first reduction
  bool has_variables = false;
  bool parallel_reduces = false;  // two reductions share an axis
  // 0.10.0 lets PADTO touch reduced axes: the first reduction is an ADD of pad-safe work.
  bool first_reduce_pads = false;
  // Of each reduction: an element that is masked everywhere adds nothing to its result.
  std::vector<bool> ignores_masked;

  // Fills `trackers` as Kernel::tracker says. InvalidArgument if the shapes don't fit together.
  static absl::StatusOr<std::shared_ptr<const Facts>> Of(UOp sink, const TargetCaps& caps,
                                                         std::vector<TrackerPtr>& trackers);
};

}  // namespace beamd

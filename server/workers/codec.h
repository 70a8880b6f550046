// Engine values as frame messages and back. Frames come from this build's own processes: what does
// not fit is a broken invariant of theirs, and ends as a failed task where it is used.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/opt.h"
#include "engine/llvm/kernel_image.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "server/workers/frames.pb.h"

namespace beamd {

using WireOpts = google::protobuf::RepeatedPtrField<v1::Opt>;

WireOpts ToWire(const std::vector<Opt>& opts);
std::vector<Opt> FromWire(const WireOpts& opts);

internal::Caps ToFrame(const TargetCaps& caps);
TargetCaps FromFrame(const internal::Caps& caps);

internal::Image ToFrame(const KernelImage& image);
KernelImage FromFrame(const internal::Image& image);

// With the ErrorDetail that a status carries.
internal::Outcome ToFrame(const absl::Status& status);
absl::Status FromFrame(const internal::Outcome& outcome);

}  // namespace beamd

// A kernel whose answer and time are known: what a device's fresh runner runs before anything else.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/workers/frames.pb.h"
#include "server/workers/supervisor.h"

namespace beamd {

// Compiles it for `caps` on a compile worker, and waits for that. The canary fails where the answer
// is not the evaluator's, and where a launch takes many times what it took when the device first
// passed.
absl::StatusOr<Canary> MakeCanary(Supervisor& supervisor, PoolId workers,
                                  const internal::Caps& caps, absl::Duration limit);

}  // namespace beamd

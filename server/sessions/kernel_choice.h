// How the kernels of a client's graph are compiled: the opts that somebody tuned, or the
// heuristics', and machine code that was made before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "proto/beamd/v1/executor.pb.h"
#include "server/auth/caller.h"
#include "server/store/store.h"
#include "server/tuning/tuner.h"
#include "server/workers/codec.h"
#include "server/workers/frames.pb.h"

namespace beamd {

struct KernelChoice {
  WireOpts opts;
  v1::Match match = v1::MATCH_HEURISTIC;
};

// Thread-safe.
class KernelChooser {
 public:
  // What it is given outlives it. `build` is what machine code must not outlive.
  KernelChooser(Tuner& tuner, Store& store, std::string build)
      : tuner_(tuner), store_(store), build_(std::move(build)) {}

  // Looks into the store; may start jobs, as the policy says. NotFound naming the kernel where the
  // policy is LOOKUP_ONLY and nothing is known of it.
  absl::StatusOr<KernelChoice> Choose(const internal::PlanKernel& kernel, const std::string& device,
                                      v1::OptsPolicy policy, v1::MatchPolicy match,
                                      const Caller& caller);

  // Changes whenever more may be known of kernels than before.
  uint64_t news() const { return store_.sequence(); }
  // Whether there is a record of this very kernel and environment.
  bool IsTuned(const internal::PlanKernel& kernel, const std::string& device);

  // The code of the kernel under these opts, if it is there.
  std::optional<internal::Image> FindImage(const internal::PlanKernel& kernel, const WireOpts& opts,
                                           const TuningDevice& device);
  // What can't be written costs another compile later.
  void PutImage(const internal::PlanKernel& kernel, const WireOpts& opts,
                const TuningDevice& device, const internal::Image& image);

 private:
  Digest ImageKey(const internal::PlanKernel& kernel, const WireOpts& opts,
                  const TuningDevice& device) const;

  Tuner& tuner_;
  Store& store_;
  const std::string build_;
};

}  // namespace beamd

// The search's options: defaults, limits, and what of a request goes where.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/target_caps.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

// Every field set, to the default that tuning.proto documents.
v1::SearchOptions DefaultSearchOptions();

// `request` with every field set: what it leaves out comes from `defaults`. InvalidArgument naming
// the field where a value is outside its limits.
absl::StatusOr<v1::SearchOptions> ResolveOptions(const v1::SearchOptions& request,
                                                 const v1::SearchOptions& defaults);

// How long the request lets its search run; infinite where it doesn't say. InvalidArgument where
// that is no time.
absl::StatusOr<absl::Duration> ResolveBudget(const v1::TuneRequest& request);

// What a device can do for a search with these (resolved) options.
TargetCaps SearchedCaps(TargetCaps caps, const v1::SearchOptions& options);

// Of resolved options: those that stand in a key, the others cleared.
v1::SearchOptions KeyOptions(v1::SearchOptions options);

}  // namespace beamd

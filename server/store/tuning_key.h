// What a record is kept under: the kernel, the options that change what is found, and everything
// about the place that changes a time. README.md says which bytes are hashed.
#pragma once

#include <string>
#include <vector>

#include "engine/base/hash.h"
#include "engine/kernel/opt.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

// `search` has every key option set (server/tuning's ResolveOptions).
Digest HashTuningKey(const Digest& kernel, const v1::SearchOptions& search,
                     const v1::Environment& environment);

// Of a candidate: a kernel, where it was timed, its opts, and the options that change what those
// make.
Digest HashTimingKey(const Digest& kernel, const v1::SearchOptions& search,
                     const v1::Environment& environment, const std::vector<Opt>& opts);

}  // namespace beamd

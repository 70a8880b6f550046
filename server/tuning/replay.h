// One candidate, once more, with everything visible.
#pragma once

#include "engine/search/pipeline.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

// Compiles, times and checks `response.opts`, and says in `response` what happened. Blocks.
void ReplayCandidate(CandidatePipeline& pipeline, v1::ReplayResponse& response);

}  // namespace beamd

// Counts what comes out of a pipeline.
#pragma once

#include <memory>

#include "engine/search/pipeline.h"
#include "server/metrics/metrics.h"

namespace beamd {

// `pipeline`'s candidates, counted by outcome and reason, compiles timed. `metrics` must outlive it.
std::unique_ptr<CandidatePipeline> Measured(std::unique_ptr<CandidatePipeline> pipeline,
                                            Metrics& metrics);

}  // namespace beamd

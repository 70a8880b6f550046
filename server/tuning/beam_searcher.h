// The tuner's search: engine/search's beam with what this daemon remembers, told as progress and as
// a record.
#pragma once

#include "absl/status/statusor.h"
#include "engine/search/pipeline.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/store.h"
#include "server/tuning/capture.h"
#include "server/tuning/tuner.h"

namespace beamd {

// Thread-safe: each search has its own state.
class BeamSearcher {
 public:
  // `capture` may be null. Both must outlive it.
  BeamSearcher(Store& store, CaptureFile* capture) : store_(store), capture_(capture) {}

  // Fills in opts, times, verification and counts. Times and losses of candidates go to the store.
  absl::StatusOr<v1::Record> Search(const SearchJob& job, CandidatePipeline& pipeline) const;

 private:
  Store& store_;
  CaptureFile* const capture_;
};

}  // namespace beamd

// What ended a worker or a runner in a kernel's earlier searches, so that no later one tries it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "engine/base/hash.h"
#include "engine/kernel/opt.h"
#include "engine/search/beam.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/store.h"

namespace beamd {

// Of one job. Not thread-safe: its search owns it. The store outlives it; what the store doesn't
// take costs one more try.
class FailureMemory {
 public:
  struct Options {
    Digest kernel;
    v1::SearchOptions search;
    v1::Environment environment;
    absl::Duration compile_limit;
    // A fresh search: nothing holds, but what is found is remembered.
    bool refresh = false;
    // Never held against: what a search starts from, and is checked against, is tried each time.
    std::vector<std::vector<Opt>> seeds;
  };
  FailureMemory(Store& store, Options options) : store_(store), options_(std::move(options)) {}

  // How the candidate of these opts is lost for certain, going by earlier jobs; kNone: it is to be
  // tried. A limit that was overrun once may have been the machine's fault, so two jobs must say so.
  Failure Recall(const std::vector<Opt>& opts);
  // Remembers what became of one that was tried: also that it went well this time.
  void Tell(const CandidateReport& candidate);

 private:
  Digest KeyOf(const std::vector<Opt>& opts) const;

  Store& store_;
  const Options options_;
  struct Before {
    Failure failure = Failure::kNone;
    uint32_t jobs = 0;   // that found it
    bool holds = false;  // it wasn't tried: what is told of it is what was recalled
  };
  absl::flat_hash_map<std::string, Before> before_;  // of those asked for, by ToString of the opts
};

}  // namespace beamd

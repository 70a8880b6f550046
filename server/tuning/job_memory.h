// What a job has tried, kept in the store as it goes: a daemon that takes the job up again doesn't
// try it twice, and people can ask what was tried.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/kernel/opt.h"
#include "engine/search/beam.h"
#include "server/store/store.h"

namespace beamd {

// Not thread-safe: one search owns it. The store outlives it.
class JobMemory {
 public:
  JobMemory(Store& store, std::string job) : store_(store), job_(std::move(job)) {}

  // What an earlier daemon left of this job.
  absl::Status Load();
  size_t size() const { return known_.size(); }
  // How long the job had been searched for when its last candidate ended.
  absl::Duration spent() const { return spent_; }
  std::optional<Recalled> Find(const std::vector<Opt>& opts) const;

  // Lost where the store is: one more measurement.
  void Add(const CandidateReport& candidate, int round, absl::Duration elapsed);

 private:
  Store& store_;
  const std::string job_;
  uint64_t last_number_ = 0;
  absl::Duration spent_;
  std::map<std::string, Recalled> known_;  // by ToString of the opts
};

}  // namespace beamd

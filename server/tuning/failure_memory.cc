#include "server/tuning/failure_memory.h"

#include <algorithm>

#include "server/store/tuning_key.h"
#include "server/tuning/remembering_pipeline.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

// Jobs that must have found the same before it holds.
uint32_t JobsWanted(Failure failure) {
  const bool limit = failure == Failure::kCompileTimeout || failure == Failure::kRunTimeout;
  return limit ? 2 : 1;
}

}  // namespace

Digest FailureMemory::KeyOf(const std::vector<Opt>& opts) const {
  return HashTimingKey(options_.kernel, options_.search, options_.environment, opts);
}

Failure FailureMemory::Recall(const std::vector<Opt>& opts) {
  const auto timing = store_.FindTiming(KeyOf(opts));
  if (!timing.ok() || !timing->has_value()) return Failure::kNone;
  const auto failure = static_cast<Failure>((*timing)->failure());
  const uint32_t jobs = std::max((*timing)->jobs(), 1U);
  const auto& seeds = options_.seeds;
  const bool asked_anew = options_.refresh || jobs < JobsWanted(failure) ||
                          std::find(seeds.begin(), seeds.end(), opts) != seeds.end();
  const Failure holds = asked_anew
                            ? Failure::kNone
                            : StillHolds(failure, absl::Nanoseconds((*timing)->compile_limit_ns()),
                                         options_.compile_limit);
  before_[ToString(opts)] = {failure, jobs, holds != Failure::kNone};
  return holds;
}

void FailureMemory::Tell(const CandidateReport& candidate) {
  const auto before = before_.find(ToString(candidate.opts));
  const bool failed_before = before != before_.end();
  if (failed_before && before->second.holds) return;
  if (candidate.failure == Failure::kNone && failed_before) {
    store_.DropTiming(KeyOf(candidate.opts)).IgnoreError();
  }
  if (!WorthRemembering(candidate.failure)) return;
  const bool again = failed_before && before->second.failure == candidate.failure;
  internal::StoredTiming timing;
  timing.set_failure(static_cast<uint32_t>(candidate.failure));
  timing.set_compile_limit_ns(absl::ToInt64Nanoseconds(options_.compile_limit));
  timing.set_jobs(again ? before->second.jobs + 1 : 1);
  *timing.mutable_opts() = ToWire(candidate.opts);
  store_.PutTiming(KeyOf(candidate.opts), timing).IgnoreError();
}

}  // namespace beamd

#include "server/tuning/job_memory.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/workers/codec.h"

namespace beamd {

absl::Status JobMemory::Load() {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<Store::Candidate> candidates, store_.CandidatesOf(job_));
  for (const auto& [number, from] : candidates) {
    last_number_ = number;
    spent_ = std::max(spent_, absl::Seconds(from.elapsed_s()));
    if (from.failure() >= kFailureCount) continue;
    Recalled to;
    to.failure = static_cast<Failure>(from.failure());
    to.seconds = from.best_s();
    to.uops = from.uops();
    to.compute_ops = from.compute_ops();
    Digest code;
    if (from.code().size() == code.bytes.size()) {
      std::copy(from.code().begin(), from.code().end(), code.bytes.begin());
      to.code = code;
    }
    // What has a time has code; a line without is no use.
    if (to.failure == Failure::kNone && !(to.code && to.seconds > 0)) continue;
    // The first word counts, though a finalist may have lost after it was timed: the rounds that it
    // was timed in must go the same way again.
    known_.emplace(ToString(FromWire(from.opts())), to);
  }
  return absl::OkStatus();
}

std::optional<Recalled> JobMemory::Find(const std::vector<Opt>& opts) const {
  const auto it = known_.find(ToString(opts));
  if (it == known_.end()) return std::nullopt;
  return it->second;
}

void JobMemory::Add(const CandidateReport& candidate, int round, absl::Duration elapsed) {
  // These say nothing of the candidate.
  if (candidate.failure == Failure::kCancelled || candidate.failure == Failure::kUnavailable)
    return;
  internal::StoredCandidate to;
  *to.mutable_opts() = ToWire(candidate.opts);
  to.set_failure(static_cast<uint32_t>(candidate.failure));
  to.set_detail(candidate.detail);
  to.set_best_s(candidate.seconds);
  to.set_uops(candidate.uops);
  to.set_compute_ops(candidate.compute_ops);
  if (candidate.code) {
    to.set_code(std::string(candidate.code->bytes.begin(), candidate.code->bytes.end()));
  }
  to.set_compile_ns(absl::ToInt64Nanoseconds(candidate.compile_time));
  to.set_elapsed_s(absl::ToDoubleSeconds(elapsed));
  to.set_round(static_cast<uint32_t>(round));
  store_.PutCandidate(job_, ++last_number_, to).IgnoreError();
}

}  // namespace beamd

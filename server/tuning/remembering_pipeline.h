// A pipeline that does not try again what ended a worker or a runner before.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "engine/search/pipeline.h"

namespace beamd {

// Whether a candidate that was lost to this is lost wherever its code is the same: it crashed,
// spun, swelled while it was compiled or was wrong. What a run holds is the kernel's buffers, which
// every candidate shares: it was the limit that was too small.
bool WorthRemembering(Failure failure);

// What a loss under `limit_then` says of a compile under `limit_now`: one that overran a shorter
// limit may fit a longer.
Failure StillHolds(Failure failure, absl::Duration limit_then, absl::Duration limit_now);

class RememberingPipeline final : public CandidatePipeline {
 public:
  // What became of these opts the last time; kNone: nothing is known. `inner` must outlive it.
  using Recall = std::function<Failure(const std::vector<Opt>&)>;
  RememberingPipeline(CandidatePipeline& inner, Recall recall)
      : inner_(inner), recall_(std::move(recall)) {}

  void Submit(CompileTask task) override;
  void Submit(TimeTask task) override { inner_.Submit(std::move(task)); }
  void Submit(VerifyTask task) override { inner_.Submit(std::move(task)); }
  int compile_parallelism() const override { return inner_.compile_parallelism(); }
  std::optional<Completion> Next(absl::Time deadline) override;
  bool cancelled() const override { return inner_.cancelled(); }

 private:
  CandidatePipeline& inner_;
  const Recall recall_;
  std::deque<Completion> recalled_;
};

}  // namespace beamd

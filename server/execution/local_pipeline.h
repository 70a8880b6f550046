// The search's view of this process: candidates are compiled and timed where they are submitted. One
// that crashes or never ends takes the process with it, so this is for tools and tests; the daemon
// has server/workers/process_pipeline.h.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "devices/device.h"
#include "engine/kernel/kernel.h"
#include "engine/llvm/compiler.h"
#include "engine/search/pipeline.h"
#include "server/workers/candidate_runner.h"

namespace beamd {

// Not thread-safe. What it is given outlives it.
class LocalPipeline final : public CandidatePipeline {
 public:
  // BEAM_UOPS_MAX of the seeds.
  static constexpr int64_t kMaxUops = 3000;

  // `kernel` is fresh: no opt is applied to it.
  LocalPipeline(const Kernel& kernel, KernelCompiler& compiler, Device& device)
      : kernel_(kernel), compiler_(compiler), runner_(device) {}

  void Submit(CompileTask task) override;
  void Submit(TimeTask task) override;
  void Submit(VerifyTask task) override;
  int compile_parallelism() const override { return 1; }
  std::optional<Completion> Next(absl::Time deadline) override;
  bool cancelled() const override { return false; }

 private:
  const Kernel& kernel_;
  KernelCompiler& compiler_;
  CandidateRunner runner_;
  std::deque<Completion> done_;
};

}  // namespace beamd

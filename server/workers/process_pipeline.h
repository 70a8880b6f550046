// The search's CandidatePipeline over compile workers and a device's runner.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "engine/search/pipeline.h"
#include "server/workers/cancel.h"
#include "server/workers/fair_share.h"
#include "server/workers/frames.pb.h"
#include "server/workers/supervisor.h"

namespace beamd {

struct PipelineOptions {
  PoolId workers = 0;
  PoolId runner = 0;
  int compile_parallelism = 1;
  absl::Duration compile_limit = absl::Seconds(10);
  int64_t max_uops = 3000;  // 0: no limit
  // Of one timing batch that nothing cuts off, and of one check.
  absl::Duration run_limit = absl::Seconds(60);
  std::string trace;  // trace id of the request, carried by every frame
  Claim claim;
  // Where it is more than the claim's, it counts for what is submitted from then on. May be null;
  // outlives the pipeline.
  const std::atomic<Haste>* haste = nullptr;
  // Told how long each run and check used the device, on the supervisor's thread, also of what the
  // pipeline left behind when it ended.
  std::function<void(absl::Duration)> charge = [](absl::Duration) {};
};

class ProcessPipeline final : public CandidatePipeline {
 public:
  // `context` is the kernel, sent once to each process that works on it. `supervisor` and `token`
  // must outlive the pipeline.
  ProcessPipeline(Supervisor& supervisor, std::shared_ptr<const internal::AddContext> context,
                  PipelineOptions options, CancelToken& token);
  // Cancels what is still out.
  ~ProcessPipeline() override;

  void Submit(CompileTask task) override;
  void Submit(TimeTask task) override;
  void Submit(VerifyTask task) override;
  int compile_parallelism() const override { return options_.compile_parallelism; }
  std::optional<Completion> Next(absl::Time deadline) override;
  bool cancelled() const override { return token_.cancelled(); }

 private:
  struct Inbox;
  PoolTask MakeTask(absl::Duration limit) const;

  Supervisor& supervisor_;
  const std::shared_ptr<const internal::AddContext> context_;
  const PipelineOptions options_;
  CancelToken& token_;
  const uint64_t owner_;
  // Outlives the pipeline while a task that it submitted is out.
  const std::shared_ptr<Inbox> inbox_;
  int64_t callback_ = 0;
};

}  // namespace beamd

#include "server/tuning/measured_pipeline.h"

#include <optional>
#include <utility>
#include <variant>

namespace beamd {
namespace {

class MeasuredPipeline final : public CandidatePipeline {
 public:
  MeasuredPipeline(std::unique_ptr<CandidatePipeline> pipeline, Metrics& metrics)
      : pipeline_(std::move(pipeline)), metrics_(metrics) {}

  void Submit(CompileTask task) override { pipeline_->Submit(std::move(task)); }
  void Submit(TimeTask task) override { pipeline_->Submit(std::move(task)); }
  void Submit(VerifyTask task) override { pipeline_->Submit(std::move(task)); }
  int compile_parallelism() const override { return pipeline_->compile_parallelism(); }
  bool cancelled() const override { return pipeline_->cancelled(); }

  std::optional<Completion> Next(absl::Time deadline) override {
    std::optional<Completion> completion = pipeline_->Next(deadline);
    if (!completion) return completion;
    if (const auto* done = std::get_if<CompileDone>(&*completion)) {
      Count("compiled", done->failure);
      if (done->failure == Failure::kNone) metrics_.Compiled(done->compile_time);
    } else if (const auto* done = std::get_if<TimeDone>(&*completion)) {
      Count("timed", done->failure);
    } else if (const auto* done = std::get_if<VerifyDone>(&*completion)) {
      Count("verified", done->failure);
    }
    return completion;
  }

 private:
  void Count(absl::string_view outcome, Failure failure) {
    if (failure == Failure::kNone) {
      metrics_.CandidateEnded(outcome, "");
    } else {
      metrics_.CandidateEnded("failed", Name(failure));
    }
  }

  const std::unique_ptr<CandidatePipeline> pipeline_;
  Metrics& metrics_;
};

}  // namespace

std::unique_ptr<CandidatePipeline> Measured(std::unique_ptr<CandidatePipeline> pipeline,
                                            Metrics& metrics) {
  return std::make_unique<MeasuredPipeline>(std::move(pipeline), metrics);
}

}  // namespace beamd

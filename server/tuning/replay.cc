#include "server/tuning/replay.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

constexpr int kRounds = 10;

// Nothing else is out, so what comes next is the answer.
template <typename Done, typename Task>
Done Run(CandidatePipeline& pipeline, Task task) {
  task.id = 1;
  pipeline.Submit(std::move(task));
  std::optional<Completion> end = pipeline.Next(absl::InfiniteFuture());
  if (end && std::holds_alternative<Done>(*end)) return std::get<Done>(*std::move(end));
  return Done{.failure = Failure::kCancelled};
}

}  // namespace

void ReplayCandidate(CandidatePipeline& pipeline, v1::ReplayResponse& response) {
  const auto lost = [&](const char* stage, Failure failure, const std::string& detail) {
    response.set_failure(std::string(Name(failure)));
    response.set_stage(stage);
    response.set_detail(detail);
  };
  const auto compiled = Run<CompileDone>(pipeline, CompileTask{.opts = FromWire(response.opts())});
  response.set_compile_s(absl::ToDoubleSeconds(compiled.compile_time));
  if (compiled.failure != Failure::kNone) {
    return lost("compile", compiled.failure, compiled.detail);
  }
  response.set_uops(compiled.image->uop_count);
  response.set_compute_ops(compiled.image->compute_ops);
  response.set_code_bytes(compiled.image->code.size());
  const auto unoptimised = Run<CompileDone>(pipeline, CompileTask{});

  TimeTask time{.images = {compiled.image}, .rounds = kRounds};
  auto timed = Run<TimeDone>(pipeline, time);
  if (timed.failure != Failure::kNone) return lost("time", timed.failure, timed.detail);
  response.mutable_samples()->Add(timed.seconds[0].begin(), timed.seconds[0].end());
  if (unoptimised.image != nullptr) {
    time.images = {unoptimised.image};
    timed = Run<TimeDone>(pipeline, time);
    if (timed.failure == Failure::kNone) {
      response.mutable_unoptimised_samples()->Add(timed.seconds[0].begin(), timed.seconds[0].end());
    }
  }
  const auto verified =
      Run<VerifyDone>(pipeline, VerifyTask{.image = compiled.image, .oracle = unoptimised.image});
  if (verified.failure != Failure::kNone) return lost("verify", verified.failure, verified.detail);
  response.mutable_verification()->set_verified(!verified.method.empty());
  response.mutable_verification()->set_method(verified.method);
  response.mutable_verification()->set_checked(static_cast<uint64_t>(verified.checked));
  response.mutable_verification()->set_undecided(static_cast<uint64_t>(verified.undecided));
  lost("", Failure::kNone, verified.detail);
}

}  // namespace beamd

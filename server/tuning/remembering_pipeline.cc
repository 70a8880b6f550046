#include "server/tuning/remembering_pipeline.h"

#include <utility>

namespace beamd {

bool WorthRemembering(Failure failure) {
  switch (failure) {
    case Failure::kCompileTimeout:
    case Failure::kCompileCrash:
    case Failure::kCompileMemory:
    case Failure::kRunTimeout:
    case Failure::kRunCrash:
    case Failure::kWrongAnswer:
      return true;
    default:
      return false;
  }
}

Failure StillHolds(Failure failure, absl::Duration limit_then, absl::Duration limit_now) {
  const bool had_less = failure == Failure::kCompileTimeout && limit_then < limit_now;
  return had_less ? Failure::kNone : failure;
}

void RememberingPipeline::Submit(CompileTask task) {
  const Failure failure = recall_(task.opts);
  if (!WorthRemembering(failure)) return inner_.Submit(std::move(task));
  recalled_.emplace_back(
      CompileDone{.id = task.id, .failure = failure, .detail = "as an earlier search found"});
}

std::optional<Completion> RememberingPipeline::Next(absl::Time deadline) {
  if (recalled_.empty() || inner_.cancelled()) return inner_.Next(deadline);
  Completion completion = std::move(recalled_.front());
  recalled_.pop_front();
  return completion;
}

}  // namespace beamd

#include "server/execution/local_pipeline.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "devices/measure.h"

namespace beamd {
namespace {

// Of the data that answers are checked on.
constexpr uint64_t kSeed = 1;

}  // namespace

void LocalPipeline::Submit(CompileTask task) {
  const absl::Time start = absl::Now();
  CompileDone done;
  done.id = task.id;
  Kernel kernel = kernel_;
  if (const absl::Status status = kernel.ApplyAll(task.opts); !status.ok()) {
    done.failure = Failure::kIllegalOpt;
    done.detail = std::string(status.message());
  } else {
    CompileOptions options;
    options.max_uops = kMaxUops;
    absl::StatusOr<CompileResult> result = compiler_.Compile(kernel, options);
    if (result.ok()) {
      done.image = std::make_shared<const KernelImage>(std::move(result->image));
    } else {
      done.failure = CompileFailure(result.status());
      done.detail = std::string(result.status().message());
    }
  }
  done.compile_time = absl::Now() - start;
  done_.emplace_back(std::move(done));
}

void LocalPipeline::Submit(TimeTask task) {
  std::vector<const KernelImage*> images;
  images.reserve(task.images.size());
  for (const std::shared_ptr<const KernelImage>& image : task.images) images.push_back(image.get());
  MeasureOptions options;
  options.warmups = task.warmups;
  options.rounds = task.rounds;
  options.cut_off_s = absl::ToDoubleSeconds(task.cut_off);
  options.partial = task.max_global_size > 0;
  options.clear_cache = task.clear_cache;
  TimeDone done = runner_.Time(images, options);
  done.id = task.id;
  done_.emplace_back(std::move(done));
}

void LocalPipeline::Submit(VerifyTask task) {
  VerifyDone done = runner_.Verify(kernel_.ast(), {.seed = kSeed}, *task.image, task.oracle.get());
  done.id = task.id;
  done_.emplace_back(std::move(done));
}

std::optional<Completion> LocalPipeline::Next(absl::Time) {
  if (done_.empty()) return std::nullopt;
  Completion next = std::move(done_.front());
  done_.pop_front();
  return next;
}

}  // namespace beamd

#include "server/workers/process_pipeline.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/steady_clock.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

// What a timing batch gets besides its runs: buffers are made and filled before the first.
constexpr absl::Duration kRunSetUp = absl::Seconds(5);
// A run that can be cut off is stopped between slices; one slice may be this many cut-offs long.
constexpr double kCutOffSlack = 20;

Failure CompileFailure(TaskOutcome outcome) {
  switch (outcome) {
    case TaskOutcome::kDone:
      return Failure::kNone;
    case TaskOutcome::kTimeout:
      return Failure::kCompileTimeout;
    case TaskOutcome::kMemory:
      return Failure::kCompileMemory;
    case TaskOutcome::kCancelled:
      return Failure::kCancelled;
    case TaskOutcome::kUnavailable:
      return Failure::kUnavailable;
    case TaskOutcome::kCrash:
    case TaskOutcome::kGarbage:
      return Failure::kCompileCrash;
  }
  return Failure::kCompileCrash;
}

Failure RunFailure(TaskOutcome outcome) {
  switch (outcome) {
    case TaskOutcome::kDone:
      return Failure::kNone;
    case TaskOutcome::kTimeout:
      return Failure::kRunTimeout;
    case TaskOutcome::kMemory:
      return Failure::kRunMemory;
    case TaskOutcome::kCancelled:
      return Failure::kCancelled;
    case TaskOutcome::kUnavailable:
      return Failure::kUnavailable;
    case TaskOutcome::kCrash:
    case TaskOutcome::kGarbage:
      return Failure::kRunCrash;
  }
  return Failure::kRunCrash;
}

// `failure` as a child sent it.
Failure Checked(uint32_t failure, Failure otherwise) {
  return failure < kFailureCount ? static_cast<Failure>(failure) : otherwise;
}

CompileDone ToCompileDone(uint64_t id, const TaskEnd& end) {
  CompileDone done{.id = id, .failure = CompileFailure(end.outcome), .detail = end.detail};
  done.compile_time = end.ran;
  if (done.failure != Failure::kNone) return done;
  const internal::CompileReply& reply = end.reply.compiled();
  done.failure = Checked(reply.failure(), Failure::kCompileError);
  done.detail = reply.detail();
  done.compile_time = absl::Nanoseconds(reply.compile_ns());
  if (done.failure == Failure::kNone) {
    done.image = std::make_shared<const KernelImage>(FromFrame(reply.image()));
  }
  return done;
}

TimeDone ToTimeDone(uint64_t id, int images, const TaskEnd& end) {
  TimeDone done{.id = id, .failure = RunFailure(end.outcome), .detail = end.detail};
  if (done.failure != Failure::kNone) {
    if (images == 1) done.failed_image = 0;
    return done;
  }
  const internal::TimeReply& reply = end.reply.timed();
  done.failure = Checked(reply.failure(), Failure::kRunCrash);
  done.detail = reply.detail();
  done.failed_image = reply.failed_image();
  done.cut_off = reply.cut_off();
  done.spoiled = reply.spoiled();
  for (const internal::TimeReply::Series& series : reply.images()) {
    done.seconds.emplace_back(series.seconds().begin(), series.seconds().end());
  }
  // Whatever the runner takes for a time.
  const auto is_none = [](double s) { return !std::isnormal(s) || s <= 0; };
  const bool none = std::any_of(done.seconds.begin(), done.seconds.end(), [&](const auto& series) {
    return std::any_of(series.begin(), series.end(), is_none);
  });
  if (done.failure == Failure::kNone && (none || static_cast<int>(done.seconds.size()) != images)) {
    done.failure = Failure::kInvalidTime;
    done.failed_image = -1;
    done.detail = "the runner told times that are none";
    done.seconds.clear();
  }
  return done;
}

VerifyDone ToVerifyDone(uint64_t id, const TaskEnd& end) {
  VerifyDone done{.id = id, .failure = RunFailure(end.outcome), .detail = end.detail};
  if (done.failure != Failure::kNone) return done;
  const internal::VerifyReply& reply = end.reply.verified();
  done.failure = Checked(reply.failure(), Failure::kRunCrash);
  done.detail = reply.detail();
  done.method = reply.method();
  done.checked = reply.checked();
  done.undecided = reply.undecided();
  return done;
}

}  // namespace

struct ProcessPipeline::Inbox {
  void Put(Completion completion) {
    MutexLock lock(mutex);
    completions.push_back(std::move(completion));
    changed.NotifyOne();
  }

  Mutex mutex;
  CondVar changed;
  std::deque<Completion> completions BEAMD_GUARDED_BY(mutex);
  bool cancelled BEAMD_GUARDED_BY(mutex) = false;
};

ProcessPipeline::ProcessPipeline(Supervisor& supervisor,
                                 std::shared_ptr<const internal::AddContext> context,
                                 PipelineOptions options, CancelToken& token)
    : supervisor_(supervisor),
      context_(std::move(context)),
      options_(std::move(options)),
      token_(token),
      owner_(supervisor.NewId()),
      inbox_(std::make_shared<Inbox>()) {
  callback_ = token_.OnCancel([&supervisor = supervisor_, owner = owner_, inbox = inbox_] {
    {
      MutexLock lock(inbox->mutex);
      inbox->cancelled = true;
      inbox->changed.NotifyOne();
    }
    // Second: what it ends must not be taken for an answer.
    supervisor.Cancel(owner);
  });
}

ProcessPipeline::~ProcessPipeline() {
  token_.Remove(callback_);
  supervisor_.Cancel(owner_);
  supervisor_.DropContext(context_->id());
}

PoolTask ProcessPipeline::MakeTask(absl::Duration limit) const {
  PoolTask task{.owner = owner_, .claim = options_.claim, .context = context_, .limit = limit};
  if (options_.haste != nullptr) {
    task.claim.haste = std::max(task.claim.haste, options_.haste->load());
  }
  task.request.set_trace(options_.trace);
  return task;
}

void ProcessPipeline::Submit(CompileTask task) {
  PoolTask pool_task = MakeTask(options_.compile_limit);
  internal::CompileRequest& request = *pool_task.request.mutable_compile();
  request.set_context(context_->id());
  *request.mutable_opts() = ToWire(task.opts);
  request.set_max_uops(options_.max_uops);
  pool_task.done = [inbox = inbox_, id = task.id](const TaskEnd& end) {
    inbox->Put(ToCompileDone(id, end));
  };
  supervisor_.Submit(options_.workers, std::move(pool_task));
}

void ProcessPipeline::Submit(TimeTask task) {
  const int images = static_cast<int>(task.images.size());
  absl::Duration limit = options_.run_limit;
  if (task.cut_off < absl::InfiniteDuration()) {
    const double runs = images * static_cast<double>(task.warmups + task.rounds);
    limit = std::min(limit, kRunSetUp + task.cut_off * (kCutOffSlack * runs));
  }
  PoolTask pool_task = MakeTask(limit);
  internal::TimeRequest& request = *pool_task.request.mutable_time();
  for (const auto& image : task.images) *request.add_images() = ToFrame(*image);
  request.set_warmups(task.warmups);
  request.set_rounds(task.rounds);
  if (task.cut_off < absl::InfiniteDuration()) {
    request.set_cut_off_s(absl::ToDoubleSeconds(task.cut_off));
  }
  request.set_max_global_size(task.max_global_size);
  request.set_clear_cache(task.clear_cache);
  request.set_bound_s(absl::ToDoubleSeconds(task.bound));
  pool_task.done = [inbox = inbox_, charge = options_.charge, id = task.id,
                    images](const TaskEnd& end) {
    charge(end.ran);
    inbox->Put(ToTimeDone(id, images, end));
  };
  supervisor_.Submit(options_.runner, std::move(pool_task));
}

void ProcessPipeline::Submit(VerifyTask task) {
  PoolTask pool_task = MakeTask(options_.run_limit);
  internal::VerifyRequest& request = *pool_task.request.mutable_verify();
  request.set_context(context_->id());
  *request.mutable_image() = ToFrame(*task.image);
  if (task.oracle != nullptr) *request.mutable_oracle() = ToFrame(*task.oracle);
  pool_task.done = [inbox = inbox_, charge = options_.charge, id = task.id](const TaskEnd& end) {
    charge(end.ran);
    inbox->Put(ToVerifyDone(id, end));
  };
  supervisor_.Submit(options_.runner, std::move(pool_task));
}

std::optional<Completion> ProcessPipeline::Next(absl::Time deadline) {
  MutexLock lock(inbox_->mutex);
  while (inbox_->completions.empty()) {
    if (inbox_->cancelled || SteadyNow() >= deadline) return std::nullopt;
    inbox_->changed.WaitUntil(inbox_->mutex, deadline);
  }
  if (inbox_->cancelled) return std::nullopt;
  Completion completion = std::move(inbox_->completions.front());
  inbox_->completions.pop_front();
  return completion;
}

}  // namespace beamd

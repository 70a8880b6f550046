#include "server/tuning/tuner.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "server/store/tuning_key.h"
#include "server/tuning/options.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

using ::google::protobuf::util::TimeUtil;

google::protobuf::Timestamp Now() { return TimeUtil::GetCurrentTime(); }

// Sorts by time; the random half keeps daemons on one clock apart.
std::string NewJobId() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return absl::StrFormat("%012x%08x", absl::ToUnixMillis(absl::Now()),
                         static_cast<uint32_t>(random()));
}

bool Fits(const TuningDevice& device, const v1::DeviceSelector& selector) {
  return (selector.id().empty() || selector.id() == device.id) &&
         (selector.kind().empty() || selector.kind() == device.environment.kind()) &&
         (selector.arch().empty() || selector.arch() == device.environment.arch());
}

absl::Status StopStatus(StopReason reason) {
  switch (reason) {
    case StopReason::kDeadline:
      return absl::DeadlineExceededError("the deadline passed before there was an answer");
    case StopReason::kShutdown:
      return absl::UnavailableError("the server is shutting down");
    default:
      return absl::CancelledError("cancelled");
  }
}

internal::StoredJob::State EndState(const absl::StatusOr<v1::TuneResult>& result,
                                    StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return result.ok() ? internal::StoredJob::FINISHED : internal::StoredJob::FAILED;
    case StopReason::kShutdown:
      return internal::StoredJob::INTERRUPTED;
    case StopReason::kCancelled:
    case StopReason::kDeadline:
      return internal::StoredJob::CANCELLED;
  }
  return internal::StoredJob::FAILED;
}

}  // namespace

// A request, understood.
struct Tuner::Plan {
  ParsedKernel kernel;
  const TuningDevice* device = nullptr;
  v1::SearchOptions options;
  MatchQuery query;  // but for what points into the plan: Match adds it
};

// A job and what it takes to run it.
struct Tuner::Task {
  std::shared_ptr<Job> job;
  Plan plan;
  internal::StoredJob stored;
  absl::Time accepted;
};

Tuner::Tuner(Store& store, std::vector<TuningDevice> devices, TunerParts parts,
             TunerOptions options)
    : store_(store),
      devices_(std::move(devices)),
      parts_(std::move(parts)),
      options_(std::move(options)) {
  for (int i = 0; i < options_.concurrent_jobs; ++i) threads_.emplace_back([this] { Work(); });
}

Tuner::~Tuner() {
  Drain(absl::InfinitePast());
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status Tuner::MarkInterruptedJobs() {
  BEAMD_ASSIGN_OR_RETURN(std::vector<internal::StoredJob> jobs, store_.UnfinishedJobs());
  for (internal::StoredJob& job : jobs) {
    spdlog::warn("job={} interrupted: the daemon before this one ended first", job.id());
    job.set_state(internal::StoredJob::INTERRUPTED);
    *job.mutable_ended() = Now();
    BEAMD_RETURN_IF_ERROR(store_.PutJob(job));
  }
  return absl::OkStatus();
}

absl::StatusOr<const TuningDevice*> Tuner::SelectDevice(const v1::DeviceSelector& selector) const {
  for (const TuningDevice& device : devices_) {
    if (Fits(device, selector)) return &device;
  }
  return InvalidArgument(absl::StrCat("no device here fits ", selector.ShortDebugString()),
                         {.reason = "NO_SUCH_DEVICE", .field = "device"});
}

absl::StatusOr<Tuner::Plan> Tuner::MakePlan(const v1::Graph& graph, const v1::SearchOptions& search,
                                            const v1::DeviceSelector& selector,
                                            v1::MatchPolicy policy) const {
  Plan plan;
  BEAMD_ASSIGN_OR_RETURN(plan.options, ResolveOptions(search, options_.defaults));
  BEAMD_ASSIGN_OR_RETURN(plan.device, SelectDevice(selector));
  BEAMD_ASSIGN_OR_RETURN(plan.kernel, parts_.parse(graph));
  plan.query.kernel = plan.kernel.hash;
  plan.query.search = KeyOptions(plan.options);
  plan.query.environment = plan.device->environment;
  plan.query.policy = policy;
  plan.query.key = HashTuningKey(plan.query.kernel, plan.query.search, plan.query.environment);
  return plan;
}

absl::StatusOr<MatchAnswer> Tuner::Match(const Plan& plan) const {
  MatchQuery query = plan.query;
  query.graph = &plan.kernel.canonical;
  query.applies = [&](const std::vector<Opt>& opts) {
    return parts_.applies(plan.kernel, plan.device->caps, opts);
  };
  return FindMatch(store_, query);
}

absl::StatusOr<v1::LookupAnswer> Tuner::Lookup(const v1::LookupQuery& query) {
  BEAMD_ASSIGN_OR_RETURN(const Plan plan,
                         MakePlan(query.graph(), query.search(), query.device(), query.match()));
  BEAMD_ASSIGN_OR_RETURN(MatchAnswer match, Match(plan));
  v1::LookupAnswer answer;
  answer.set_key(plan.query.key.Hex());
  if (auto* hit = std::get_if<v1::Hit>(&match)) {
    *answer.mutable_hit() = std::move(*hit);
  } else {
    answer.mutable_miss()->set_reason(std::get<v1::MissReason>(match));
  }
  return answer;
}

absl::StatusOr<Tuner::Answer> Tuner::Tune(const v1::TuneRequest& request, const std::string& trace,
                                          std::function<void()> changed) {
  BEAMD_RETURN_IF_ERROR(ResolveBudget(request).status());
  BEAMD_ASSIGN_OR_RETURN(
      Plan plan, MakePlan(request.graph(), request.search(), request.device(), request.match()));
  Answer answer;
  answer.accepted.set_key(plan.query.key.Hex());
  answer.accepted.set_kernel_hash(plan.kernel.hash.Hex());
  answer.accepted.set_device(plan.device->id);
  answer.accepted.set_trace_id(trace);
  answer.accepted.set_miss(v1::MISS_REASON_REFRESH);

  // Held over looking and joining: a job stores its record before it leaves in_flight_, so one of
  // the two always finds it.
  MutexLock lock(mutex_);
  if (request.mode() != v1::TUNE_MODE_REFRESH) {
    BEAMD_ASSIGN_OR_RETURN(MatchAnswer match, Match(plan));
    if (auto* hit = std::get_if<v1::Hit>(&match)) {
      answer.accepted.clear_miss();
      answer.result.emplace();
      *answer.result->mutable_record() = std::move(*hit->mutable_record());
      answer.result->set_match(hit->match());
      answer.result->set_persisted(true);
      answer.result->set_trace_id(trace);
      return answer;
    }
    answer.accepted.set_miss(std::get<v1::MissReason>(match));
  }
  if (request.mode() == v1::TUNE_MODE_LOOKUP_ONLY) {
    return WithDetail(absl::NotFoundError("no stored answer, and the request forbids a search"),
                      {.reason = v1::MissReason_Name(answer.accepted.miss()), .field = "mode"});
  }
  if (const auto running = in_flight_.find(answer.accepted.key()); running != in_flight_.end()) {
    answer.watch = running->second->Watch(changed);
    answer.accepted.set_joined(answer.watch != nullptr);
  }
  if (answer.watch == nullptr) {
    auto job = std::make_shared<Job>(NewJobId(), answer.accepted.key());
    answer.watch = job->Watch(std::move(changed));
    BEAMD_RETURN_IF_ERROR(Enqueue(std::move(plan), request, trace, std::move(job)));
  }
  answer.accepted.set_job(answer.watch->job().id());
  return answer;
}

absl::Status Tuner::CheckRoom() const {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  const auto queued = static_cast<int>(queue_.size());
  if (queued < options_.max_queued_jobs) return absl::OkStatus();
  return WithDetail(absl::ResourceExhaustedError("too many jobs are queued"),
                    {.reason = "QUEUE_FULL", .limit = options_.max_queued_jobs, .value = queued});
}

absl::Status Tuner::Enqueue(Plan plan, const v1::TuneRequest& request, const std::string& trace,
                            std::shared_ptr<Job> job) {
  BEAMD_RETURN_IF_ERROR(CheckRoom());
  auto task = std::make_unique<Task>();
  task->job = job;
  task->plan = std::move(plan);
  task->accepted = absl::Now();
  task->stored.set_id(job->id());
  task->stored.set_state(internal::StoredJob::ACCEPTED);
  *task->stored.mutable_request() = request;
  task->stored.set_key(job->key());
  task->stored.set_trace(trace);
  *task->stored.mutable_created() = Now();
  BEAMD_RETURN_IF_ERROR(store_.PutJob(task->stored));
  spdlog::info("job={} trace={} key={} device={} accepted", job->id(), trace, job->key(),
               task->plan.device->id);
  in_flight_[job->key()] = std::move(job);
  queue_.push_back(std::move(task));
  changed_.NotifyOne();
  TellPositions();
  return absl::OkStatus();
}

void Tuner::TellPositions() {
  uint32_t position = static_cast<uint32_t>(running_.size());
  for (const std::unique_ptr<Task>& task : queue_) {
    v1::TuneProgress progress;
    progress.set_phase(v1::PHASE_QUEUED);
    progress.set_queue_position(position++);
    task->job->Publish(std::move(progress));
  }
}

void Tuner::Work() {
  while (true) {
    std::unique_ptr<Task> task;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
      running_.emplace(task->job->id(), task->job);
      TellPositions();
    }
    RunTask(*task);
    MutexLock lock(mutex_);
    running_.erase(task->job->id());
    changed_.NotifyAll();
  }
}

void Tuner::RunTask(Task& task) {
  absl::StatusOr<v1::TuneResult> result = StopStatus(task.job->token().reason());
  if (!task.job->token().cancelled()) result = Search(task);
  Settle(task, result);
  {
    MutexLock lock(mutex_);
    const auto mine = in_flight_.find(task.job->key());
    if (mine != in_flight_.end() && mine->second == task.job) in_flight_.erase(mine);
  }
  task.job->End(std::move(result));
}

absl::StatusOr<v1::TuneResult> Tuner::Search(Task& task) {
  const Plan& plan = task.plan;
  const v1::TuneRequest& request = task.stored.request();
  BEAMD_ASSIGN_OR_RETURN(const absl::Duration budget, ResolveBudget(request));
  const std::unique_ptr<CandidatePipeline> pipeline = parts_.make_pipeline(
      plan.kernel, *plan.device, plan.options, task.stored.trace(), task.job->token());
  const SearchJob search{
      .kernel = plan.kernel,
      .device = *plan.device,
      .options = plan.options,
      // Queueing apart: who waits behind others still gets what it asked for.
      .deadline = absl::Now() + budget,
      .refresh = request.mode() == v1::TUNE_MODE_REFRESH,
      .progress = [&](v1::TuneProgress progress) {
        progress.set_elapsed_s(absl::ToDoubleSeconds(absl::Now() - task.accepted));
        task.job->Publish(std::move(progress));
      }};
  absl::StatusOr<v1::Record> found = parts_.search(search, *pipeline);
  const StopReason stopped = task.job->token().reason();
  if (!found.ok()) return stopped == StopReason::kNone ? found.status() : StopStatus(stopped);

  v1::Record record = *std::move(found);
  record.set_key(task.job->key());
  record.set_kernel_hash(plan.kernel.hash.Hex());
  *record.mutable_search() = plan.query.search;
  *record.mutable_environment() = plan.device->environment;
  record.set_search_s(absl::ToDoubleSeconds(absl::Now() - task.accepted));
  *record.mutable_created() = Now();
  record.set_job(task.job->id());
  record.set_host(options_.host);
  record.set_device(plan.device->id);
  record.set_build(options_.build);
  record.set_label(request.label());
  if (stopped == StopReason::kShutdown) record.set_end(v1::SEARCH_END_SHUTDOWN);
  if (stopped == StopReason::kCancelled || stopped == StopReason::kDeadline) {
    record.set_end(v1::SEARCH_END_CANCELLED);
  }

  v1::TuneResult result;
  result.set_match(v1::MATCH_SEARCHED);
  result.set_job(task.job->id());
  result.set_trace_id(task.stored.trace());
  v1::TuneProgress storing;
  storing.set_phase(v1::PHASE_STORING);
  storing.set_best_s(record.best_s());
  *storing.mutable_best_opts() = record.opts();
  search.progress(std::move(storing));
  // What was cut short by a stop, or by a budget before it could be checked, is told, marked so,
  // but answers nobody else.
  const bool unchecked =
      record.end() != v1::SEARCH_END_CONVERGED && !record.verification().verified();
  if (!request.no_store() && stopped == StopReason::kNone && !unchecked) {
    BEAMD_ASSIGN_OR_RETURN(record, store_.PutRecord(std::move(record), plan.kernel.canonical));
    result.set_persisted(true);
  }
  *result.mutable_record() = std::move(record);
  return result;
}

void Tuner::Settle(Task& task, const absl::StatusOr<v1::TuneResult>& result) {
  internal::StoredJob& stored = task.stored;
  stored.set_state(EndState(result, task.job->token().reason()));
  *stored.mutable_ended() = Now();
  if (result.ok()) {
    const v1::Record& record = result->record();
    stored.set_generation(result->persisted() ? record.generation() : 0);
    spdlog::info(
        "job={} ended best_us={:.2f} hc_us={:.2f} verified={} persisted={} search_s={:.2f}",
        stored.id(), record.best_s() * 1e6, record.hc_s() * 1e6, record.verification().verified(),
        result->persisted(), record.search_s());
  } else {
    stored.set_error(std::string(result.status().message()));
    spdlog::warn("job={} failed: {}", stored.id(), result.status().ToString());
  }
  if (const absl::Status status = store_.PutJob(stored); !status.ok()) {
    spdlog::error("job={} could not be written: {}", stored.id(), status.ToString());
  }
}

void Tuner::Drain(absl::Time deadline) {
  std::vector<std::shared_ptr<Job>> left;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    while ((!queue_.empty() || !running_.empty()) && absl::Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    for (const auto& task : queue_) left.push_back(task->job);
    for (const auto& [id, job] : running_) left.push_back(job);
  }
  for (const std::shared_ptr<Job>& job : left) job->token().Cancel(StopReason::kShutdown);
  MutexLock lock(mutex_);
  while (!queue_.empty() || !running_.empty()) changed_.Wait(mutex_);
}

}  // namespace beamd

#include "server/tuning/tuner.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "google/protobuf/util/time_util.h"
#include "server/store/tuning_key.h"
#include "server/tuning/options.h"
#include "server/tuning/replay.h"
#include "server/workers/codec.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

using ::google::protobuf::util::TimeUtil;

// Daemons in a row that may die while they run a job, before one more candidate is tried.
constexpr uint32_t kMostStuck = 10;

google::protobuf::Timestamp Now() { return TimeUtil::GetCurrentTime(); }

// Records of a kernel in which a time of it is looked for.
constexpr size_t kTimesLooked = 16;

// Jobs that the store did not take and that have ended are kept up to so many.
constexpr size_t kMostUnwritten = 1000;

// What a job waits for is looked at every TunerOptions::retry times at most this.
constexpr int kMostRetries = 512;
constexpr char kNoSuchDevice[] = "NO_SUCH_DEVICE";

// Sorts by time, whatever the clock does; the random half keeps daemons on one clock apart.
std::string NewJobId() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  static std::atomic<int64_t> last = 0;
  int64_t before = last;
  int64_t now = 0;
  do {
    now = std::max(before + 1, absl::ToUnixMillis(absl::Now()));
  } while (!last.compare_exchange_weak(before, now));
  return absl::StrFormat("%012x%08x", now, static_cast<uint32_t>(random()));
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

Haste HasteOf(v1::Priority priority) {
  switch (priority) {
    case v1::PRIORITY_BATCH:
      return Haste::kBatch;
    case v1::PRIORITY_INTERACTIVE:
      return Haste::kInteractive;
    default:
      return Haste::kNormal;
  }
}

v1::JobState ToProto(internal::StoredJob::State state) {
  switch (state) {
    case internal::StoredJob::ACCEPTED:
      return v1::JOB_STATE_QUEUED;
    case internal::StoredJob::FINISHED:
      return v1::JOB_STATE_FINISHED;
    case internal::StoredJob::CANCELLED:
      return v1::JOB_STATE_CANCELLED;
    default:
      return v1::JOB_STATE_FAILED;
  }
}

// Jobs of older builds tell a refresh by their mode only.
v1::MissReason MissOf(const internal::StoredJob& stored) {
  const bool refresh = stored.request().mode() == v1::TUNE_MODE_REFRESH;
  return refresh ? v1::MISS_REASON_REFRESH : stored.miss();
}

absl::string_view FailureName(uint32_t failure) {
  return failure < kFailureCount ? Name(static_cast<Failure>(failure)) : "unknown";
}

bool IsNoSuchDevice(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail && detail->reason == kNoSuchDevice;
}

// Of taking up a job: trying again would end no better. All else is the store's or the device's
// state, which may pass.
bool IsFinal(const absl::Status& status) {
  return absl::IsAborted(status) || (absl::IsInvalidArgument(status) && !IsNoSuchDevice(status));
}

absl::Status NoSuchJob(const std::string& id) {
  return WithDetail(absl::NotFoundError(absl::StrCat("no job ", id)),
                    {.reason = "NO_JOB", .field = "id"});
}

internal::StoredJob::State EndState(const absl::StatusOr<v1::TuneResult>& result,
                                    StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return result.ok() ? internal::StoredJob::FINISHED : internal::StoredJob::FAILED;
    case StopReason::kShutdown:
      return internal::StoredJob::ACCEPTED;  // the next daemon takes it up
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
  absl::Time accepted;    // of SteadyNow
  bool unstored = false;  // it has a record that the store did not take
  int tries = 0;          // in vain, before this one
};

Tuner::Tuner(Store& store, std::vector<TuningDevice> devices, TunerParts parts,
             TunerOptions options)
    : store_(store),
      devices_(std::move(devices)),
      parts_(std::move(parts)),
      options_(std::move(options)),
      usage_(std::make_shared<DeviceUsage>(store_, options_.device_seconds_a_day,
                                           [this](const std::string& principal, double seconds) {
                                             queue_.Charge(principal, seconds);
                                           })),
      queue_(options_.queue),
      keeper_([this] { Keep(); }) {}

Tuner::~Tuner() {
  {
    MutexLock lock(waiting_mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  keeper_.join();
  Drain(absl::InfinitePast());
  usage_->Unobserve();
  usage_->Save();
}

void Tuner::Drain(absl::Time deadline) {
  {
    MutexLock lock(replays_mutex_);
    draining_ = true;
    for (const std::shared_ptr<CancelToken>& token : replays_) token->Cancel(StopReason::kShutdown);
  }
  queue_.Drain(deadline);
}

void Tuner::ResumeJobs() {
  MutexLock one(resuming_);
  ResumeOpenJobs();
}

void Tuner::ResumeOpenJobs() {
  absl::StatusOr<std::vector<internal::StoredJob>> jobs = store_.UnfinishedJobs();
  {
    MutexLock lock(waiting_mutex_);
    resume_again_ = !jobs.ok();
  }
  if (!jobs.ok()) {
    spdlog::error("jobs of before can't be read: {}", jobs.status().ToString());
    return;
  }
  // Of several of one key the newest searches: it is there because the others could not be joined.
  std::map<std::string, std::string> newest;
  for (const internal::StoredJob& job : *jobs) newest[job.key()] = job.id();
  for (const bool first : {true, false}) {
    for (const internal::StoredJob& job : *jobs) {
      if ((newest[job.key()] == job.id()) == first && !FindWaiting(job.id())) TakeUp(job.id(), 0);
    }
  }
}

void Tuner::TakeUp(const std::string& id, int tries) {
  absl::StatusOr<internal::StoredJob> job = absl::UnknownError("");
  {
    // A job is written first and then queued: both under this.
    MutexLock lock(mutex_);
    if (FindLive(id)) return;
    job = ReadJob(id);
  }
  absl::Status status = job.status();
  if (job.ok()) {
    if (job->state() != internal::StoredJob::ACCEPTED) return;
    status = Resume(*job, tries);
  }
  if (status.ok()) return;
  if (!IsFinal(status)) {
    return Wait(id, {.why = std::string(status.message()),
                     .tries = tries,
                     // There are the same devices as long as this daemon lives.
                     .next = IsNoSuchDevice(status) ? absl::InfiniteFuture() : NextTry(tries)});
  }
  spdlog::warn("job={} can't be taken up: {}", id, status.ToString());
  job->set_state(internal::StoredJob::FAILED);
  job->set_code(static_cast<int>(status.code()));
  job->set_error(std::string(status.message()));
  *job->mutable_ended() = Now();
  WriteJob({.job = *std::move(job)});
}

void Tuner::Wait(const std::string& id, Waiting waiting) {
  spdlog::warn("job={} stays open: {}", id, waiting.why);
  MutexLock lock(waiting_mutex_);
  waiting_[id] = std::move(waiting);
}

std::optional<Tuner::Waiting> Tuner::FindWaiting(const std::string& id) const {
  MutexLock lock(waiting_mutex_);
  const auto it = waiting_.find(id);
  if (it == waiting_.end()) return std::nullopt;
  return it->second;
}

absl::Time Tuner::NextTry(int tries) const {
  int times = 1;
  for (int i = 0; i < tries && times < kMostRetries; ++i) times *= 2;
  return SteadyNow() + options_.retry * times;
}

void Tuner::Keep() {
  MutexLock lock(waiting_mutex_);
  while (!stopping_) {
    const absl::Time next = SteadyNow() + options_.retry;
    while (!stopping_ && SteadyNow() < next) wake_.WaitUntil(waiting_mutex_, next);
    if (stopping_) return;
    const bool waiting = !waiting_.empty() || resume_again_;
    waiting_mutex_.Unlock();
    // What a task used that ended after its job.
    usage_->Save();
    if (waiting) TakeUpWaiting();
    waiting_mutex_.Lock();
  }
}

void Tuner::TakeUpWaiting() {
  MutexLock one(resuming_);
  std::map<std::string, Waiting> jobs;
  bool again = false;
  {
    MutexLock lock(waiting_mutex_);
    jobs = waiting_;
    again = resume_again_;
  }
  for (const auto& [id, waiting] : jobs) {
    if (SteadyNow() < waiting.next) continue;
    const auto device = std::find_if(
        devices_.begin(), devices_.end(),
        [&wanted = waiting.device](const TuningDevice& it) { return it.id == wanted; });
    if (device != devices_.end() && !parts_.quarantine(*device).empty()) continue;
    {
      MutexLock lock(mutex_);
      // It waits from a moment before its end is told.
      if (FindLive(id) || in_flight_.count(waiting.key) > 0) continue;
    }
    {
      MutexLock lock(waiting_mutex_);
      waiting_.erase(id);
    }
    TakeUp(id, waiting.tries + 1);
  }
  if (again) ResumeOpenJobs();
}

void Tuner::StoreRecovered() {
  MutexLock one(recovering_);
  std::map<std::string, Unwritten> jobs;
  {
    MutexLock lock(unwritten_mutex_);
    jobs = unwritten_;
  }
  size_t records = 0;
  for (auto& [id, unwritten] : jobs) {
    std::optional<uint64_t> generation;
    if (unwritten.graph) {
      const absl::StatusOr<v1::Record> record =
          store_.PutRecord(unwritten.job.result().record(), *unwritten.graph);
      if (!record.ok()) return;  // it comes again
      ++records;
      generation = record->generation();
    }
    MutexLock lock(unwritten_mutex_);
    const auto it = unwritten_.find(id);
    // It went on meanwhile: a newer state was written, or waits here for the next time.
    if (it == unwritten_.end() || it->second.job.state() != unwritten.job.state()) continue;
    if (generation) {
      // Noted whether the job is written or not: put again, it would be another generation.
      it->second.job.clear_result();
      it->second.job.set_generation(*generation);
      it->second.graph.reset();
    }
    if (!store_.PutJob(it->second.job).ok()) return;
    unwritten_.erase(it);
  }
  if (!jobs.empty()) {
    spdlog::info("store: {} jobs and {} records of meanwhile were written", jobs.size(), records);
  }
  bool again = false;
  {
    MutexLock lock(waiting_mutex_);
    again = resume_again_;
  }
  if (again) ResumeJobs();
}

bool Tuner::WriteJob(Unwritten unwritten) {
  MutexLock lock(unwritten_mutex_);
  const std::string id = unwritten.job.id();
  if (const absl::Status status = store_.PutJob(unwritten.job); status.ok()) {
    unwritten_.erase(id);
    // A record that must follow still waits.
    if (unwritten.graph) unwritten_[id] = std::move(unwritten);
    return true;
  }
  unwritten_[id] = std::move(unwritten);
  if (unwritten_.size() > kMostUnwritten) {
    const auto ended = std::find_if(unwritten_.begin(), unwritten_.end(), [](const auto& entry) {
      return entry.second.job.state() != internal::StoredJob::ACCEPTED;
    });
    if (ended != unwritten_.end()) unwritten_.erase(ended);
  }
  return false;
}

void Tuner::NoteBegun(Task& task, bool begun) {
  task.stored.set_begun(begun);
  MutexLock lock(unwritten_mutex_);
  if (const auto it = unwritten_.find(task.stored.id()); it != unwritten_.end()) {
    it->second.job = task.stored;
  } else {
    store_.NoteJob(task.stored).IgnoreError();
  }
}

absl::StatusOr<internal::StoredJob> Tuner::ReadJob(const std::string& id) const {
  {
    MutexLock lock(unwritten_mutex_);
    if (const auto it = unwritten_.find(id); it != unwritten_.end()) return it->second.job;
  }
  BEAMD_ASSIGN_OR_RETURN(std::optional<internal::StoredJob> stored, store_.FindJob(id));
  if (!stored) return NoSuchJob(id);
  return *std::move(stored);
}

std::optional<v1::TuneResult> Tuner::UnwrittenResult(const std::string& key) const {
  MutexLock lock(unwritten_mutex_);
  for (const auto& [id, unwritten] : unwritten_) {
    if (unwritten.graph && unwritten.job.key() == key) return unwritten.job.result();
  }
  return std::nullopt;
}

absl::Status Tuner::Resume(internal::StoredJob stored, int tries) {
  const v1::TuneRequest& request = stored.request();
  BEAMD_ASSIGN_OR_RETURN(
      Plan plan, MakePlan(request.graph(), request.search(), request.device(), request.match()));
  const std::string key = plan.query.key.Hex();
  // It may have been written and not yet told: the record is the last thing that a search does. What
  // a later job of this key found answers too.
  absl::StatusOr<std::optional<v1::Record>> found = store_.FindRecord(plan.query.key);
  // What is damaged is searched again.
  if (absl::IsDataLoss(found.status())) found = std::nullopt;
  BEAMD_ASSIGN_OR_RETURN(const std::optional<v1::Record> record, std::move(found));
  if (record && !record->imported() && record->job() >= stored.id()) {
    stored.set_state(internal::StoredJob::FINISHED);
    stored.set_generation(record->generation());
    *stored.mutable_ended() = Now();
    WriteJob({.job = std::move(stored)});
    return absl::OkStatus();
  }
  if (const absl::Status serves = CheckServes(*plan.device); !serves.ok()) {
    Wait(stored.id(), {.why = std::string(serves.message()), .device = plan.device->id});
    return absl::OkStatus();
  }
  if (key != stored.key()) {
    // A driver, a compiler or a device was changed: what was measured is of another place.
    BEAMD_RETURN_IF_ERROR(store_.DropCandidates(stored.id()));
    stored.set_key(key);
    stored.set_device(plan.device->id);
  }
  stored.set_resumes(stored.resumes() + 1);
  // A job that ends its daemon must not end all that come after.
  BEAMD_ASSIGN_OR_RETURN(const std::vector<Store::Candidate> tried,
                         store_.CandidatesOf(stored.id()));
  if (tried.size() > stored.tried()) {
    stored.set_stuck(0);
  } else if (stored.begun()) {
    stored.set_stuck(stored.stuck() + 1);
  }
  stored.set_begun(false);
  stored.set_tried(tried.size());
  if (stored.stuck() > kMostStuck) {
    return absl::AbortedError(absl::StrCat("given up: ", kMostStuck,
                                           " daemons in a row died with it and got no further"));
  }
  MutexLock lock(mutex_);
  if (const auto other = in_flight_.find(key); other != in_flight_.end()) {
    Wait(stored.id(),
         {.why = absl::StrCat("job ", other->second->id(), " searches the same"), .key = key});
    return absl::OkStatus();
  }
  WriteJob({.job = stored});
  auto task = std::make_shared<Task>();
  task->job = std::make_shared<Job>(stored.id(), key);
  task->job->Join({.keep = true, .store = !request.no_store()});
  task->plan = std::move(plan);
  task->stored = std::move(stored);
  task->tries = tries;
  const absl::Duration age =
      absl::Now() - absl::FromUnixNanos(TimeUtil::TimestampToNanoseconds(task->stored.created()));
  task->accepted = SteadyNow() - std::max(age, absl::ZeroDuration());
  spdlog::info("job={} taken up again, time {}", task->job->id(), task->stored.resumes());
  Enqueue(std::move(task));
  return absl::OkStatus();
}

absl::StatusOr<const TuningDevice*> Tuner::SelectDevice(const v1::DeviceSelector& selector) const {
  // One in quarantine only where it has no twin: its records are still answers.
  const TuningDevice* found = nullptr;
  for (const TuningDevice& device : devices_) {
    if (!Fits(device, selector)) continue;
    if (parts_.quarantine(device).empty()) return &device;
    if (found == nullptr) found = &device;
  }
  if (found != nullptr) return found;
  return InvalidArgument(absl::StrCat("no device here fits ", selector.ShortDebugString()),
                         {.reason = kNoSuchDevice, .field = "device"});
}

absl::Status Tuner::CheckServes(const TuningDevice& device) const {
  const std::string why = parts_.quarantine(device);
  if (why.empty()) return absl::OkStatus();
  return WithDetail(absl::UnavailableError(absl::StrCat(device.id, " is ", why,
                                                        "; `beamctl devices release` ends that")),
                    {.reason = "DEVICE_QUARANTINED", .field = "device"});
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

MatchAnswer Tuner::Match(const Plan& plan) const {
  MatchQuery query = plan.query;
  query.graph = &plan.kernel.canonical;
  query.applies = [&](const std::vector<Opt>& opts) {
    return parts_.applies(plan.kernel, SearchedCaps(plan.device->caps, plan.options), opts);
  };
  return FindMatch(store_, query);
}

absl::StatusOr<v1::LookupAnswer> Tuner::Lookup(const v1::LookupQuery& query) {
  BEAMD_ASSIGN_OR_RETURN(const Plan plan,
                         MakePlan(query.graph(), query.search(), query.device(), query.match()));
  MatchAnswer match = Match(plan);
  v1::LookupAnswer answer;
  answer.set_key(plan.query.key.Hex());
  if (auto* hit = std::get_if<v1::Hit>(&match)) {
    *answer.mutable_hit() = std::move(*hit);
  } else {
    answer.mutable_miss()->set_reason(std::get<v1::MissReason>(match));
  }
  return answer;
}

bool Tuner::AnswerFromStore(const Plan& plan, Answer& answer) const {
  MatchAnswer match = Match(plan);
  auto* hit = std::get_if<v1::Hit>(&match);
  if (hit == nullptr) {
    answer.accepted.set_miss(std::get<v1::MissReason>(match));
    // What the store could not take yet answers too, and says so.
    answer.result = UnwrittenResult(plan.query.key.Hex());
    if (!answer.result) return false;
    answer.accepted.clear_miss();
    answer.result->set_match(v1::MATCH_STRICT);
    answer.result->set_trace_id(answer.accepted.trace_id());
    return true;
  }
  answer.accepted.clear_miss();
  answer.result.emplace();
  *answer.result->mutable_record() = std::move(*hit->mutable_record());
  answer.result->set_match(hit->match());
  answer.result->set_persisted(true);
  answer.result->set_trace_id(answer.accepted.trace_id());
  return true;
}

absl::StatusOr<Tuner::Answer> Tuner::Tune(const v1::TuneRequest& request, const Caller& caller,
                                          std::function<void()> changed) {
  BEAMD_RETURN_IF_ERROR(ResolveBudget(request).status());
  const bool now = request.mode() == v1::TUNE_MODE_NOW;
  BEAMD_ASSIGN_OR_RETURN(Plan plan, MakePlan(request.graph(), request.search(), request.device(),
                                             now ? v1::MATCH_POLICY_STRICT : request.match()));
  Answer answer;
  answer.accepted.set_key(plan.query.key.Hex());
  answer.accepted.set_kernel_hash(plan.kernel.hash.Hex());
  answer.accepted.set_device(plan.device->id);
  answer.accepted.set_trace_id(caller.trace);
  answer.accepted.set_miss(v1::MISS_REASON_REFRESH);
  const bool refresh = request.mode() == v1::TUNE_MODE_REFRESH;
  if (!refresh) {
    if (AnswerFromStore(plan, answer)) return answer;
  }
  if (request.mode() == v1::TUNE_MODE_LOOKUP_ONLY) {
    return WithDetail(absl::NotFoundError("no stored answer, and the request forbids a search"),
                      {.reason = v1::MissReason_Name(answer.accepted.miss()), .field = "mode"});
  }

  if (now) return TuneNow(std::move(plan), request, caller);

  const Wish wish{.keep = request.detach(), .store = !request.no_store()};
  // Held over looking and joining: a job stores its record before it leaves in_flight_, so one of
  // the two always finds it.
  MutexLock lock(mutex_);
  std::shared_ptr<Job> job;
  if (const auto running = in_flight_.find(answer.accepted.key()); running != in_flight_.end()) {
    if (running->second->Join(wish)) job = running->second;
  }
  answer.accepted.set_joined(job != nullptr);
  if (job != nullptr) {
    job->Hasten(HasteOf(request.priority()));
    queue_.Hasten(job->id(), HasteOf(request.priority()));
  } else {
    if (!refresh) {
      if (AnswerFromStore(plan, answer)) return answer;
    }
    job = std::make_shared<Job>(NewJobId(), answer.accepted.key());
    job->Join(wish);
  }
  answer.accepted.set_job(job->id());
  answer.watch = job->Watch(std::move(changed));
  if (!answer.accepted.joined()) {
    BEAMD_ASSIGN_OR_RETURN(
        const bool durable,
        Accept(std::move(plan), request, answer.accepted.miss(), caller, std::move(job)));
    answer.accepted.set_not_durable(!durable);
  }
  return answer;
}

absl::StatusOr<Tuner::Answer> Tuner::TuneNow(Plan plan, const v1::TuneRequest& request,
                                             const Caller& caller) {
  // What the caller's policy would not serve may still be the best to be had at once.
  Answer close;
  plan.query.policy = std::max(request.match(), v1::MATCH_POLICY_SAME_ARCH);
  plan.query.other_options = true;
  v1::TuneResult result;
  if (AnswerFromStore(plan, close)) {
    result = *std::move(close.result);
  } else {
    BEAMD_ASSIGN_OR_RETURN(
        const std::vector<Opt> opts,
        parts_.heuristic(plan.kernel, SearchedCaps(plan.device->caps, plan.options)));
    v1::Record& record = *result.mutable_record();
    record.set_key(plan.query.key.Hex());
    record.set_kernel_hash(plan.kernel.hash.Hex());
    *record.mutable_search() = plan.query.search;
    *record.mutable_environment() = plan.device->environment;
    *record.mutable_opts() = ToWire(opts);
    *record.mutable_hc_opts() = record.opts();
    record.set_device(plan.device->id);
    result.set_match(v1::MATCH_HEURISTIC);
  }

  // The same request, for whoever asks next; it hurries nobody.
  v1::TuneRequest later = request;
  later.set_mode(v1::TUNE_MODE_TUNE);
  later.set_match(v1::MATCH_POLICY_STRICT);
  later.set_detach(true);
  if (later.priority() == v1::PRIORITY_UNSPECIFIED) later.set_priority(v1::PRIORITY_BATCH);
  absl::StatusOr<Answer> job = Tune(later, caller, [] {});
  Answer answer;
  if (job.ok() && job->result) {
    // It was found in between.
    return job;
  }
  if (job.ok()) {
    answer.accepted = std::move(job->accepted);
  } else if (!absl::IsResourceExhausted(job.status()) && !absl::IsUnavailable(job.status())) {
    return job.status();
  } else {
    answer.accepted.set_key(plan.query.key.Hex());
    answer.accepted.set_kernel_hash(plan.kernel.hash.Hex());
    answer.accepted.set_device(plan.device->id);
    answer.accepted.set_miss(close.accepted.miss());
  }
  answer.accepted.set_trace_id(caller.trace);
  result.set_job(answer.accepted.job());
  result.set_trace_id(caller.trace);
  answer.result = std::move(result);
  return answer;
}

absl::StatusOr<v1::ReplayResponse> Tuner::Replay(const v1::ReplayRequest& request,
                                                 const Caller& caller,
                                                 const std::shared_ptr<CancelToken>& token) {
  // What was tried, of which kernel, under which options.
  v1::ReplayResponse response;
  v1::TuneRequest how;
  Digest kernel_hash;
  if (!request.job().empty()) {
    BEAMD_ASSIGN_OR_RETURN(const internal::StoredJob job, ReadJob(request.job()));
    BEAMD_ASSIGN_OR_RETURN(const std::optional<internal::StoredCandidate> candidate,
                           store_.FindCandidate(request.job(), request.candidate()));
    if (!candidate) {
      return WithDetail(absl::NotFoundError(absl::StrCat(
                            "job ", request.job(), " has no candidate ", request.candidate())),
                        {.reason = "NO_CANDIDATE", .field = "candidate"});
    }
    how = job.request();
    *response.mutable_opts() = candidate->opts();
    response.set_was_failure(std::string(FailureName(candidate->failure())));
    response.set_was_detail(candidate->detail());
    response.set_was_s(candidate->best_s());
  } else {
    absl::StatusOr<Digest> key = Digest::FromHex(request.key());
    if (!key.ok()) {
      return InvalidArgument("a replay wants a record's key, or a job and its candidate",
                             {.reason = "BAD_KEY", .field = "key"});
    }
    BEAMD_ASSIGN_OR_RETURN(const std::optional<v1::Record> record,
                           store_.FindRecord(*key, request.generation()));
    if (!record) {
      return WithDetail(absl::NotFoundError(absl::StrCat("no record of key ", request.key())),
                        {.reason = "NO_RECORD", .field = "key"});
    }
    BEAMD_ASSIGN_OR_RETURN(kernel_hash, Digest::FromHex(record->kernel_hash()));
    BEAMD_ASSIGN_OR_RETURN(std::optional<v1::Graph> graph, store_.FindGraph(kernel_hash));
    if (!graph) return absl::DataLossError("the record's graph is gone");
    *how.mutable_graph() = *std::move(graph);
    *how.mutable_search() = record->search();
    how.mutable_device()->set_kind(record->environment().kind());
    *response.mutable_opts() = record->opts();
    response.set_was_failure("none");
    response.set_was_s(record->best_s());
  }
  BEAMD_ASSIGN_OR_RETURN(
      const Plan plan, MakePlan(how.graph(), how.search(), how.device(), v1::MATCH_POLICY_STRICT));
  BEAMD_RETURN_IF_ERROR(usage_->Check(caller.principal));
  BEAMD_RETURN_IF_ERROR(CheckServes(*plan.device));
  {
    MutexLock lock(replays_mutex_);
    if (draining_) return StopStatus(StopReason::kShutdown);
    replays_.insert(token);
  }
  const absl::Cleanup ends = [this, &token] {
    MutexLock lock(replays_mutex_);
    replays_.erase(token);
  };
  const std::unique_ptr<CandidatePipeline> pipeline =
      parts_.make_pipeline(plan.kernel, *plan.device, plan.options,
                           {.trace = caller.trace,
                            .claim = {.principal = caller.principal, .haste = Haste::kInteractive},
                            .charge = [usage = usage_, principal = caller.principal](
                                          absl::Duration used) { usage->Charge(principal, used); }},
                           *token);
  ReplayCandidate(*pipeline, response);
  if (token->cancelled()) return StopStatus(token->reason());
  return response;
}

absl::StatusOr<double> Tuner::ExpectedSeconds(const v1::TuneRequest& request) const {
  BEAMD_ASSIGN_OR_RETURN(const ParsedKernel kernel, parts_.parse(request.graph()));
  const absl::StatusOr<std::vector<v1::Record>> records =
      store_.RecordsOf(kernel.hash, kTimesLooked);
  if (records.ok()) {
    for (const v1::Record& record : *records) {
      if (record.hc_s() > 0) return record.hc_s();
    }
  }
  return parts_.estimate(kernel);
}

absl::StatusOr<bool> Tuner::Accept(Plan plan, const v1::TuneRequest& request, v1::MissReason miss,
                                   const Caller& caller, std::shared_ptr<Job> job) {
  BEAMD_RETURN_IF_ERROR(queue_.CheckRoom(caller.principal));
  BEAMD_RETURN_IF_ERROR(usage_->Check(caller.principal));
  BEAMD_RETURN_IF_ERROR(CheckServes(*plan.device));
  auto task = std::make_shared<Task>();
  task->job = std::move(job);
  task->plan = std::move(plan);
  task->accepted = SteadyNow();
  task->stored.set_id(task->job->id());
  task->stored.set_state(internal::StoredJob::ACCEPTED);
  *task->stored.mutable_request() = request;
  task->stored.set_key(task->job->key());
  task->stored.set_kernel_hash(task->plan.kernel.hash.Hex());
  task->stored.set_device(task->plan.device->id);
  task->stored.set_trace(caller.trace);
  task->stored.set_principal(caller.principal);
  task->stored.set_miss(miss);
  *task->stored.mutable_created() = Now();
  const bool durable = WriteJob({.job = task->stored});
  spdlog::info("job={} trace={} principal={} key={} device={} accepted durable={}", task->job->id(),
               caller.trace, caller.principal, task->job->key(), task->plan.device->id, durable);
  Enqueue(std::move(task));
  return durable;
}

void Tuner::Enqueue(std::shared_ptr<Task> task) {
  in_flight_[task->job->key()] = task->job;
  const Claim claim{.principal = task->stored.principal(),
                    .haste = HasteOf(task->stored.request().priority())};
  std::shared_ptr<Job> job = task->job;
  queue_.Add(std::move(job), claim, [this, task = std::move(task)] { RunTask(*task); });
}

void Tuner::RunTask(Task& task) {
  absl::StatusOr<v1::TuneResult> result = StopStatus(task.job->token().reason());
  if (!task.job->token().cancelled()) {
    // Those of its principal that ran meanwhile may have left it nothing. One that an earlier daemon
    // had begun goes on, as it would have there.
    const absl::Status quota =
        task.stored.tried() > 0 ? absl::OkStatus() : usage_->Check(task.stored.principal());
    if (quota.ok()) {
      NoteBegun(task, true);
      result = Search(task);
    } else {
      result = quota;
    }
  }
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
  const std::string& principal = task.stored.principal();
  const std::unique_ptr<CandidatePipeline> pipeline =
      parts_.make_pipeline(plan.kernel, *plan.device, plan.options,
                           {.trace = task.stored.trace(),
                            .claim = {.principal = principal, .haste = HasteOf(request.priority())},
                            .haste = &task.job->haste(),
                            .charge = [usage = usage_, principal](
                                          absl::Duration used) { usage->Charge(principal, used); }},
                           task.job->token());
  const SearchJob search{
      .key = task.job->key(),
      .id = task.job->id(),
      .kernel = plan.kernel,
      .device = *plan.device,
      .options = plan.options,
      // Queueing apart: who waits behind others still gets what it asked for.
      .budget = budget,
      .refresh = request.mode() == v1::TUNE_MODE_REFRESH,
      .progress = [&](v1::TuneProgress progress) {
        progress.set_elapsed_s(absl::ToDoubleSeconds(SteadyNow() - task.accepted));
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
  record.set_search_s(absl::ToDoubleSeconds(SteadyNow() - task.accepted));
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
  if (task.job->wants_store() && stopped == StopReason::kNone && !unchecked) {
    absl::StatusOr<v1::Record> written = store_.PutRecord(record, plan.kernel.canonical);
    result.set_persisted(written.ok());
    task.unstored = !written.ok();
    if (written.ok()) {
      record = *std::move(written);
    } else {
      spdlog::warn("job={} its record waits for the store: {}", task.job->id(),
                   written.status().ToString());
    }
  }
  *result.mutable_record() = std::move(record);
  return result;
}

bool Tuner::StaysOpen(const Task& task, const absl::StatusOr<v1::TuneResult>& result) const {
  if (!absl::IsUnavailable(result.status()) || !task.job->kept() ||
      task.job->token().reason() != StopReason::kNone) {
    return false;
  }
  // No more of them than may be queued: the queue doesn't count those.
  MutexLock lock(waiting_mutex_);
  return task.stored.resumes() > 0 ||
         waiting_.size() < static_cast<size_t>(options_.queue.queued_max);
}

void Tuner::Settle(Task& task, const absl::StatusOr<v1::TuneResult>& result) {
  usage_->Save();
  internal::StoredJob& stored = task.stored;
  if (StaysOpen(task, result)) {
    NoteBegun(task, false);
    return Wait(stored.id(), {.why = std::string(result.status().message()),
                              .device = task.plan.device->id,
                              .tries = task.tries,
                              .next = NextTry(task.tries)});
  }
  stored.set_state(EndState(result, task.job->token().reason()));
  if (stored.state() == internal::StoredJob::ACCEPTED) {
    spdlog::info("job={} stopped; the next daemon takes it up", stored.id());
    NoteBegun(task, false);
    return;
  }
  *stored.mutable_ended() = Now();
  if (result.ok()) {
    const v1::Record& record = result->record();
    if (result->persisted()) {
      stored.set_generation(record.generation());
    } else {
      *stored.mutable_result() = *result;
    }
    spdlog::info(
        "job={} ended best_us={:.2f} hc_us={:.2f} verified={} persisted={} search_s={:.2f}",
        stored.id(), record.best_s() * 1e6, record.hc_s() * 1e6, record.verification().verified(),
        result->persisted(), record.search_s());
  } else {
    stored.set_code(static_cast<int>(result.status().code()));
    stored.set_error(std::string(result.status().message()));
    spdlog::warn("job={} failed: {}", stored.id(), result.status().ToString());
  }
  Unwritten last{.job = stored};
  if (task.unstored) last.graph = task.plan.kernel.canonical;
  WriteJob(std::move(last));
  // It may have recovered before it could see this.
  if (task.unstored && store_.health().writable) StoreRecovered();
}

absl::StatusOr<v1::TuneResult> Tuner::StoredResult(const internal::StoredJob& stored) const {
  if (stored.has_result()) return stored.result();
  if (stored.generation() == 0) {
    return absl::Status(stored.code() == 0 ? absl::StatusCode::kAborted
                                           : static_cast<absl::StatusCode>(stored.code()),
                        stored.error());
  }
  BEAMD_ASSIGN_OR_RETURN(const Digest key, Digest::FromHex(stored.key()));
  BEAMD_ASSIGN_OR_RETURN(std::optional<v1::Record> record,
                         store_.FindRecord(key, stored.generation()));
  if (!record) return absl::DataLossError("the job's record is gone");
  v1::TuneResult result;
  *result.mutable_record() = *std::move(record);
  result.set_match(v1::MATCH_SEARCHED);
  result.set_persisted(true);
  result.set_job(stored.id());
  result.set_trace_id(stored.trace());
  return result;
}

std::optional<JobQueue::Entry> Tuner::FindLive(const std::string& id) const {
  std::optional<JobQueue::Entry> live = queue_.Find(id);
  // It leaves the queue a moment after it has told its end.
  if (live && live->job->Look(0).end) return std::nullopt;
  return live;
}

v1::Job Tuner::Describe(const internal::StoredJob& stored) const {
  v1::Job job;
  job.set_id(stored.id());
  job.set_state(ToProto(stored.state()));
  job.set_key(stored.key());
  job.set_kernel_hash(stored.kernel_hash());
  job.set_device(stored.device());
  job.set_principal(stored.principal());
  job.set_priority(stored.request().priority());
  job.set_label(stored.request().label());
  job.set_trace_id(stored.trace());
  *job.mutable_created() = stored.created();
  if (stored.has_ended()) *job.mutable_ended() = stored.ended();
  job.set_resumes(stored.resumes());
  job.set_mode(stored.request().mode() == v1::TUNE_MODE_UNSPECIFIED ? v1::TUNE_MODE_TUNE
                                                                    : stored.request().mode());
  job.set_miss(MissOf(stored));
  job.set_error(stored.error());
  if (const std::optional<JobQueue::Entry> live = FindLive(stored.id())) {
    job.set_state(live->running ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_QUEUED);
    job.set_watchers(static_cast<uint32_t>(live->job->watchers()));
    job.set_kept(live->job->kept());
    if (auto news = live->job->Look(0); news.progress) {
      *job.mutable_progress() = *std::move(news.progress);
    }
  } else if (stored.state() == internal::StoredJob::ACCEPTED) {
    if (const std::optional<Waiting> waiting = FindWaiting(stored.id())) {
      job.set_error(waiting->why);
    }
  } else {
    if (auto result = StoredResult(stored); result.ok()) {
      *job.mutable_result() = *std::move(result);
    }
  }
  return job;
}

absl::StatusOr<v1::Job> Tuner::GetJob(const std::string& id) const {
  BEAMD_ASSIGN_OR_RETURN(const internal::StoredJob stored, ReadJob(id));
  return Describe(stored);
}

absl::StatusOr<std::vector<v1::Job>> Tuner::ListJobs(const std::string& before, int limit) const {
  BEAMD_ASSIGN_OR_RETURN(std::vector<internal::StoredJob> stored, store_.ListJobs(before, limit));
  std::map<std::string, internal::StoredJob, std::greater<>> newest;
  for (internal::StoredJob& job : stored) newest[job.id()] = std::move(job);
  {
    MutexLock lock(unwritten_mutex_);
    for (const auto& [id, unwritten] : unwritten_) {
      if (before.empty() || id < before) newest[id] = unwritten.job;
    }
  }
  std::vector<v1::Job> jobs;
  for (const auto& [id, job] : newest) {
    if (static_cast<int>(jobs.size()) < limit) jobs.push_back(Describe(job));
  }
  return jobs;
}

absl::StatusOr<Tuner::Answer> Tuner::WatchJob(const std::string& id,
                                              std::function<void()> changed) {
  // First, so that what ends between here and the store is seen in one of the two.
  const std::optional<JobQueue::Entry> live = FindLive(id);
  BEAMD_ASSIGN_OR_RETURN(const internal::StoredJob stored, ReadJob(id));
  Answer answer;
  answer.accepted.set_job(id);
  answer.accepted.set_key(stored.key());
  answer.accepted.set_kernel_hash(stored.kernel_hash());
  answer.accepted.set_device(stored.device());
  answer.accepted.set_trace_id(stored.trace());
  answer.accepted.set_joined(true);
  answer.accepted.set_miss(MissOf(stored));
  if (live) {
    answer.watch = live->job->Watch(std::move(changed));
    return answer;
  }
  if (stored.state() == internal::StoredJob::ACCEPTED) {
    const std::optional<Waiting> waiting = FindWaiting(id);
    return absl::UnavailableError(
        absl::StrCat("job ", id, " waits: ", waiting ? waiting->why : "the daemon starts or ends"));
  }
  BEAMD_ASSIGN_OR_RETURN(answer.result, StoredResult(stored));
  return answer;
}

absl::StatusOr<v1::Job> Tuner::CancelJob(const std::string& id) {
  MutexLock one(resuming_);
  std::optional<JobQueue::Entry> live;
  absl::StatusOr<internal::StoredJob> stored = absl::UnknownError("");
  {
    MutexLock lock(mutex_);
    live = FindLive(id);
    stored = ReadJob(id);
  }
  BEAMD_RETURN_IF_ERROR(stored.status());
  if (live) {
    spdlog::info("job={} cancelled by request", id);
    live->job->token().Cancel(StopReason::kCancelled);
    return Describe(*stored);
  }
  if (stored->state() != internal::StoredJob::ACCEPTED) {
    return WithDetail(absl::FailedPreconditionError(absl::StrCat("job ", id, " has ended")),
                      {.reason = "JOB_ENDED", .field = "id"});
  }
  // Nothing runs it: it waits.
  spdlog::info("job={} cancelled by request", id);
  stored->set_state(internal::StoredJob::CANCELLED);
  stored->set_code(static_cast<int>(absl::StatusCode::kCancelled));
  stored->set_error("cancelled");
  *stored->mutable_ended() = Now();
  WriteJob({.job = *stored});
  {
    MutexLock lock(waiting_mutex_);
    waiting_.erase(id);
  }
  return Describe(*stored);
}

}  // namespace beamd

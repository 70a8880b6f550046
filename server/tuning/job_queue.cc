#include "server/tuning/job_queue.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/steady_clock.h"

namespace beamd {
namespace {

// How often jobs are looked at that somebody may have left or cancelled.
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);

}  // namespace

JobQueue::JobQueue(JobQueueOptions options)
    : options_(std::move(options)), share_(options_.weights) {
  for (int i = 0; i < options_.concurrent + options_.interactive; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
  threads_.emplace_back([this] { Keep(); });
}

JobQueue::~JobQueue() {
  Drain(absl::InfinitePast());
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    keeper_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status JobQueue::CheckRoom(const std::string& principal) const {
  MutexLock lock(mutex_);
  if (draining_) return absl::UnavailableError("the server is shutting down");
  const auto of = jobs_of_.find(principal);
  const int own = of == jobs_of_.end() ? 0 : of->second;
  if (options_.principal_jobs > 0 && own >= options_.principal_jobs) {
    return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                          principal, " has ", own, " jobs queued or running, at most ",
                          options_.principal_jobs, "; there is room again when one of them ends")),
                      {.reason = "QUOTA_JOBS", .limit = options_.principal_jobs, .value = own});
  }
  const auto queued = static_cast<int>(waiting_.size());
  if (queued < options_.queued_max) return absl::OkStatus();
  return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                        queued, " jobs are queued, the limit is ", options_.queued_max)),
                    {.reason = "QUEUE_FULL", .limit = options_.queued_max, .value = queued});
}

JobQueue::Load JobQueue::load() const {
  MutexLock lock(mutex_);
  Load load{.waiting = static_cast<int>(waiting_.size()),
            .running = static_cast<int>(running_.size())};
  const absl::Time now = SteadyNow();
  for (const Item& item : waiting_) load.oldest = std::max(load.oldest, now - item.queued);
  return load;
}

void JobQueue::Add(std::shared_ptr<Job> job, Claim claim, std::function<void()> run) {
  MutexLock lock(mutex_);
  share_.Enter(claim.principal);
  ++jobs_of_[claim.principal];
  waiting_.push_back({.entry = {.job = std::move(job), .claim = Possible(std::move(claim))},
                      .number = ++last_number_,
                      .run = std::move(run)});
  if (draining_) waiting_.back().entry.job->token().Cancel(StopReason::kShutdown);
  changed_.NotifyAll();
  keeper_.NotifyAll();
  TellPositions();
}

std::optional<JobQueue::Entry> JobQueue::Find(const std::string& id) const {
  MutexLock lock(mutex_);
  for (const Items* items : {&running_, &waiting_}) {
    for (const Item& item : *items) {
      if (item.entry.job->id() == id) return item.entry;
    }
  }
  return std::nullopt;
}

void JobQueue::Hasten(const std::string& id, Haste haste) {
  MutexLock lock(mutex_);
  haste = Possible({.haste = haste}).haste;
  for (Item& item : waiting_) {
    if (item.entry.job->id() != id || item.entry.claim.haste >= haste) continue;
    item.entry.claim.haste = haste;
    changed_.NotifyAll();
    TellPositions();
  }
}

void JobQueue::Charge(const std::string& principal, double seconds) {
  MutexLock lock(mutex_);
  share_.Charge(principal, seconds);
}

void JobQueue::TellPositions() {
  std::vector<const Item*> order;
  for (const Item& item : waiting_) order.push_back(&item);
  std::sort(order.begin(), order.end(), [&](const Item* a, const Item* b) {
    return share_.Before(a->entry.claim, a->number, b->entry.claim, b->number);
  });
  auto position = static_cast<uint32_t>(running_.size());
  for (const Item* item : order) {
    v1::TuneProgress progress;
    progress.set_phase(v1::PHASE_QUEUED);
    progress.set_queue_position(position++);
    item->entry.job->Publish(std::move(progress));
  }
}

JobQueue::Items::iterator JobQueue::Next() {
  const auto is_interactive = [](const Item& item) {
    return item.entry.claim.haste == Haste::kInteractive;
  };
  const auto interactive = std::count_if(running_.begin(), running_.end(), is_interactive);
  const auto others = static_cast<std::ptrdiff_t>(running_.size()) - interactive;
  const bool others_wait = !std::all_of(waiting_.begin(), waiting_.end(), is_interactive);
  auto best = waiting_.end();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    const bool may = is_interactive(*it) ? !others_wait || interactive < options_.interactive
                                         : others < options_.concurrent;
    if (!may) continue;
    if (best == waiting_.end() ||
        share_.Before(it->entry.claim, it->number, best->entry.claim, best->number)) {
      best = it;
    }
  }
  return best;
}

Claim JobQueue::Possible(Claim claim) const {
  const bool none = options_.interactive == 0 && claim.haste == Haste::kInteractive;
  if (none) claim.haste = Haste::kNormal;
  return claim;
}

void JobQueue::Run(Items::iterator item) {
  item->entry.running = true;
  running_.splice(running_.end(), waiting_, item);
  TellPositions();
  mutex_.Unlock();
  item->run();
  mutex_.Lock();
  const std::string principal = item->entry.claim.principal;
  running_.erase(item);
  share_.Leave(principal);
  if (--jobs_of_[principal] == 0) jobs_of_.erase(principal);
  changed_.NotifyAll();
}

void JobQueue::Work() {
  MutexLock lock(mutex_);
  while (true) {
    const auto next = Next();
    if (next != waiting_.end()) {
      Run(next);
    } else if (stopping_) {
      return;
    } else {
      changed_.Wait(mutex_);
    }
  }
}

// Ends what nobody wants any more: no thread of the workers' may be free for long.
void JobQueue::Keep() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const absl::Time now = SteadyNow();
    for (const Items* items : {&running_, &waiting_}) {
      for (const Item& item : *items) item.entry.job->CancelIfAbandoned(now - options_.grace);
    }
    const auto cancelled = std::find_if(waiting_.begin(), waiting_.end(), [](const Item& item) {
      return item.entry.job->token().cancelled();
    });
    if (cancelled != waiting_.end()) {
      Run(cancelled);
    } else if (waiting_.empty() && running_.empty()) {
      keeper_.Wait(mutex_);
    } else {
      keeper_.WaitUntil(mutex_, now + kLookEvery);
    }
  }
}

void JobQueue::Drain(absl::Time deadline) {
  MutexLock lock(mutex_);
  draining_ = true;
  while ((!waiting_.empty() || !running_.empty()) && SteadyNow() < deadline) {
    changed_.WaitUntil(mutex_, deadline);
  }
  for (const Items* items : {&running_, &waiting_}) {
    for (const Item& item : *items) item.entry.job->token().Cancel(StopReason::kShutdown);
  }
  keeper_.NotifyAll();
  while (!waiting_.empty() || !running_.empty()) changed_.Wait(mutex_);
}

}  // namespace beamd

#include "server/tuning/job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"

namespace beamd {
namespace {

// Lines of SearchOptions.debug kept for watchers that are slow.
constexpr size_t kDebugLines = 4096;

}  // namespace

bool Job::Join(const Wish& wish) {
  MutexLock lock(mutex_);
  if (closing_ || (token_.cancelled() && !end_)) return false;
  wish_.keep |= wish.keep;
  wish_.store |= wish.store;
  if (wish_.keep) abandoned_ = absl::InfiniteFuture();
  return true;
}

void Job::Hasten(Haste haste) {
  Haste before = haste_;
  while (before < haste && !haste_.compare_exchange_weak(before, haste)) {
  }
}

bool Job::wants_store() const {
  MutexLock lock(mutex_);
  return wish_.store;
}

bool Job::kept() const {
  MutexLock lock(mutex_);
  return wish_.keep;
}

std::unique_ptr<JobWatch> Job::Watch(std::function<void()> changed) {
  MutexLock lock(mutex_);
  abandoned_ = absl::InfiniteFuture();
  watchers_.emplace(++last_watcher_,
                    std::make_shared<const std::function<void()>>(std::move(changed)));
  return std::make_unique<JobWatch>(shared_from_this(), last_watcher_);
}

int Job::watchers() const {
  MutexLock lock(mutex_);
  return static_cast<int>(watchers_.size());
}

void Job::CancelIfAbandoned(absl::Time before) {
  {
    MutexLock lock(mutex_);
    if (abandoned_ >= before || end_) return;
    closing_ = true;
  }
  token_.Cancel(StopReason::kCancelled);
}

void Job::Unwatch(int64_t id, StopReason reason) {
  {
    MutexLock lock(mutex_);
    watchers_.erase(id);
    if (!watchers_.empty() || end_ || wish_.keep) return;
    abandoned_ = SteadyNow();
    closing_ |= reason == StopReason::kDeadline;
  }
  if (reason == StopReason::kDeadline) token_.Cancel(reason);
}

Job::News Job::Look(uint64_t seen) const {
  MutexLock lock(mutex_);
  News news{.number = number_};
  if (seen >= number_) return news;
  if (progress_number_ > seen) {
    news.progress = progress_;
    std::string& lines = *news.progress->mutable_debug();
    lines.clear();
    for (const auto& [number, line] : debug_) {
      if (number > seen) absl::StrAppend(&lines, lines.empty() ? "" : "\n", line);
    }
  }
  news.end = end_;
  return news;
}

void Job::Publish(v1::TuneProgress progress) {
  {
    MutexLock lock(mutex_);
    progress_ = std::move(progress);
    progress_.set_job(id_);
    progress_number_ = ++number_;
    if (!progress_.debug().empty()) {
      debug_.emplace_back(number_, std::move(*progress_.mutable_debug()));
      if (debug_.size() > kDebugLines) debug_.pop_front();
    }
  }
  Tell();
}

void Job::End(absl::StatusOr<v1::TuneResult> end) {
  {
    MutexLock lock(mutex_);
    BEAMD_CHECK(!end_, "a job ends once");
    end_ = std::move(end);
    ++number_;
  }
  Tell();
}

void Job::Tell() {
  std::vector<std::shared_ptr<const std::function<void()>>> watchers;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, changed] : watchers_) watchers.push_back(changed);
  }
  for (const auto& changed : watchers) (*changed)();
}

}  // namespace beamd

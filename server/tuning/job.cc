#include "server/tuning/job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Lines of SearchOptions.debug kept for watchers that are slow.
constexpr size_t kDebugLines = 4096;

}  // namespace

std::unique_ptr<JobWatch> Job::Watch(std::function<void()> changed) {
  MutexLock lock(mutex_);
  if (abandoned_ || (token_.cancelled() && !end_)) return nullptr;
  watchers_.emplace(++last_watcher_,
                    std::make_shared<const std::function<void()>>(std::move(changed)));
  return std::make_unique<JobWatch>(shared_from_this(), last_watcher_);
}

void Job::Unwatch(int64_t id, StopReason reason) {
  {
    MutexLock lock(mutex_);
    watchers_.erase(id);
    if (!watchers_.empty() || end_) return;
    abandoned_ = true;
  }
  token_.Cancel(reason);
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

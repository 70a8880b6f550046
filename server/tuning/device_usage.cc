#include "server/tuning/device_usage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "engine/base/error_detail.h"

namespace beamd {

double& DeviceUsage::UsedToday(const std::string& principal) {
  // A clock that is set back doesn't bring a used quota back.
  const int64_t day = std::max(day_, absl::ToUnixSeconds(absl::Now()) / (24 * 3600));
  if (day != day_) used_.clear();
  day_ = day;
  const auto [it, is_new] = used_.emplace(principal, 0);
  // Unreadable counts as none: nobody is refused for the store's fault.
  if (is_new) it->second = store_.FindUsage(principal, day).value_or(0);
  return it->second;
}

void DeviceUsage::Charge(const std::string& principal, absl::Duration used) {
  if (used <= absl::ZeroDuration()) return;
  const double seconds = absl::ToDoubleSeconds(used);
  MutexLock lock(mutex_);
  UsedToday(principal) += seconds;
  unsaved_.insert(principal);
  if (observer_) observer_(principal, seconds);
}

absl::Status DeviceUsage::Check(const std::string& principal) {
  if (seconds_a_day_ <= 0) return absl::OkStatus();
  MutexLock lock(mutex_);
  const double used = UsedToday(principal);
  if (used < seconds_a_day_) return absl::OkStatus();
  const absl::Time resets = absl::UnixEpoch() + absl::Hours(24) * (day_ + 1);
  return WithDetail(
      absl::ResourceExhaustedError(absl::StrFormat(
          "%s used %.1f device seconds today, at most %.1f; the quota resets at %s", principal,
          used, seconds_a_day_, absl::FormatTime(resets, absl::UTCTimeZone()))),
      {.reason = "QUOTA_DEVICE_SECONDS",
       .limit = static_cast<int64_t>(seconds_a_day_),
       .value = static_cast<int64_t>(used)});
}

void DeviceUsage::Save() {
  std::vector<std::pair<std::string, double>> used;
  int64_t day = 0;
  {
    MutexLock lock(mutex_);
    for (const std::string& principal : unsaved_) {
      used.emplace_back(principal, UsedToday(principal));
    }
    unsaved_.clear();
    day = day_;
  }
  for (const auto& [principal, seconds] : used) {
    store_.PutUsage(principal, day, seconds).IgnoreError();
  }
}

void DeviceUsage::Unobserve() {
  MutexLock lock(mutex_);
  observer_ = nullptr;
}

}  // namespace beamd

// What principals used of the devices today (UTC), and what each may.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "server/store/store.h"

namespace beamd {

// Thread-safe. What a task used is known when it ends, which may be after its job's end and after
// the tuner's: whoever charges shares the account. `store` outlives it.
class DeviceUsage {
 public:
  // Of a principal, in seconds. Called on any thread, one call at a time.
  using Observer = std::function<void(const std::string& principal, double seconds)>;

  // `seconds_a_day` is what each may use; 0: no limit.
  DeviceUsage(Store& store, double seconds_a_day, Observer observer)
      : store_(store), seconds_a_day_(seconds_a_day), observer_(std::move(observer)) {}

  void Charge(const std::string& principal, absl::Duration used);
  // ResourceExhausted, saying when that ends, where nothing is left.
  absl::Status Check(const std::string& principal);
  // To the store what was charged since the last time.
  void Save();
  // The observer is not running once this returns, and won't.
  void Unobserve();

 private:
  double& UsedToday(const std::string& principal) BEAMD_REQUIRES(mutex_);

  Store& store_;
  const double seconds_a_day_;
  Mutex mutex_;
  Observer observer_ BEAMD_GUARDED_BY(mutex_);
  std::map<std::string, double> used_ BEAMD_GUARDED_BY(mutex_);  // on `day_`
  std::set<std::string> unsaved_ BEAMD_GUARDED_BY(mutex_);
  int64_t day_ BEAMD_GUARDED_BY(mutex_) = 0;  // since 1970
};

}  // namespace beamd

// Lets a call in or refuses it: who it is, whether that role may call the method, how often, and
// how many streams are open. All refusals carry a reason, and the limit and value that met.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "server/auth/access.h"
#include "server/auth/principal.h"

namespace beamd {

// The least role that a method wants: "Tuner.Tune". Methods that aren't named want an admin.
Role RoleFor(absl::string_view method);

struct GateOptions {
  // Calls a second of one principal, and how many may come at once; 0: no limit.
  double calls_per_second = 0;
  int64_t burst = 0;
  // Streams that one principal has open; 0: no limit.
  int64_t streams = 0;
};

// Thread-safe.
class Gate {
 public:
  // Holds the place of an open stream.
  class Stream {
   public:
    Stream() = default;
    Stream(Gate* gate, std::string name) : gate_(gate), name_(std::move(name)) {}
    Stream(Stream&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)), name_(std::move(other.name_)) {}
    Stream& operator=(Stream&& other) noexcept {
      std::swap(gate_, other.gate_);
      std::swap(name_, other.name_);
      return *this;
    }
    ~Stream() {
      if (gate_ != nullptr) gate_->CloseStream(name_);
    }

   private:
    Gate* gate_ = nullptr;
    std::string name_;
  };

  explicit Gate(GateOptions options) : options_(options) {}

  // Without an access file everybody is let in as an admin, by host or local user.
  void SetAccess(std::shared_ptr<const Access> access);

  // Unauthenticated.
  absl::StatusOr<Principal> Identify(const Evidence& evidence) const;
  // PermissionDenied for a role that is too low, ResourceExhausted for a rate that is too high.
  absl::Status Admit(const Principal& principal, absl::string_view method, absl::Time now);
  // ResourceExhausted. What it returns must not outlive this.
  absl::StatusOr<Stream> OpenStream(const Principal& principal);

 private:
  struct Account {
    double calls = 0;  // that may still come
    absl::Time at = absl::InfinitePast();
    int64_t streams = 0;
  };
  void CloseStream(const std::string& name);
  Account& AccountOf(const std::string& name, absl::Time now) BEAMD_REQUIRES(mutex_);

  const GateOptions options_;
  mutable Mutex mutex_;
  std::shared_ptr<const Access> access_ BEAMD_GUARDED_BY(mutex_);
  std::map<std::string, Account> accounts_ BEAMD_GUARDED_BY(mutex_);
};

}  // namespace beamd

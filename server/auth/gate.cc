#include "server/auth/gate.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"

namespace beamd {
namespace {

// Accounts kept before those at rest are dropped.
constexpr size_t kAccounts = 4096;

struct MethodRole {
  absl::string_view method;
  Role role;
};
constexpr MethodRole kMethods[] = {
    {"Batches.Tune", Role::kSubmitter},
    {"Devices.List", Role::kReader},
    {"Executor.BeginUpload", Role::kSubmitter},
    {"Executor.CloseSession", Role::kSubmitter},
    {"Executor.Download", Role::kSubmitter},
    {"Executor.Free", Role::kSubmitter},
    {"Executor.KeepAlive", Role::kSubmitter},
    {"Executor.OpenSession", Role::kSubmitter},
    {"Executor.Run", Role::kSubmitter},
    {"Executor.ScheduleModel", Role::kReader},
    {"Executor.Upload", Role::kSubmitter},
    {"Inspector.Replay", Role::kSubmitter},
    {"Inspector.Show", Role::kSubmitter},
    {"Jobs.Cancel", Role::kSubmitter},
    {"Jobs.Get", Role::kReader},
    {"Jobs.List", Role::kReader},
    {"Jobs.Watch", Role::kSubmitter},
    {"Records.Explain", Role::kReader},
    {"Records.Export", Role::kReader},
    {"Records.Get", Role::kReader},
    {"Records.Import", Role::kImporter},
    {"Records.List", Role::kReader},
    {"Records.Resolve", Role::kReader},
    {"Tuner.Lookup", Role::kReader},
    {"Tuner.Tune", Role::kSubmitter},
};

}  // namespace

Role RoleFor(absl::string_view method) {
  const auto* it = std::find_if(std::begin(kMethods), std::end(kMethods),
                                [&](const MethodRole& m) { return m.method == method; });
  return it == std::end(kMethods) ? Role::kAdmin : it->role;
}

void Gate::SetAccess(std::shared_ptr<const Access> access) {
  MutexLock lock(mutex_);
  access_ = std::move(access);
}

absl::StatusOr<Principal> Gate::Identify(const Evidence& evidence) const {
  std::shared_ptr<const Access> access;
  {
    MutexLock lock(mutex_);
    access = access_;
  }
  if (access != nullptr) return access->Find(evidence);
  if (!evidence.certificate_names.empty()) {
    return Principal{evidence.certificate_names.front(), Role::kAdmin};
  }
  return Principal{evidence.uid ? absl::StrCat("uid:", *evidence.uid) : evidence.host,
                   Role::kAdmin};
}

Gate::Account& Gate::AccountOf(const std::string& name, absl::Time now) {
  if (accounts_.size() >= kAccounts && accounts_.find(name) == accounts_.end()) {
    // An account that waited a second and has no stream is as a new one.
    for (auto it = accounts_.begin(); it != accounts_.end();) {
      const bool rests = it->second.streams == 0 && now - it->second.at > absl::Seconds(1);
      it = rests ? accounts_.erase(it) : std::next(it);
    }
  }
  return accounts_[name];
}

absl::Status Gate::Admit(const Principal& principal, absl::string_view method, absl::Time now) {
  const Role wanted = RoleFor(method);
  if (principal.role < wanted) {
    return WithDetail(
        absl::PermissionDeniedError(absl::StrCat(method, " wants the role ", Name(wanted), "; ",
                                                 principal.name, " is a ", Name(principal.role))),
        {.reason = "ROLE"});
  }
  if (options_.calls_per_second <= 0) return absl::OkStatus();
  const double burst = std::max<double>(1, static_cast<double>(options_.burst));
  MutexLock lock(mutex_);
  Account& account = AccountOf(principal.name, now);
  if (account.at == absl::InfinitePast()) {
    account.calls = burst;
  } else if (now > account.at) {
    account.calls += absl::ToDoubleSeconds(now - account.at) * options_.calls_per_second;
    account.calls = std::min(account.calls, burst);
  }
  account.at = now;
  if (account.calls < 1) {
    const auto limit = static_cast<int64_t>(std::ceil(options_.calls_per_second));
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrCat("over ", limit, " calls a second of ",
                                                  principal.name, " (--calls_per_second)")),
        {.reason = "RATE", .limit = limit, .value = limit + 1});
  }
  account.calls -= 1;
  return absl::OkStatus();
}

absl::StatusOr<Gate::Stream> Gate::OpenStream(const Principal& principal) {
  if (options_.streams <= 0) return Stream();
  MutexLock lock(mutex_);
  Account& account = AccountOf(principal.name, absl::InfinitePast());
  if (account.streams >= options_.streams) {
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrCat("over ", options_.streams, " streams of ",
                                                  principal.name, " (--streams_per_client)")),
        {.reason = "STREAMS", .limit = options_.streams, .value = account.streams + 1});
  }
  ++account.streams;
  return Stream(this, principal.name);
}

void Gate::CloseStream(const std::string& name) {
  MutexLock lock(mutex_);
  if (const auto it = accounts_.find(name); it != accounts_.end()) --it->second.streams;
}

}  // namespace beamd

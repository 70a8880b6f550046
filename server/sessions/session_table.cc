#include "server/sessions/session_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "server/auth/secret.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// How late a lease may end.
constexpr absl::Duration kReapInterval = absl::Milliseconds(500);
constexpr int kThreads = 2;
constexpr size_t kIdBytes = 16;

absl::Status NoSession(const std::string& id) {
  constexpr size_t kShown = 32;
  return WithDetail(
      absl::NotFoundError(absl::StrCat("no session \"", absl::CEscape(id.substr(0, kShown)),
                                       "\": it has ended, or never was yours")),
      {.reason = "SESSION", .field = "session"});
}

}  // namespace

SessionTable::SessionTable(SessionTableOptions options, Supervisor& supervisor, const Fleet& fleet,
                           Tuner& tuner, Store& store)
    : supervisor_(supervisor),
      fleet_(fleet),
      tuner_(tuner),
      chooser_(tuner, store, std::move(options.build)),
      budget_(options.limits.total_bytes, options.limits.total_buffers),
      pace_(options.limits.shared_transfer_bytes *
            std::max<int64_t>(1, std::ssize(options.compile_cores))),
      executor_(std::make_unique<Executor>(kThreads)) {
  host_.limits = options.limits;
  host_.supervisor = &supervisor_;
  host_.chooser = &chooser_;
  host_.tuner = &tuner_;
  host_.index = &index_;
  host_.counts = &counts_;
  host_.pace = &pace_;
  host_.executor = executor_.get();
  host_.runner_args = std::move(options.runner_args);
  host_.compile_cores = std::move(options.compile_cores);
  reaper_ = std::thread([this] { Reap(); });
}

SessionTable::~SessionTable() {
  CloseAll();
  reaper_.join();
  // Runs that were ended are told by the supervisor; what they hold refers to this.
  while (host_.pending.load() > 0) absl::SleepFor(absl::Milliseconds(1));
  executor_ = nullptr;
}

absl::StatusOr<v1::Session> SessionTable::Open(const v1::OpenSessionRequest& request,
                                               const std::string& principal) {
  BEAMD_ASSIGN_OR_RETURN(const TuningDevice* const device, tuner_.SelectDevice(request.device()));
  BEAMD_RETURN_IF_ERROR(tuner_.CheckServes(*device));
  const SessionLimits& limits = host_.limits;
  absl::Duration lease = limits.lease;
  if (request.has_lease()) {
    lease = absl::Seconds(request.lease().seconds()) + absl::Nanoseconds(request.lease().nanos());
  }
  if (lease <= absl::ZeroDuration() || lease > limits.longest_lease) {
    return InvalidArgument(
        absl::StrCat("a lease is above 0 and at most ", absl::FormatDuration(limits.longest_lease)),
        {.reason = "LEASE",
         .field = "lease",
         .limit = absl::ToInt64Seconds(limits.longest_lease),
         .value = absl::ToInt64Seconds(lease)});
  }
  SessionDevice on{.device = device, .own_memory = device->caps.kind != TargetKind::kCpu};
  BEAMD_ASSIGN_OR_RETURN(on.page, RunPage::Create());
  BEAMD_ASSIGN_OR_RETURN(on.group_turn, GroupTurn(principal, device->id));
  for (const FleetDevice& from : fleet_.devices) {
    if (from.description.id() != device->id) continue;
    on.turn = TurnAttachment(from.turn);
    on.cores = from.cores;
    on.sandbox = from.sandbox;
  }
  BEAMD_ASSIGN_OR_RETURN(std::string id, NewSecret(kIdBytes));
  auto session = std::make_shared<Session>(host_, std::move(on), id, principal, UseOf(principal),
                                           request.label(), lease);
  {
    MutexLock lock(mutex_);
    if (stopping_) return absl::UnavailableError("shutting down");
    const auto all = static_cast<int64_t>(sessions_.size());
    const auto mine = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
      return entry.second->principal() == principal;
    });
    const bool own = mine >= limits.principal_sessions;
    const int64_t limit = own ? limits.principal_sessions : limits.sessions;
    if (own || all >= limits.sessions) {
      return WithDetail(
          absl::ResourceExhaustedError(absl::StrCat(own ? "you have " : "the server has ",
                                                    own ? mine : all, " sessions open of ", limit)),
          {.reason = own ? "PRINCIPAL_SESSIONS" : "SESSIONS",
           .limit = limit,
           .value = (own ? mine : all) + 1});
    }
    sessions_[id] = session;
  }
  spdlog::info("session={} principal={} device={} label=\"{}\" opened", id, principal, device->id,
               absl::CEscape(request.label()));
  return session->Describe();
}

std::shared_ptr<PrincipalUse> SessionTable::UseOf(const std::string& principal) {
  MutexLock lock(mutex_);
  std::erase_if(uses_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<PrincipalUse>& held = uses_[principal];
  std::shared_ptr<PrincipalUse> use = held.lock();
  if (use == nullptr) {
    use = std::make_shared<PrincipalUse>(host_.limits, &budget_);
    held = use;
  }
  return use;
}

absl::StatusOr<std::shared_ptr<DeviceTurn>> SessionTable::GroupTurn(const std::string& principal,
                                                                    const std::string& device) {
  MutexLock lock(mutex_);
  std::erase_if(group_turns_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<DeviceTurn>& held = group_turns_[{principal, device}];
  if (std::shared_ptr<DeviceTurn> turn = held.lock()) return turn;
  BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<DeviceTurn> turn, DeviceTurn::Create());
  held = turn;
  return turn;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Find(const std::string& id,
                                                            const std::string& principal) {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mutex_);
    if (const auto it = sessions_.find(id); it != sessions_.end()) session = it->second;
  }
  if (session == nullptr || session->principal() != principal || !session->Touch(SteadyNow())) {
    return NoSession(id);
  }
  return session;
}

absl::StatusOr<v1::CloseSessionResponse> SessionTable::Close(const std::string& id,
                                                             const std::string& principal) {
  BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, Find(id, principal));
  {
    MutexLock lock(mutex_);
    sessions_.erase(id);
  }
  v1::CloseSessionResponse response;
  response.set_bytes(static_cast<uint64_t>(session->Close()));
  spdlog::info("session={} principal={} closed", id, principal);
  return response;
}

void SessionTable::CloseAll() {
  std::map<std::string, std::shared_ptr<Session>> sessions;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    host_.stopping = true;
    sessions.swap(sessions_);
    changed_.NotifyAll();
  }
  for (const auto& [id, session] : sessions) session->Close();
}

SessionTable::Load SessionTable::load() const {
  Load load{.bytes = budget_.bytes(), .buffers = budget_.buffers(), .runs = counts_.Get()};
  MutexLock lock(mutex_);
  load.sessions = static_cast<int64_t>(sessions_.size());
  return load;
}

void SessionTable::Reap() {
  while (true) {
    std::vector<std::shared_ptr<Session>> ended;
    {
      MutexLock lock(mutex_);
      if (!stopping_) changed_.WaitUntil(mutex_, SteadyNow() + kReapInterval);
      if (stopping_) return;
      const absl::Time now = SteadyNow();
      for (auto it = sessions_.begin(); it != sessions_.end();) {
        if (it->second->expires() > now) {
          it->second->Trim(now);
          ++it;
          continue;
        }
        ended.push_back(std::move(it->second));
        it = sessions_.erase(it);
      }
    }
    for (const std::shared_ptr<Session>& session : ended) {
      const int64_t bytes = session->Close();
      spdlog::info("session={} principal={} lease ended, {} bytes freed", session->id(),
                   session->principal(), bytes);
    }
  }
}

}  // namespace beamd

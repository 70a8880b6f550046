// The sessions that there are: who may use them, and when they end.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "proto/beamd/v1/executor.pb.h"
#include "server/services/executor.h"
#include "server/sessions/session.h"
#include "server/store/store.h"
#include "server/tuning/tuner.h"
#include "server/workers/fleet.h"
#include "server/workers/supervisor.h"

namespace beamd {

struct SessionTableOptions {
  SessionLimits limits;
  // argv that makes this executable a session's runner.
  std::vector<std::string> runner_args = {"session"};
  std::vector<int> compile_cores;
  // What machine code must not outlive.
  std::string build;
};

// Thread-safe.
class SessionTable {
 public:
  // What it is given must outlive it.
  SessionTable(SessionTableOptions options, Supervisor& supervisor, const Fleet& fleet,
               Tuner& tuner, Store& store);
  // Ends them all, and waits for what they run.
  ~SessionTable();

  // InvalidArgument: no such device, a lease that is none or longer than the longest; Unavailable:
  // the device is in quarantine; ResourceExhausted.
  absl::StatusOr<v1::Session> Open(const v1::OpenSessionRequest& request,
                                   const std::string& principal);
  // Begins its lease anew. NotFound, the same for a session of another principal as for none.
  absl::StatusOr<std::shared_ptr<Session>> Find(const std::string& id,
                                                const std::string& principal);
  absl::StatusOr<v1::CloseSessionResponse> Close(const std::string& id,
                                                 const std::string& principal);
  // Ends them all; none is opened any more.
  void CloseAll();

  const SessionLimits& limits() const { return host_.limits; }
  struct Load {
    int64_t sessions = 0, bytes = 0, buffers = 0;
    std::map<std::string, uint64_t> runs;  // by outcome
  };
  Load load() const;

 private:
  void Reap();
  // That all sessions of a principal share; then those on a device.
  std::shared_ptr<PrincipalUse> UseOf(const std::string& principal);
  absl::StatusOr<std::shared_ptr<DeviceTurn>> GroupTurn(const std::string& principal,
                                                        const std::string& device);

  Supervisor& supervisor_;
  const Fleet& fleet_;
  Tuner& tuner_;
  KernelChooser chooser_;
  Budget budget_;
  ContentIndex index_;
  RunCounts counts_;
  TransferPace pace_;
  SessionHost host_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Session>> sessions_ BEAMD_GUARDED_BY(mutex_);
  // By principal, and by principal and device, while somebody has them.
  std::map<std::string, std::weak_ptr<PrincipalUse>> uses_ BEAMD_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, std::weak_ptr<DeviceTurn>> group_turns_
      BEAMD_GUARDED_BY(mutex_);
  std::unique_ptr<Executor> executor_;
  std::thread reaper_;  // last: it uses all of the above
};

}  // namespace beamd

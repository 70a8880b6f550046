// What every call passes on its way in and out: who it is and whether it may, then threads to be
// handled on; at its end it is counted, logged, audited and, if wished, written as a span.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/auth/audit.h"
#include "server/auth/caller.h"
#include "server/auth/gate.h"
#include "server/auth/principal.h"
#include "server/metrics/metrics.h"
#include "server/metrics/spans.h"
#include "server/services/executor.h"
#include "server/services/local_users.h"
#include "server/services/trace.h"

namespace beamd {

// A call between its arrival and its answer.
struct Visit {
  const char* method = "";  // "Tuner.Lookup"
  std::string host;
  std::string peer;  // as gRPC names it: "ipv4:127.0.0.1:4242"
  Principal principal;
  Trace trace;
  absl::Time began;
  absl::Time deadline;
  // Not OK: the call must end with this, and nothing may be done for it.
  absl::Status admitted;
  Gate::Stream stream;
  // What it acts on, as far as that is known. Whoever handles the call fills it in.
  AuditObject object;

  Caller caller() const { return {.principal = principal.name, .trace = trace.id}; }
};

// What it is made of must outlive it; those that are null aren't wanted.
struct DeskParts {
  Gate* gate = nullptr;
  Metrics* metrics = nullptr;
  Audit* audit = nullptr;
  SpanFile* spans = nullptr;
  int handler_threads = 4;
};

// Thread-safe.
class Desk {
 public:
  explicit Desk(const DeskParts& parts);

  // The client's trace, or a new one, is told to it in the initial metadata.
  Visit Enter(grpc::CallbackServerContext& context, const char* method);
  // The same for a call that answers with a stream, which counts against its principal.
  Visit EnterStream(grpc::CallbackServerContext& context, const char* method);
  // What the call asked for is under way, a line of the audit before it ends: ACCEPTED where a job
  // began for it, JOINED where it watches another's, ANSWERED where the store had it.
  void Began(const Visit& visit, const AuditObject& object, const v1::TuneAccepted& accepted);
  // A part of the call failed, which goes on: a line of its own.
  void PartFailed(const Visit& visit, const AuditObject& object, absl::StatusCode code,
                  absl::string_view reason);
  // Once, with what the call ends with.
  void Leave(const Visit& visit, const absl::Status& status);

  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }
  Metrics* metrics() const { return parts_.metrics; }
  LocalUsers& local_users() { return local_users_; }

 private:
  // How many strangers' lines were left out of the audit before this one; nullopt: this one is too.
  std::optional<int64_t> StrangerTurn();
  void WriteAudit(const AuditEntry& entry);

  const DeskParts parts_;
  LocalUsers local_users_;
  Mutex mutex_;
  double stranger_lines_ BEAMD_GUARDED_BY(mutex_);  // that may still be written
  absl::Time strangers_at_ BEAMD_GUARDED_BY(mutex_);
  int64_t strangers_left_out_ BEAMD_GUARDED_BY(mutex_) = 0;
  Executor executor_;  // last: its threads use all of the above
};

}  // namespace beamd

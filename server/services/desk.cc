#include "server/services/desk.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/error_detail.h"
#include "engine/base/steady_clock.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

absl::string_view ToView(const grpc::string_ref& text) { return {text.data(), text.size()}; }

absl::string_view Metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find(name);
  return it == metadata.end() ? absl::string_view() : ToView(it->second);
}

Trace StartTrace(grpc::CallbackServerContext& context) {
  Trace trace = TraceFromHeader(Metadata(context, "traceparent"));
  context.AddInitialMetadata("traceparent", trace.Header());
  return trace;
}

Evidence EvidenceOf(const grpc::CallbackServerContext& context, const LocalUsers& users) {
  const std::string peer = context.peer();
  Evidence evidence{.host = HostOfPeer(peer), .uid = users.Find(peer)};
  const absl::string_view authorization = Metadata(context, "authorization");
  // RFC 6750, section 2.1; the scheme is in either case.
  constexpr absl::string_view kBearer = "bearer ";
  if (absl::StartsWithIgnoreCase(authorization, kBearer)) {
    evidence.token = std::string(authorization.substr(kBearer.size()));
  }
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return evidence;
  for (const char* property : {"x509_common_name", "x509_subject_alternative_name"}) {
    for (const grpc::string_ref& name : auth->FindPropertyValues(property)) {
      evidence.certificate_names.emplace_back(name.data(), name.size());
    }
  }
  return evidence;
}

// Strangers' lines of the audit, so that they can't fill its disk: so many at once, and so many a
// second. The log has all.
constexpr double kStrangerBurst = 100, kStrangersASecond = 1;

// What a session does once it is there, thousands of times a second: its opening and its closing
// have their lines, and so have its refusals.
bool IsSessionStep(absl::string_view method) {
  constexpr absl::string_view kSteps[] = {"Executor.BeginUpload", "Executor.Download",
                                          "Executor.Free",        "Executor.KeepAlive",
                                          "Executor.Run",         "Executor.Upload"};
  return std::find(std::begin(kSteps), std::end(kSteps), method) != std::end(kSteps);
}

bool IsAudited(const Visit& visit, const absl::Status& status) {
  if (status.ok() && IsSessionStep(visit.method)) return false;
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
         RoleFor(visit.method) > Role::kReader;
}

std::string ReasonOf(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail ? detail->reason : "";
}

}  // namespace

Desk::Desk(const DeskParts& parts)
    : parts_(parts),
      stranger_lines_(kStrangerBurst),
      strangers_at_(SteadyNow()),
      executor_(parts.handler_threads) {}

Visit Desk::Enter(grpc::CallbackServerContext& context, const char* method) {
  Visit visit{.method = method,
              .trace = StartTrace(context),
              .began = absl::Now(),
              .deadline = absl::FromChrono(context.deadline())};
  const Evidence evidence = EvidenceOf(context, local_users_);
  visit.host = evidence.host;
  visit.peer = context.peer();
  absl::StatusOr<Principal> principal = parts_.gate->Identify(evidence);
  if (!principal.ok()) {
    visit.admitted = principal.status();
    return visit;
  }
  visit.principal = *std::move(principal);
  visit.admitted = parts_.gate->Admit(visit.principal, method, SteadyNow());
  return visit;
}

Visit Desk::EnterStream(grpc::CallbackServerContext& context, const char* method) {
  Visit visit = Enter(context, method);
  if (!visit.admitted.ok()) return visit;
  absl::StatusOr<Gate::Stream> stream = parts_.gate->OpenStream(visit.principal);
  if (stream.ok()) {
    visit.stream = *std::move(stream);
  } else {
    visit.admitted = stream.status();
  }
  return visit;
}

std::optional<int64_t> Desk::StrangerTurn() {
  const absl::Time now = SteadyNow();
  MutexLock lock(mutex_);
  stranger_lines_ += absl::ToDoubleSeconds(now - strangers_at_) * kStrangersASecond;
  stranger_lines_ = std::min(stranger_lines_, kStrangerBurst);
  strangers_at_ = now;
  if (stranger_lines_ < 1) {
    ++strangers_left_out_;
    return std::nullopt;
  }
  stranger_lines_ -= 1;
  return std::exchange(strangers_left_out_, 0);
}

void Desk::WriteAudit(const AuditEntry& entry) {
  const absl::Status written = parts_.audit->Write(entry);
  if (!written.ok()) spdlog::error("{}", written.ToString());
}

void Desk::Began(const Visit& visit, const AuditObject& object, const v1::TuneAccepted& accepted) {
  if (parts_.audit == nullptr) return;
  WriteAudit({.at = absl::Now(),
              .principal = visit.principal.name,
              .host = visit.host,
              .method = visit.method,
              .code = accepted.job().empty() ? "ANSWERED"
                      : accepted.joined()    ? "JOINED"
                                             : "ACCEPTED",
              .trace = visit.trace.id,
              .object = object});
}

void Desk::PartFailed(const Visit& visit, const AuditObject& object, absl::StatusCode code,
                      absl::string_view reason) {
  if (parts_.audit == nullptr) return;
  const std::string name = absl::StatusCodeToString(code);
  WriteAudit({.at = absl::Now(),
              .principal = visit.principal.name,
              .host = visit.host,
              .method = visit.method,
              .code = name,
              .trace = visit.trace.id,
              .reason = reason,
              .object = object});
}

void Desk::Leave(const Visit& visit, const absl::Status& status) {
  const absl::Time now = absl::Now();
  const absl::Duration took = now - visit.began;
  const std::string code = absl::StatusCodeToString(status.code());
  parts_.metrics->CallEnded(visit.method, code, took);
  const double ms = absl::ToDoubleMilliseconds(took);
  if (status.ok()) {
    spdlog::debug("method={} principal={} trace={} ms={:.2f}", visit.method, visit.principal.name,
                  visit.trace.id, ms);
  } else {
    spdlog::info("method={} principal={} host={} trace={} ms={:.2f} failed: {}", visit.method,
                 visit.principal.name, visit.host, visit.trace.id, ms,
                 status.ToString(absl::StatusToStringMode::kWithNoExtraData));
  }
  if (parts_.audit != nullptr && IsAudited(visit, status)) {
    AuditEntry entry{.at = now,
                     .principal = visit.principal.name,
                     .host = visit.host,
                     .method = visit.method,
                     .code = code,
                     .trace = visit.trace.id,
                     .object = visit.object};
    const std::string reason = ReasonOf(status);
    entry.reason = reason;
    std::optional<int64_t> left_out = 0;
    if (absl::IsUnauthenticated(status)) {
      left_out = StrangerTurn();
      SetNamed(entry.object, "peer", visit.peer);
    }
    if (left_out && *left_out > 0) SetNamed(entry.object, "left_out", absl::StrCat(*left_out));
    if (left_out) WriteAudit(entry);
  }
  if (parts_.spans != nullptr && visit.trace.sampled) {
    parts_.spans->Write({.trace = visit.trace.id,
                         .id = visit.trace.span,
                         .parent = visit.trace.parent,
                         .name = visit.method,
                         .begin = visit.began,
                         .end = now,
                         .code = code});
  }
}

}  // namespace beamd

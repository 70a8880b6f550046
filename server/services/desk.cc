#include "server/services/desk.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
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

bool IsAudited(const Visit& visit, const absl::Status& status) {
  if (absl::IsUnauthenticated(status)) return false;  // nobody yet; the log has it
  return absl::IsPermissionDenied(status) || RoleFor(visit.method) > Role::kReader;
}

}  // namespace

Desk::Desk(const DeskParts& parts) : parts_(parts), executor_(parts.handler_threads) {}

Visit Desk::Enter(grpc::CallbackServerContext& context, const char* method) {
  Visit visit{.method = method,
              .trace = StartTrace(context),
              .began = absl::Now(),
              .deadline = absl::FromChrono(context.deadline())};
  const Evidence evidence = EvidenceOf(context, local_users_);
  visit.host = evidence.host;
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
    const absl::Status written = parts_.audit->Write({.at = now,
                                                      .principal = visit.principal.name,
                                                      .host = visit.host,
                                                      .method = visit.method,
                                                      .code = code,
                                                      .trace = visit.trace.id});
    if (!written.ok()) spdlog::error("{}", written.ToString());
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

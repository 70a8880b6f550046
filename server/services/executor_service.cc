#include "server/services/executor_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/services/reply.h"
#include "server/services/transfer.h"

namespace beamd {

RawUnary ExecutorService::OpenSession(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto call =
      std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.OpenSession");
  return Reply<v1::OpenSessionRequest, v1::Session>(
      call, [this, call](const v1::OpenSessionRequest& req, v1::Session& resp) -> absl::Status {
        BEAMD_ASSIGN_OR_RETURN(resp, sessions_.Open(req, call->visit().principal.name));
        return absl::OkStatus();
      });
}

RawUnary ExecutorService::KeepAlive(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.KeepAlive");
  return Reply<v1::KeepAliveRequest, v1::Session>(
      call, [this, call](const v1::KeepAliveRequest& req, v1::Session& resp) -> absl::Status {
        BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                               sessions_.Find(req.session(), call->visit().principal.name));
        resp = session->Describe();
        return absl::OkStatus();
      });
}

RawUnary ExecutorService::CloseSession(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) {
  auto call =
      std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.CloseSession");
  return Reply<v1::CloseSessionRequest, v1::CloseSessionResponse>(
      call,
      [this, call](const v1::CloseSessionRequest& req,
                   v1::CloseSessionResponse& resp) -> absl::Status {
        BEAMD_ASSIGN_OR_RETURN(resp, sessions_.Close(req.session(), call->visit().principal.name));
        return absl::OkStatus();
      });
}

RawUnary ExecutorService::BeginUpload(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto call =
      std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.BeginUpload");
  return Reply<v1::BeginUploadRequest, v1::BeginUploadResponse>(
      call,
      [this, call](const v1::BeginUploadRequest& req,
                   v1::BeginUploadResponse& resp) -> absl::Status {
        BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                               sessions_.Find(req.session(), call->visit().principal.name));
        BEAMD_ASSIGN_OR_RETURN(resp, session->BeginUpload(req));
        return absl::OkStatus();
      });
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ExecutorService::Upload(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  return StartUpload(sessions_, desk_, context, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ExecutorService::Download(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartDownload(sessions_, desk_, context, request);
}

RawUnary ExecutorService::Free(grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.Free");
  return Reply<v1::FreeRequest, v1::FreeResponse>(
      call, [this, call](const v1::FreeRequest& req, v1::FreeResponse& resp) -> absl::Status {
        BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                               sessions_.Find(req.session(), call->visit().principal.name));
        BEAMD_ASSIGN_OR_RETURN(
            const int64_t bytes,
            session->Free({req.handles().data(), static_cast<size_t>(req.handles_size())}));
        resp.set_bytes(static_cast<uint64_t>(bytes));
        return absl::OkStatus();
      });
}

RawUnary ExecutorService::Run(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                              grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.Run");
  RawUnary reactor = call->reactor();
  Post(call, [this, call, context] {
    v1::RunRequest req;
    if (const absl::Status status = ParseRequest(call->request(), req); !status.ok()) {
      return call->Fail(status);
    }
    const absl::StatusOr<std::shared_ptr<Session>> session =
        sessions_.Find(req.session(), call->visit().principal.name);
    if (!session.ok()) return call->Fail(session.status());
    (*session)->Run(
        std::move(req), call->visit().caller(), [context] { return context->IsCancelled(); },
        [call](const absl::StatusOr<v1::RunResponse>& answer) {
          if (answer.ok()) {
            call->Finish(absl::OkStatus(), *answer);
          } else {
            call->Fail(answer.status());
          }
        });
  });
  return reactor;
}

}  // namespace beamd

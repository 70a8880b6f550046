#include "server/services/executor_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "server/services/reply.h"
#include "server/services/transfer.h"
#include "server/workers/cancel.h"
#include "server/workers/codec.h"

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
  const auto cancel = std::make_shared<CancelToken>();
  auto call =
      std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.Run", cancel);
  RawUnary reactor = call->reactor();
  Receive<v1::RunRequest>(call, [this, call, cancel](v1::RunRequest& req) {
    const absl::StatusOr<std::shared_ptr<Session>> session =
        sessions_.Find(req.session(), call->visit().principal.name);
    if (!session.ok()) return call->Fail(session.status());
    (*session)->Run(std::move(req), call->visit().caller(), cancel,
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

RawUnary ExecutorService::ScheduleModel(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) {
  auto call =
      std::make_shared<UnaryCall>(desk_, context, request, response, "Executor.ScheduleModel");
  RawUnary reactor = call->reactor();
  Receive<v1::ScheduleModelRequest>(call, [this, call](const v1::ScheduleModelRequest& req) {
    if (const absl::Status status = SubmitSchedule(req, call); !status.ok()) call->Fail(status);
  });
  return reactor;
}

absl::Status ExecutorService::SubmitSchedule(const v1::ScheduleModelRequest& request,
                                             const std::shared_ptr<UnaryCall>& call) {
  const int64_t most = sessions_.limits().graph_nodes;
  if (request.graph().nodes_size() > most) {
    return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                          "the graph has ", request.graph().nodes_size(), " nodes, over ", most)),
                      {.reason = "NODES",
                       .field = "graph.nodes",
                       .limit = most,
                       .value = request.graph().nodes_size()});
  }
  BEAMD_ASSIGN_OR_RETURN(const TuningDevice* const device, tuner_.SelectDevice(request.device()));
  PoolTask task{.owner = supervisor_.NewId(),
                .claim = {.principal = call->visit().principal.name},
                .limit = sessions_.limits().plan_time,
                .growth_limit_bytes = sessions_.limits().plan_bytes};
  task.request.set_trace(call->visit().trace.id);
  *task.request.mutable_plan()->mutable_graph() = request.graph();
  *task.request.mutable_plan()->mutable_caps() = ToFrame(device->caps);
  task.done = [this, call, request, id = device->id](TaskEnd end) {
    // It looks into the store: not on the supervisor's thread.
    call->desk().executor().Post([this, call, request, id, end = std::move(end)] {
      v1::ScheduleModelResponse response;
      const absl::Status status = DescribeModel(request, id, end, response);
      call->Finish(status, response);
    });
  };
  supervisor_.Submit(fleet_.workers, std::move(task));
  return absl::OkStatus();
}

absl::Status ExecutorService::DescribeModel(const v1::ScheduleModelRequest& request,
                                            const std::string& device, const TaskEnd& end,
                                            v1::ScheduleModelResponse& response) {
  if (end.outcome == TaskOutcome::kTimeout) {
    return WithDetail(
        absl::DeadlineExceededError(absl::StrCat("scheduling the graph: ", end.detail)),
        {.reason = "PLAN_TIMEOUT"});
  }
  if (end.outcome != TaskOutcome::kDone) {
    return WithDetail(absl::AbortedError(absl::StrCat("scheduling the graph ended its worker (",
                                                      Name(end.outcome), "): ", end.detail)),
                      {.reason = "PLAN_CRASHED"});
  }
  const internal::PlanReply& planned = end.reply.planned();
  BEAMD_RETURN_IF_ERROR(FromFrame(planned.outcome()));
  response.set_device(device);
  response.set_launches(planned.launches());
  for (const internal::PlanKernel& kernel : planned.kernels()) {
    v1::ModelKernel& to = *response.add_kernels();
    to.set_name(kernel.name());
    *to.mutable_graph() = kernel.graph();
    to.set_kernel_hash(kernel.hash());
    to.set_launches(kernel.launches());
    to.set_flops(kernel.flops());
    to.set_bytes(kernel.bytes());
    *to.mutable_heuristic_opts() = kernel.heuristic_opts();
    v1::LookupQuery query;
    *query.mutable_graph() = kernel.graph();
    *query.mutable_search() = request.search();
    query.mutable_device()->set_id(device);
    query.set_match(request.match());
    BEAMD_ASSIGN_OR_RETURN(v1::LookupAnswer answer, tuner_.Lookup(query));
    if (!answer.has_hit()) continue;
    to.set_match(answer.hit().match());
    *to.mutable_record() = std::move(*answer.mutable_hit()->mutable_record());
  }
  return absl::OkStatus();
}

}  // namespace beamd

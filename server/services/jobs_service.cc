#include "server/services/jobs_service.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "server/auth/principal.h"
#include "server/services/reply.h"
#include "server/services/tune_stream.h"

namespace beamd {
namespace {

constexpr uint32_t kDefaultPage = 100;
constexpr uint32_t kLargestPage = 1000;

}  // namespace

grpc::ServerUnaryReactor* JobsService::List(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return Reply<v1::ListJobsRequest, v1::ListJobsResponse>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Jobs.List"),
      [this](const v1::ListJobsRequest& req, v1::ListJobsResponse& resp) -> absl::Status {
        const uint32_t size =
            std::min(req.page_size() == 0 ? kDefaultPage : req.page_size(), kLargestPage);
        BEAMD_ASSIGN_OR_RETURN(std::vector<v1::Job> jobs,
                               tuner_.ListJobs(req.page_token(), static_cast<int>(size) + 1));
        if (jobs.size() > size) {
          jobs.pop_back();
          resp.set_next_page_token(jobs.back().id());
        }
        for (v1::Job& job : jobs) *resp.add_jobs() = std::move(job);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* JobsService::Get(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) {
  return Reply<v1::GetJobRequest, v1::Job>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Jobs.Get"),
      [this](const v1::GetJobRequest& req, v1::Job& resp) -> absl::Status {
        BEAMD_ASSIGN_OR_RETURN(resp, tuner_.GetJob(req.id()));
        return absl::OkStatus();
      });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobsService::Watch(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  return StartTuneStream(
      "Jobs.Watch", std::make_unique<v1::WatchJobRequest>(),
      [this](const google::protobuf::Message& request, const Caller&,
             std::function<void()> changed) {
        return tuner_.WatchJob(static_cast<const v1::WatchJobRequest&>(request).id(),
                               std::move(changed));
      },
      nullptr, desk_, context, request);
}

grpc::ServerUnaryReactor* JobsService::Cancel(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  auto call = std::make_shared<UnaryCall>(desk_, context, request, response, "Jobs.Cancel");
  return Reply<v1::CancelJobRequest, v1::Job>(
      call,
      [this, principal = call->visit().principal](const v1::CancelJobRequest& req,
                                                  v1::Job& resp) -> absl::Status {
        BEAMD_ASSIGN_OR_RETURN(const v1::Job job, tuner_.GetJob(req.id()));
        if (principal.role < Role::kAdmin && job.principal() != principal.name) {
          return WithDetail(
              absl::PermissionDeniedError(absl::StrCat("job ", req.id(), " is of ", job.principal(),
                                                       ": only an admin may cancel others' jobs")),
              {.reason = "ROLE", .field = "id"});
        }
        BEAMD_ASSIGN_OR_RETURN(resp, tuner_.CancelJob(req.id()));
        return absl::OkStatus();
      });
}

}  // namespace beamd

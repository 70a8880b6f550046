#include "client/cc/client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/thin/channel.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/admin.grpc.pb.h"
#include "proto/beamd/v1/batch.grpc.pb.h"
#include "proto/beamd/v1/executor.grpc.pb.h"
#include "proto/beamd/v1/jobs.grpc.pb.h"
#include "proto/beamd/v1/tuning.grpc.pb.h"

namespace beamd {
namespace {

constexpr absl::Duration kReattachEvery = absl::Milliseconds(200);

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::StatusDetails details;
  v1::ErrorDetail from;
  if (!details.ParseFromString(status.error_details()) || details.details().empty() ||
      !details.details(0).UnpackTo(&from)) {
    return result;
  }
  ErrorDetail detail{.reason = from.reason(), .field = from.field()};
  if (from.has_node()) detail.node = from.node();
  if (from.has_limit()) detail.limit = from.limit();
  if (from.has_value()) detail.value = from.value();
  return WithDetail(std::move(result), detail);
}

void Prepare(grpc::ClientContext& context, const CallOptions& options) {
  if (options.deadline != absl::InfiniteFuture()) {
    context.set_deadline(absl::ToChronoTime(options.deadline));
  }
  if (!options.traceparent.empty()) context.AddMetadata("traceparent", options.traceparent);
}

// Of a stream of TuneEvents.
absl::StatusOr<v1::TuneResult> ReadEvents(
    grpc::ClientContext& context, grpc::ClientReader<v1::TuneEvent>& reader,
    const std::function<bool(const v1::TuneEvent&)>& on_event) {
  v1::TuneEvent event;
  v1::TuneResult result;
  bool ended = false;
  while (reader.Read(&event)) {
    ended = event.has_result();
    if (ended) result = std::move(*event.mutable_result());
    if (!ended && !on_event(event)) context.TryCancel();
  }
  const absl::Status status = FromGrpcStatus(reader.Finish());
  if (!status.ok()) return status;
  if (!ended) return absl::InternalError("the stream ended without a result");
  return result;
}

// Of a stream of answers.
template <typename Message>
absl::Status ReadAll(grpc::ClientContext& context, grpc::ClientReader<Message>& reader,
                     const std::function<absl::Status(const Message&)>& take) {
  absl::Status taken;
  Message message;
  while (reader.Read(&message)) {
    if (taken.ok()) taken = take(message);
    if (!taken.ok()) context.TryCancel();
  }
  const absl::Status status = FromGrpcStatus(reader.Finish());
  return taken.ok() ? status : taken;
}

template <typename Response, typename Stub, typename Request>
absl::StatusOr<Response> Call(Stub& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request, const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(context, options);
  Response response;
  const absl::Status status = FromGrpcStatus((stub.*method)(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

}  // namespace

struct Client::Stubs {
  std::unique_ptr<v1::Tuner::Stub> tuner;
  std::unique_ptr<v1::Records::Stub> records;
  std::unique_ptr<v1::Devices::Stub> devices;
  std::unique_ptr<v1::Inspector::Stub> inspector;
  std::unique_ptr<v1::Jobs::Stub> jobs;
  std::unique_ptr<v1::Batches::Stub> batches;
  std::unique_ptr<v1::Executor::Stub> executor;
  std::unique_ptr<v1::Admin::Stub> admin;
};

std::unique_ptr<Client> Client::Create(const std::string& address) {
  // Without files there is nothing to go wrong.
  return *Create(address, {});
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const std::string& address,
                                                       const Credentials& credentials) {
  BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                         MakeChannel(address, credentials));
  auto stubs = std::make_unique<Stubs>();
  stubs->tuner = v1::Tuner::NewStub(channel);
  stubs->records = v1::Records::NewStub(channel);
  stubs->devices = v1::Devices::NewStub(channel);
  stubs->inspector = v1::Inspector::NewStub(channel);
  stubs->jobs = v1::Jobs::NewStub(channel);
  stubs->batches = v1::Batches::NewStub(channel);
  stubs->executor = v1::Executor::NewStub(channel);
  stubs->admin = v1::Admin::NewStub(channel);
  return std::unique_ptr<Client>(new Client(std::move(stubs)));
}

Client::Client(std::unique_ptr<Stubs> stubs) : stubs_(std::move(stubs)) {}

Client::~Client() = default;

absl::StatusOr<v1::TuneResult> Client::Tune(
    const v1::TuneRequest& request, const std::function<bool(const v1::TuneEvent&)>& on_event,
    const CallOptions& options) {
  std::string job;
  const auto noting = [&](const v1::TuneEvent& event) {
    if (event.has_accepted()) job = event.accepted().job();
    return on_event(event);
  };
  grpc::ClientContext context;
  Prepare(context, options);
  absl::StatusOr<v1::TuneResult> result =
      ReadEvents(context, *stubs_->tuner->Tune(&context, request), noting);
  // The connection, or the daemon, went away; the job has not.
  const absl::Time give_up = std::min(absl::Now() + options.reattach, options.deadline);
  while (absl::IsUnavailable(result.status()) && !job.empty() && absl::Now() < give_up) {
    absl::SleepFor(kReattachEvery);
    result = WatchJob(job, on_event, options);
  }
  return result;
}

absl::StatusOr<v1::TuneResult> Client::WatchJob(
    const std::string& job, const std::function<bool(const v1::TuneEvent&)>& on_event,
    const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(context, options);
  v1::WatchJobRequest request;
  request.set_id(job);
  return ReadEvents(context, *stubs_->jobs->Watch(&context, request), on_event);
}

absl::StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request,
                                                      const CallOptions& options) {
  return Call<v1::ListJobsResponse>(*stubs_->jobs, &v1::Jobs::Stub::List, request, options);
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& id, const CallOptions& options) {
  v1::GetJobRequest request;
  request.set_id(id);
  return Call<v1::Job>(*stubs_->jobs, &v1::Jobs::Stub::Get, request, options);
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& id, const CallOptions& options) {
  v1::CancelJobRequest request;
  request.set_id(id);
  return Call<v1::Job>(*stubs_->jobs, &v1::Jobs::Stub::Cancel, request, options);
}

absl::StatusOr<v1::LookupResponse> Client::Lookup(const v1::LookupRequest& request,
                                                  const CallOptions& options) {
  return Call<v1::LookupResponse>(*stubs_->tuner, &v1::Tuner::Stub::Lookup, request, options);
}

absl::StatusOr<v1::ScheduleModelResponse> Client::ScheduleModel(
    const v1::ScheduleModelRequest& request, const CallOptions& options) {
  return Call<v1::ScheduleModelResponse>(*stubs_->executor, &v1::Executor::Stub::ScheduleModel,
                                         request, options);
}

absl::StatusOr<v1::ListRecordsResponse> Client::ListRecords(const v1::ListRecordsRequest& request,
                                                            const CallOptions& options) {
  return Call<v1::ListRecordsResponse>(*stubs_->records, &v1::Records::Stub::List, request,
                                       options);
}

absl::StatusOr<v1::GetRecordResponse> Client::GetRecord(const v1::GetRecordRequest& request,
                                                        const CallOptions& options) {
  return Call<v1::GetRecordResponse>(*stubs_->records, &v1::Records::Stub::Get, request, options);
}

absl::StatusOr<v1::ResolveResponse> Client::Resolve(const v1::ResolveRequest& request,
                                                    const CallOptions& options) {
  return Call<v1::ResolveResponse>(*stubs_->records, &v1::Records::Stub::Resolve, request, options);
}

absl::StatusOr<v1::ExplainResponse> Client::Explain(const v1::ExplainRequest& request,
                                                    const CallOptions& options) {
  return Call<v1::ExplainResponse>(*stubs_->records, &v1::Records::Stub::Explain, request, options);
}

absl::StatusOr<v1::ReplayResponse> Client::Replay(const v1::ReplayRequest& request,
                                                  const CallOptions& options) {
  return Call<v1::ReplayResponse>(*stubs_->inspector, &v1::Inspector::Stub::Replay, request,
                                  options);
}

absl::Status Client::Export(const v1::ExportRequest& request,
                            const std::function<absl::Status(const v1::ExportedRecord&)>& on_record,
                            const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(context, options);
  return ReadAll<v1::ExportedRecord>(context, *stubs_->records->Export(&context, request),
                                     on_record);
}

absl::StatusOr<v1::ImportResponse> Client::Import(
    const std::function<absl::StatusOr<bool>(v1::ExportedRecord&)>& next,
    const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(context, options);
  v1::ImportResponse response;
  const auto writer = stubs_->records->Import(&context, &response);
  v1::ExportedRecord record;
  absl::StatusOr<bool> more = next(record);
  while (more.ok() && *more && writer->Write(record)) more = next(record);
  if (!more.ok()) context.TryCancel();
  writer->WritesDone();
  const absl::Status status = FromGrpcStatus(writer->Finish());
  if (!more.ok()) return more.status();
  if (!status.ok()) return status;
  return response;
}

absl::Status Client::Backup(const std::function<absl::Status(const v1::BackupPiece&)>& on_piece,
                            const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(context, options);
  return ReadAll<v1::BackupPiece>(context, *stubs_->admin->Backup(&context, v1::BackupRequest()),
                                  on_piece);
}

absl::Status Client::TuneBatch(const v1::TuneBatchBegin& begin,
                               const std::vector<v1::TuneBatchItem>& items,
                               const std::function<bool(const v1::TuneBatchEvent&)>& on_event,
                               const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(context, options);
  const auto stream = stubs_->batches->Tune(&context);
  // Apart: the daemon answers while it reads, and each waits for the other otherwise.
  std::thread sending([&] {
    v1::TuneBatchRequest request;
    *request.mutable_begin() = begin;
    bool open = stream->Write(request);
    for (size_t i = 0; open && i < items.size(); ++i) {
      *request.mutable_item() = items[i];
      open = stream->Write(request);
    }
    stream->WritesDone();
  });
  v1::TuneBatchEvent event;
  while (stream->Read(&event)) {
    if (!on_event(event)) context.TryCancel();
  }
  sending.join();
  return FromGrpcStatus(stream->Finish());
}

absl::StatusOr<v1::ListDevicesResponse> Client::ListDevices(const CallOptions& options) {
  return Call<v1::ListDevicesResponse>(*stubs_->devices, &v1::Devices::Stub::List,
                                       v1::ListDevicesRequest(), options);
}

absl::StatusOr<v1::Device> Client::ReleaseDevice(const std::string& id,
                                                 const CallOptions& options) {
  v1::ReleaseDeviceRequest request;
  request.set_id(id);
  return Call<v1::Device>(*stubs_->devices, &v1::Devices::Stub::Release, request, options);
}

absl::StatusOr<v1::ShowResponse> Client::Show(const v1::ShowRequest& request,
                                              const CallOptions& options) {
  return Call<v1::ShowResponse>(*stubs_->inspector, &v1::Inspector::Stub::Show, request, options);
}

}  // namespace beamd

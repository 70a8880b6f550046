#include "client/cc/client.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "engine/base/error_detail.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/admin.grpc.pb.h"
#include "proto/beamd/v1/tuning.grpc.pb.h"

namespace beamd {
namespace {

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
};

std::unique_ptr<Client> Client::Create(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  auto stubs = std::make_unique<Stubs>();
  stubs->tuner = v1::Tuner::NewStub(channel);
  stubs->records = v1::Records::NewStub(channel);
  stubs->devices = v1::Devices::NewStub(channel);
  stubs->inspector = v1::Inspector::NewStub(channel);
  return std::unique_ptr<Client>(new Client(std::move(stubs)));
}

Client::Client(std::unique_ptr<Stubs> stubs) : stubs_(std::move(stubs)) {}

Client::~Client() = default;

absl::StatusOr<v1::TuneResult> Client::Tune(
    const v1::TuneRequest& request, const std::function<bool(const v1::TuneEvent&)>& on_event,
    const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(context, options);
  const auto reader = stubs_->tuner->Tune(&context, request);
  v1::TuneEvent event;
  v1::TuneResult result;
  bool ended = false;
  while (reader->Read(&event)) {
    ended = event.has_result();
    if (ended) result = std::move(*event.mutable_result());
    if (!ended && !on_event(event)) context.TryCancel();
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  if (!status.ok()) return status;
  if (!ended) return absl::InternalError("the stream ended without a result");
  return result;
}

absl::StatusOr<v1::LookupResponse> Client::Lookup(const v1::LookupRequest& request,
                                                  const CallOptions& options) {
  return Call<v1::LookupResponse>(*stubs_->tuner, &v1::Tuner::Stub::Lookup, request, options);
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

absl::StatusOr<v1::ListDevicesResponse> Client::ListDevices(const CallOptions& options) {
  return Call<v1::ListDevicesResponse>(*stubs_->devices, &v1::Devices::Stub::List,
                                       v1::ListDevicesRequest(), options);
}

absl::StatusOr<v1::ShowResponse> Client::Show(const v1::ShowRequest& request,
                                              const CallOptions& options) {
  return Call<v1::ShowResponse>(*stubs_->inspector, &v1::Inspector::Stub::Show, request, options);
}

}  // namespace beamd

// How every unary call is answered: parse, run on the executor, map the status, finish.
//
//   return Reply<LookupRequest, LookupResponse>(
//       call, "Lookup", [&](const auto& req, auto& resp) {...});
//
// Methods are raw (bytes in, bytes out), so that bytes which are no request of ours get
// INVALID_ARGUMENT and a reason; gRPC's own answer to them would be UNIMPLEMENTED.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/services/executor.h"
#include "server/services/trace.h"

namespace beamd {

// What a status that is not OK says, in fields; the code's name is the reason where nothing else
// is.
v1::ErrorDetail ToErrorDetail(const absl::Status& status);
// With an ErrorDetail, always, in the details (StatusDetails).
grpc::Status ToGrpcStatus(const absl::Status& status);

// InvalidArgument where the bytes are no such message, or hold what this build doesn't know.
absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message& request);
grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

// The client's trace, or a new one; told to the client in the initial metadata.
Trace StartTrace(grpc::CallbackServerContext& context);

// One unary call. Kept by whoever will answer it.
class UnaryCall {
 public:
  UnaryCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
            grpc::ByteBuffer* response, const char* method);

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }
  const grpc::ByteBuffer& request() const { return *request_; }
  const Trace& trace() const { return trace_; }
  // Once, on any thread; `response` counts where the status is OK. Logs what failed.
  void Finish(const absl::Status& status, const google::protobuf::Message& response);

 private:
  const grpc::ByteBuffer* const request_;
  grpc::ByteBuffer* const response_;
  const char* const method_;
  grpc::ServerUnaryReactor* const reactor_;
  const Trace trace_;
  const absl::Time began_;
};

// Answers with what `handle(request, response)` returns, run on the executor.
template <typename Request, typename Response, typename Handle>
grpc::ServerUnaryReactor* Reply(Executor& executor, std::shared_ptr<UnaryCall> call,
                                Handle handle) {
  grpc::ServerUnaryReactor* reactor = call->reactor();
  executor.Post([call = std::move(call), handle = std::move(handle)] {
    Request request;
    Response response;
    absl::Status status = ParseRequest(call->request(), request);
    if (status.ok()) status = handle(request, response);
    call->Finish(status, response);
  });
  return reactor;
}

}  // namespace beamd

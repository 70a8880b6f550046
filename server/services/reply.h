// How every unary call is answered: let in, parse, run on the executor, map the status, finish.
//
//   return Reply<LookupRequest, LookupResponse>(
//       std::make_shared<UnaryCall>(desk, context, request, response, "Tuner.Lookup"),
//       [&](const auto& req, auto& resp) {...});
//
// Methods are raw (bytes in, bytes out), so that bytes which are no request of ours get
// INVALID_ARGUMENT and a reason; gRPC's own answer to them would be UNIMPLEMENTED.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/services/desk.h"
#include "server/workers/cancel.h"

namespace beamd {

// What a status that is not OK says, in fields, its texts cut at about a thousand bytes; the code's
// name is the reason where nothing else is.
v1::ErrorDetail ToErrorDetail(const absl::Status& status);
// With an ErrorDetail, always, in the details (StatusDetails).
grpc::Status ToGrpcStatus(const absl::Status& status);

// InvalidArgument where the bytes are no such message, or hold too much.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& request);
// The same, and where they hold what this build doesn't know.
absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message& request);
// Names what a request of that type acts on, before anything checks it.
void NameRequest(const grpc::ByteBuffer& bytes, const google::protobuf::Message& type,
                 AuditObject& object);
grpc::ByteBuffer ToBytes(const google::protobuf::Message& message);

// One unary call. Kept by whoever will answer it.
class UnaryCall {
 public:
  // `cancel`, where it is given, is cancelled where nobody waits for the answer any more.
  UnaryCall(Desk& desk, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
            grpc::ByteBuffer* response, const char* method,
            const std::shared_ptr<CancelToken>& cancel = nullptr);

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }
  const grpc::ByteBuffer& request() const { return *request_; }
  Desk& desk() const { return desk_; }
  const Visit& visit() const { return visit_; }
  // What the request, of that type, acts on is noted for the audit, where its caller is known.
  void Name(const google::protobuf::Message& type);
  // Besides what request and answer name.
  void ActsOn(absl::string_view name, absl::string_view value) {
    SetNamed(visit_.object, name, value);
  }
  // Once, on any thread.
  void Finish(const absl::Status& status, const google::protobuf::Message& response);
  void Fail(const absl::Status& status);
  // With an answer that was made before.
  void FinishWith(const grpc::ByteBuffer& response);

 private:
  Desk& desk_;
  const grpc::ByteBuffer* const request_;
  grpc::ByteBuffer* const response_;
  grpc::ServerUnaryReactor* const reactor_;
  Visit visit_;
};

// Runs `work` on the desk's threads, at its caller's turn, where the call was let in and its
// deadline hasn't passed; else answers why not. What takes long posts the rest of itself again.
void Post(const std::shared_ptr<UnaryCall>& call, std::function<void()> work);

// Runs `work(request)` on the desk's threads where the call was let in and its bytes are such a
// request; else answers why not.
template <typename Request, typename Work>
void Receive(const std::shared_ptr<UnaryCall>& call, Work work) {
  call->Name(Request::default_instance());
  Post(call, [call, work = std::move(work)] {
    Request request;
    const absl::Status status = ParseRequest(call->request(), request);
    if (status.ok()) {
      work(request);
    } else {
      call->Fail(status);
    }
  });
}

// Answers with what `handle(request, response)` returns, run on the desk's threads.
template <typename Request, typename Response, typename Handle>
grpc::ServerUnaryReactor* Reply(const std::shared_ptr<UnaryCall>& call, Handle handle) {
  grpc::ServerUnaryReactor* reactor = call->reactor();
  Receive<Request>(call, [call, handle = std::move(handle)](const Request& request) {
    Response response;
    const absl::Status status = handle(request, response);
    call->Finish(status, response);
  });
  return reactor;
}

}  // namespace beamd

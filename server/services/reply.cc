#include "server/services/reply.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "server/services/acted_on.h"
#include "server/services/shortened.h"
#include "server/services/validate.h"

namespace beamd {
namespace {

// Metadata of more than 8 KiB is dropped, and the status with it; the message is in it three times.
constexpr size_t kMostMessageBytes = 1000;
// Requests that are longer wait apart: a caller's small ones don't wait for all of them.
constexpr size_t kLongRequestBytes = 256 << 10;

// Owns itself; ends with the call.
class CancellableReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit CancellableReactor(std::shared_ptr<CancelToken> cancel) : cancel_(std::move(cancel)) {}
  void OnCancel() override { cancel_->Cancel(StopReason::kCancelled); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<CancelToken> cancel_;
};

}  // namespace

v1::ErrorDetail ToErrorDetail(const absl::Status& status) {
  v1::ErrorDetail to;
  to.set_message(Shortened(std::string(status.message()), kMostMessageBytes));
  const std::optional<ErrorDetail> from = GetErrorDetail(status);
  if (!from) {
    to.set_reason(absl::StatusCodeToString(status.code()));
    return to;
  }
  to.set_reason(from->reason);
  to.set_field(Shortened(from->field, kMostMessageBytes));
  if (from->node) {
    // The engine names a field of the node; a client reads the path in its request.
    to.set_node(static_cast<uint32_t>(*from->node));
    to.set_field(
        absl::StrCat("graph.nodes[", *from->node, "]", from->field.empty() ? "" : ".", to.field()));
  }
  if (from->limit) to.set_limit(*from->limit);
  if (from->value) to.set_value(*from->value);
  return to;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::StatusDetails details;
  details.set_code(static_cast<int>(status.code()));
  const v1::ErrorDetail detail = ToErrorDetail(status);
  details.set_message(detail.message());
  details.add_details()->PackFrom(detail);
  return {static_cast<grpc::StatusCode>(status.code()), details.message(),
          details.SerializeAsString()};
}

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& request) {
  // Small ones can't hold that many.
  if (static_cast<int64_t>(bytes.Length()) > kMostElements) {
    grpc::ByteBuffer counted = bytes;
    grpc::ProtoBufferReader reader(&counted);
    BEAMD_RETURN_IF_ERROR(CheckElements(reader, *request.GetDescriptor()));
  }
  grpc::ByteBuffer copy = bytes;  // shares the slices
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok() || !request.ParseFromZeroCopyStream(&reader)) {
    return InvalidArgument(absl::StrCat("the bytes are no ", request.GetTypeName()),
                           {.reason = "MALFORMED"});
  }
  return absl::OkStatus();
}

absl::Status ParseRequest(const grpc::ByteBuffer& bytes, google::protobuf::Message& request) {
  BEAMD_RETURN_IF_ERROR(ParseMessage(bytes, request));
  return CheckKnown(request);
}

void NameRequest(const grpc::ByteBuffer& bytes, const google::protobuf::Message& type,
                 AuditObject& object) {
  grpc::ByteBuffer copy = bytes;  // shares the slices
  grpc::ProtoBufferReader reader(&copy);
  if (reader.status().ok()) NameActedOn(reader, type, object);
}

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

UnaryCall::UnaryCall(Desk& desk, grpc::CallbackServerContext* context,
                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                     const char* method, const std::shared_ptr<CancelToken>& cancel)
    : desk_(desk),
      request_(request),
      response_(response),
      reactor_(cancel != nullptr ? new CancellableReactor(cancel) : context->DefaultReactor()),
      visit_(desk.Enter(*context, method)) {}

void UnaryCall::Name(const google::protobuf::Message& type) {
  if (absl::IsUnauthenticated(visit_.admitted)) return;
  NameRequest(*request_, type, visit_.object);
}

void UnaryCall::Finish(const absl::Status& status, const google::protobuf::Message& response) {
  if (status.ok()) {
    *response_ = ToBytes(response);
    NameActedOn(response, visit_.object);
  }
  desk_.Leave(visit_, status);
  reactor_->Finish(ToGrpcStatus(status));
}

void UnaryCall::Fail(const absl::Status& status) {
  desk_.Leave(visit_, status);
  reactor_->Finish(ToGrpcStatus(status));
}

void UnaryCall::FinishWith(const grpc::ByteBuffer& response) {
  *response_ = response;
  desk_.Leave(visit_, absl::OkStatus());
  reactor_->Finish(grpc::Status::OK);
}

void Post(const std::shared_ptr<UnaryCall>& call, std::function<void()> work) {
  const absl::Status& admitted = call->visit().admitted;
  if (!admitted.ok()) {
    call->Fail(admitted);
    return;
  }
  std::string queue = call->visit().principal.name;
  if (call->request().Length() > kLongRequestBytes) queue += "\nlong";
  call->desk().executor().Post(queue, [call, work = std::move(work)] {
    // Nobody waits for it any more: no work is begun.
    if (absl::Now() >= call->visit().deadline) {
      call->Fail(absl::DeadlineExceededError("the deadline has passed"));
    } else {
      work();
    }
  });
}

}  // namespace beamd

// A call that answers with a stream of messages which are made one at a time, when the client has
// taken the one before.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/auth/audit.h"
#include "server/services/desk.h"

namespace beamd {

// The next message, null at the end. Called on the desk's threads, never twice at once, and destroyed
// with the call.
using NextMessage = std::function<absl::StatusOr<std::unique_ptr<google::protobuf::Message>>()>;
// What a call of these bytes answers with. What it acts on is named in `object`, which lives as long
// as the messages are asked for.
using PullSource = std::function<absl::StatusOr<NextMessage>(const grpc::ByteBuffer& request,
                                                             AuditObject& object)>;

// Owns itself; ends with the call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartPullStream(const char* method, PullSource source,
                                                            Desk& desk,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request);

}  // namespace beamd

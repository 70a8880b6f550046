// A call that takes a stream of messages, one at a time, and answers with one.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/auth/audit.h"
#include "server/services/desk.h"

namespace beamd {

// What takes the messages of one call. Called on the desk's threads, never twice at once.
struct PushSink {
  // A status that is not OK ends the call.
  std::function<absl::Status(const grpc::ByteBuffer& message)> take;
  // Of all that came.
  std::function<const google::protobuf::Message&()> answer;
  // Names what the messages until now acted on, however the call ends.
  std::function<void(AuditObject& object)> name;
};

// Owns itself; ends with the call.
grpc::ServerReadReactor<grpc::ByteBuffer>* StartPushStream(const char* method, PushSink sink,
                                                           Desk& desk,
                                                           grpc::CallbackServerContext* context,
                                                           grpc::ByteBuffer* response);

}  // namespace beamd

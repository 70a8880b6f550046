// The stream of a Tune or Jobs.Watch call: a view of a job.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/auth/caller.h"
#include "server/services/desk.h"
#include "server/tuning/tuner.h"

namespace beamd {

// What a call of this request shows; `changed` is the watch's (Job::Watch).
using StreamSource = std::function<absl::StatusOr<Tuner::Answer>(
    const google::protobuf::Message& request, const Caller& caller, std::function<void()> changed)>;

// Adds to what a refused request's fields name; may be null.
using RefusedNamer =
    std::function<void(const google::protobuf::Message& request, AuditObject& object)>;
// The kernel that a graph is, by its hash; of a graph that is none, how large it is.
void NameKernel(const Tuner& tuner, const v1::Graph& graph, AuditObject& object);

// Owns itself; ends with the call. `parsed` is where the request is read into, and what `source` and
// `namer` are given. The desk, and what these hold, must outlive the server's calls.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTuneStream(
    const char* method, std::unique_ptr<google::protobuf::Message> parsed, StreamSource source,
    RefusedNamer namer, Desk& desk, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer* request);

}  // namespace beamd

// The stream of a Tune or Jobs.Watch call: a view of a job.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/auth/caller.h"
#include "server/services/desk.h"
#include "server/tuning/tuner.h"

namespace beamd {

// What a call of these bytes shows; `changed` is the watch's (Job::Watch).
using StreamSource = std::function<absl::StatusOr<Tuner::Answer>(
    const grpc::ByteBuffer& request, const Caller& caller, std::function<void()> changed)>;

// Owns itself; ends with the call. The desk, and what `source` holds, must outlive the server's
// calls.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTuneStream(const char* method, StreamSource source,
                                                            Desk& desk,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request);

}  // namespace beamd

// The stream of one Tune call: a view of a job.
#pragma once

#include "grpcpp/grpcpp.h"
#include "server/services/executor.h"
#include "server/tuning/tuner.h"

namespace beamd {

// Owns itself; ends with the call. `tuner` and `executor` must outlive the server's calls.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTuneStream(Tuner& tuner, Executor& executor,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request);

}  // namespace beamd

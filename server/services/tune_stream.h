// The stream of one Tune call: a view of a job.
#pragma once

#include "grpcpp/grpcpp.h"
#include "server/services/desk.h"
#include "server/tuning/tuner.h"

namespace beamd {

// Owns itself; ends with the call. `tuner` and `desk` must outlive the server's calls.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTuneStream(Tuner& tuner, Desk& desk,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request);

}  // namespace beamd

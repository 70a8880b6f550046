// The streams of Executor.Upload and Executor.Download: gigabytes, so content is copied once on its
// way in and not at all on its way out.
#pragma once

#include "grpcpp/grpcpp.h"
#include "server/services/desk.h"
#include "server/sessions/session_table.h"

namespace beamd {

// Own themselves; end with the call.
grpc::ServerReadReactor<grpc::ByteBuffer>* StartUpload(SessionTable& sessions, Desk& desk,
                                                       grpc::CallbackServerContext* context,
                                                       grpc::ByteBuffer* response);
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartDownload(SessionTable& sessions, Desk& desk,
                                                          grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request);

}  // namespace beamd

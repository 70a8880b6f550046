// The streams of Executor.Upload and Executor.Download: gigabytes, so content is copied once on its
// way in and not at all on its way out.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/services/desk.h"
#include "server/sessions/session_table.h"
#include "server/sessions/upload.h"

namespace beamd {

// A v1.UploadChunk whose data lies where it came; it is gone with the bytes it was read from.
struct UploadChunkView {
  std::string session;
  uint64_t handle = 0;
  UploadPiece piece;
};
// InvalidArgument where the bytes are no UploadChunk, or hold what this build doesn't know.
absl::Status ParseUploadChunk(const grpc::ByteBuffer& bytes, UploadChunkView& chunk);

// Own themselves; end with the call.
grpc::ServerReadReactor<grpc::ByteBuffer>* StartUpload(SessionTable& sessions, Desk& desk,
                                                       grpc::CallbackServerContext* context,
                                                       grpc::ByteBuffer* response);
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartDownload(SessionTable& sessions, Desk& desk,
                                                          grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request);

}  // namespace beamd

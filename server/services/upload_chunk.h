// A chunk of an upload, read off its bytes where they lie.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "server/sessions/upload_piece.h"

namespace beamd {

// A v1.UploadChunk whose data lies where it came; it is gone with the bytes it was read from.
struct UploadChunkView {
  std::string session;
  uint64_t handle = 0;
  UploadPiece piece;
};
// InvalidArgument where the bytes are no UploadChunk, or hold what this build doesn't know.
absl::Status ParseUploadChunk(grpc::ByteBuffer& bytes, UploadChunkView& chunk);

}  // namespace beamd

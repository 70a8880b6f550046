// libFuzzer: bytes as a chunk of an upload, in slices as a network might cut them, through our own
// parser and protobuf's: what ours takes is what protobuf reads, and it takes what protobuf wrote.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/executor.pb.h"
#include "server/services/upload_chunk.h"
#include "server/services/validate.h"

namespace beamd {
namespace {

// In slices of `size` bytes.
grpc::ByteBuffer Cut(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) {
    slices.emplace_back(bytes.data() + at, std::min(size, bytes.size() - at));
  }
  return {slices.data(), slices.size()};
}

std::string Data(const UploadPiece& piece) {
  std::string data;
  for (const std::span<const std::byte> part : piece.data) {
    data.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  BEAMD_CHECK(static_cast<int64_t>(data.size()) == piece.size_bytes, "parts of another size");
  return data;
}

void CheckSame(const UploadChunkView& ours, const v1::UploadChunk& theirs) {
  BEAMD_CHECK(ours.session == theirs.session(), "another session");
  BEAMD_CHECK(ours.handle == theirs.handle(), "another handle");
  BEAMD_CHECK(ours.piece.offset == static_cast<int64_t>(theirs.offset()), "another offset");
  BEAMD_CHECK(ours.piece.crc32c == theirs.crc32c(), "another CRC");
  BEAMD_CHECK(Data(ours.piece) == theirs.data(), "other data");
}

void Take(const std::string& bytes, size_t slice) {
  v1::UploadChunk theirs;
  const bool parsed = theirs.ParseFromString(bytes);
  grpc::ByteBuffer cut = Cut(bytes, slice);
  UploadChunkView ours;
  if (ParseUploadChunk(cut, ours).ok()) {
    Data(ours.piece);
    // A session's id that is no UTF-8 is a text to us, and found nowhere.
    if (parsed) {
      BEAMD_CHECK(CheckKnown(theirs).ok(), "a field that we don't know was taken");
      CheckSame(ours, theirs);
    }
  }
  if (!parsed || !CheckKnown(theirs).ok()) return;
  grpc::ByteBuffer written = Cut(theirs.SerializeAsString(), slice);
  UploadChunkView again;
  BEAMD_CHECK(ParseUploadChunk(written, again).ok(), "what protobuf wrote was refused");
  CheckSame(again, theirs);
}

}  // namespace
}  // namespace beamd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  beamd::Take(std::string(reinterpret_cast<const char*>(data) + 1, size - 1), 1 + data[0]);
  return 0;
}

#include "server/services/upload_chunk.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace beamd {
namespace {

using google::protobuf::internal::WireFormatLite;

absl::Status NoChunk() {
  return InvalidArgument("the bytes are no beamd.v1.UploadChunk", {.reason = "MALFORMED"});
}

// Bytes of a field of `length` bytes, where they lie. False where the message ends before.
bool TakeData(google::protobuf::io::CodedInputStream& input, UploadPiece& piece) {
  uint32_t length = 0;
  if (!input.ReadVarint32(&length)) return false;
  piece.data.clear();
  piece.size_bytes = length;
  int64_t left = length;
  while (left > 0) {
    const void* bytes = nullptr;
    int size = 0;
    if (!input.GetDirectBufferPointer(&bytes, &size)) return false;
    size = static_cast<int>(std::min<int64_t>(size, left));
    piece.data.emplace_back(static_cast<const std::byte*>(bytes), static_cast<size_t>(size));
    if (!input.Skip(size)) return false;
    left -= size;
  }
  return true;
}

bool ParseFields(google::protobuf::io::CodedInputStream& input, UploadChunkView& chunk,
                 std::optional<uint32_t>& unknown) {
  uint64_t number = 0;
  while (const uint32_t tag = input.ReadTag()) {
    switch (tag) {
      case WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_LENGTH_DELIMITED):
        if (!WireFormatLite::ReadString(&input, &chunk.session)) return false;
        break;
      case WireFormatLite::MakeTag(2, WireFormatLite::WIRETYPE_VARINT):
        if (!input.ReadVarint64(&chunk.handle)) return false;
        break;
      case WireFormatLite::MakeTag(3, WireFormatLite::WIRETYPE_VARINT):
        if (!input.ReadVarint64(&number)) return false;
        chunk.piece.offset = static_cast<int64_t>(number);
        break;
      case WireFormatLite::MakeTag(4, WireFormatLite::WIRETYPE_LENGTH_DELIMITED):
        if (!TakeData(input, chunk.piece)) return false;
        break;
      case WireFormatLite::MakeTag(5, WireFormatLite::WIRETYPE_FIXED32):
        if (!input.ReadLittleEndian32(&chunk.piece.crc32c)) return false;
        break;
      default:
        unknown = tag >> 3;
        if (!WireFormatLite::SkipField(&input, tag)) return false;
    }
  }
  return input.ConsumedEntireMessage();
}

}  // namespace

absl::Status ParseUploadChunk(grpc::ByteBuffer& bytes, UploadChunkView& chunk) {
  // Not a copy of it: that shares large slices, and has small ones for itself.
  grpc::ProtoBufferReader reader(&bytes);
  if (!reader.status().ok()) return NoChunk();
  google::protobuf::io::CodedInputStream input(&reader);
  std::optional<uint32_t> unknown;
  if (!ParseFields(input, chunk, unknown)) return NoChunk();
  if (unknown) {
    return InvalidArgument(absl::StrCat("a chunk has no field ", *unknown),
                           {.reason = "UNKNOWN_FIELD", .value = static_cast<int64_t>(*unknown)});
  }
  return absl::OkStatus();
}

}  // namespace beamd

// What a request must be before a field of it is read.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"

namespace beamd {

// Of one request: an empty message is two bytes on the wire and a hundred in memory.
inline constexpr int64_t kMostElements = 2'000'000;

// InvalidArgument where the bytes, as a message of this type, hold more messages and texts than
// that. For before they are parsed; bytes that are no such message pass.
absl::Status CheckElements(google::protobuf::io::ZeroCopyInputStream& bytes,
                           const google::protobuf::Descriptor& type);

// InvalidArgument naming the first field or enumerator that this build doesn't know: a client that
// sent it meant something by it; or a text of more than 1024 bytes. Graphs inside are left to engine/uop/wire, which names nodes.
absl::Status CheckKnown(const google::protobuf::Message& request);

}  // namespace beamd

// What a request must be before a field of it is read.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace beamd {

// InvalidArgument naming the first field or enumerator that this build doesn't know: a client that
// sent it meant something by it. Graphs inside are left to engine/uop/wire, which names nodes.
absl::Status CheckKnown(const google::protobuf::Message& request);

}  // namespace beamd

// Values as the store keeps them: a byte of version, then the message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace beamd::stored {

inline constexpr char kValueV1 = 1;

inline std::string Encode(const google::protobuf::MessageLite& message) {
  std::string bytes(1, kValueV1);
  message.AppendToString(&bytes);
  return bytes;
}

// DataLoss where the bytes are no value.
template <typename Message>
absl::StatusOr<Message> Decode(absl::string_view value) {
  Message message;
  if (value.empty() || value[0] != kValueV1 ||
      !message.ParseFromArray(value.data() + 1, static_cast<int>(value.size()) - 1)) {
    return absl::DataLossError("store: a value that does not parse");
  }
  return message;
}

}  // namespace beamd::stored

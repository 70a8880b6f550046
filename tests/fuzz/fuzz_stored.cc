// libFuzzer: bytes as what a store holds, of the type that the first byte chooses.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/stored.pb.h"
#include "server/store/stored_value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view value(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto decode = [&]<typename Message>(Message) {
    const absl::StatusOr<Message> message = beamd::stored::Decode<Message>(value);
    if (message.ok()) beamd::stored::Decode<Message>(beamd::stored::Encode(*message)).value();
  };
  switch (data[0] % 6) {
    case 0:
      decode(beamd::v1::Record());
      break;
    case 1:
      decode(beamd::v1::Graph());
      break;
    case 2:
      decode(beamd::internal::StoredTiming());
      break;
    case 3:
      decode(beamd::internal::StoredJob());
      break;
    case 4:
      decode(beamd::internal::StoredCandidate());
      break;
    default:
      decode(beamd::internal::StoredUsage());
  }
  return 0;
}

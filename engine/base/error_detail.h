// What is wrong with a client's input, in fields: carried in the payload of an absl::Status, so
// that the layers between keep plain statuses and the server can still answer with typed details.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace beamd {

// The payload's name; beamd.v1.ErrorDetail is the message that the server makes of it.
inline constexpr absl::string_view kErrorDetailUrl = "beamd.v1.ErrorDetail";

struct ErrorDetail {
  std::string reason;           // upper case, stable: "INDEX_OUT_OF_BUFFER"
  std::optional<int64_t> node;  // index in the graph as the client wrote it
  std::string field;            // path inside the node or request: "view_arg.views[0].strides"
  std::optional<int64_t> limit;
  std::optional<int64_t> value;

  bool operator==(const ErrorDetail&) const = default;
};

// `status` with `detail` attached, in place of any it had.
absl::Status WithDetail(absl::Status status, const ErrorDetail& detail);
// InvalidArgument with a detail.
absl::Status InvalidArgument(absl::string_view message, const ErrorDetail& detail);
// nullopt where the status carries none, or one that doesn't parse.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

}  // namespace beamd

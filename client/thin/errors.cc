#include "client/thin/errors.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace beamd::thin {
namespace {

constexpr absl::string_view kDetailUrl = "type.googleapis.com/beamd.v1.ErrorDetail";

}  // namespace

std::optional<v1::ErrorDetail> DetailOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kDetailUrl);
  v1::ErrorDetail detail;
  if (!payload || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::StatusDetails details;
  v1::ErrorDetail detail;
  if (details.ParseFromString(status.error_details()) && details.details_size() > 0 &&
      details.details(0).UnpackTo(&detail)) {
    result.SetPayload(kDetailUrl, absl::Cord(detail.SerializeAsString()));
  }
  return result;
}

}  // namespace beamd::thin

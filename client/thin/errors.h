// What a server says about an error, beside its code and message.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd::thin {

// The reason, the node and the field at fault; nullopt for errors that no server made.
std::optional<v1::ErrorDetail> DetailOf(const absl::Status& status);

// The server's detail, if it sent one, as the status' payload.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace beamd::thin

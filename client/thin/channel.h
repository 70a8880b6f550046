// The connection to a server.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/thin/credentials.h"
#include "grpcpp/grpcpp.h"

namespace beamd {

// InvalidArgument for a file that can't be read, and for a token that would travel openly to another
// machine. Connects on the first call.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const Credentials& credentials);

}  // namespace beamd

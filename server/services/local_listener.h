// The unix socket: accepts connections itself, to ask the kernel who is there (SO_PEERCRED), and
// hands them to gRPC, which can't ask.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/services/acceptor.h"
#include "server/services/local_users.h"

namespace beamd {

class LocalListener {
 public:
  // Replaces a socket that nobody listens on. AlreadyExists where somebody does, or where the path
  // is no socket. `server` and `users` must outlive it. `promised`: see Acceptor.
  static absl::StatusOr<std::unique_ptr<LocalListener>> Start(const std::string& path,
                                                              grpc::Server& server,
                                                              LocalUsers& users,
                                                              Acceptor::Promised promised);
  // Accepts no more; connections stay with gRPC. Removes the socket.
  ~LocalListener();

 private:
  class Impl;
  explicit LocalListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace beamd

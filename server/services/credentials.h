// The server's certificates, read again when it is told to.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"

namespace beamd {

struct TlsFiles {
  std::string cert;
  std::string key;
  // Empty: clients show no certificate. Else they may, and one that isn't signed by these is
  // refused.
  std::string client_ca;
};

// Thread-safe.
class Certificates {
 public:
  // InvalidArgument naming a file that can't be read, isn't PEM, or a key that isn't the
  // certificate's.
  static absl::StatusOr<std::unique_ptr<Certificates>> Load(const TlsFiles& files);
  ~Certificates();

  // Whether a client must have a certificate: with a CA and without an access file, which would
  // know its token.
  std::shared_ptr<grpc::ServerCredentials> ServerCredentials(bool require_client_certificate) const;

  // Connections made a second from now on see what the files hold now. Where that is at fault,
  // nothing changes.
  absl::Status Reload();

 private:
  class Impl;
  explicit Certificates(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace beamd

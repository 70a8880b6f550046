// What a client trusts, and how it shows who it is.
#pragma once

#include <string>

namespace beamd {

// Files; each may be empty.
struct Credentials {
  // Who signs the server's certificate. Without it the connection is not encrypted.
  std::string tls_ca;
  // The client's own certificate and its key, for a server that wants one.
  std::string tls_cert;
  std::string tls_key;
  // A bearer token, alone in its file.
  std::string token_file;
};

}  // namespace beamd

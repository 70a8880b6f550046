// What a port speaks, where a daemon was expected and the call failed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace beamd {

enum class Speaks : uint8_t {
  kNothing,  // nobody listens, or nothing was said in time
  kPlain,    // HTTP/2 without TLS
  kTls,
  kOther,
};

// Connects to "HOST:PORT" ("127.0.0.1:7070", "[::1]:7070"), greets it as a TLS client does, and reads
// the first bytes of the answer. kNothing for any other kind of address.
Speaks WhatSpeaks(const std::string& address, absl::Duration limit = absl::Seconds(1));

// What to say where a call to `address` couldn't be made; `tls`: the client spoke TLS.
std::string ConnectionHint(const std::string& address, bool tls);

}  // namespace beamd

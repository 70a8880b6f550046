// The access file: who may do what. A line an entry, `#` begins a comment:
//
//   token:ci          submitter  6b3a...64 hexadecimal digits: BLAKE3 of the token
//   cert:lab.example  importer
//   uid:1000          admin
//   any               reader     # a valid certificate or a local user that no line names
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash.h"
#include "server/auth/principal.h"

namespace beamd {

// What a call shows of its caller.
struct Evidence {
  std::string host;                            // that it comes from; "local" of this machine's own
  std::optional<std::string> token;            // of `authorization: Bearer TOKEN`
  std::vector<std::string> certificate_names;  // of a verified client certificate
  std::optional<uint32_t> uid;                 // of the process behind a unix socket
};

class Access {
 public:
  // InvalidArgument with a line for every fault of `text`.
  static absl::StatusOr<Access> Parse(absl::string_view text);

  // Unauthenticated where the evidence names nobody of the file. A token counts before a
  // certificate, that before a local user; a token that isn't known is refused whatever else there
  // is.
  absl::StatusOr<Principal> Find(const Evidence& evidence) const;

 private:
  absl::flat_hash_map<Digest, Principal> tokens_;
  std::map<std::string, Principal> named_;  // "cert:NAME", "uid:NUMBER"
  std::optional<Role> any_;
};

// A token of 256 random bits, in hexadecimal, and the line that lets it in.
struct NewToken {
  std::string token;
  std::string line;
};
absl::StatusOr<NewToken> MakeToken(absl::string_view name, Role role);

// The host in a peer as gRPC names it: "ipv4:10.0.0.7:40312" is "10.0.0.7", "ipv6:[::1]:40312" is
// "::1", anything else is "local".
std::string HostOfPeer(absl::string_view peer);

}  // namespace beamd

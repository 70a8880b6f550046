#include "server/auth/access.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "server/auth/secret.h"

namespace beamd {
namespace {

constexpr size_t kNameLength = 128;
constexpr size_t kTokenBytes = 32;

// Names go into logs and metrics as they are.
bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kNameLength &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || absl::string_view("-_.@:/*").find(
                                                static_cast<char>(c)) != absl::string_view::npos;
         });
}

absl::Status Unauthenticated(absl::string_view message, absl::string_view reason) {
  return WithDetail(absl::UnauthenticatedError(message), {.reason = std::string(reason)});
}

}  // namespace

absl::StatusOr<Access> Access::Parse(absl::string_view text) {
  Access access;
  std::vector<std::string> faults;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const auto fault = [&](absl::string_view what) {
      faults.push_back(absl::StrCat("line ", number, ": ", what));
    };
    const std::optional<Role> role = words.size() < 2 ? std::nullopt : ParseRole(words[1]);
    if (!role) {
      fault("wants WHO and a role: reader, submitter, importer or admin");
      continue;
    }
    absl::string_view name = words[0];
    uint32_t uid = 0;
    if (absl::ConsumePrefix(&name, "token:")) {
      const absl::StatusOr<Digest> hash =
          words.size() == 3 ? Digest::FromHex(words[2]) : absl::InvalidArgumentError("");
      if (!IsName(name) || !hash.ok()) {
        fault("wants token:NAME ROLE HASH, as `beamd token` prints it");
      } else if (!access.tokens_.insert({*hash, {std::string(name), *role}}).second) {
        fault("this token was there before");
      }
      continue;
    }
    if (words.size() > 2) {
      fault(absl::StrCat("nothing goes behind the role: ", words[2]));
    } else if (name == "any") {
      if (access.any_) fault("`any` was there before");
      access.any_ = *role;
    } else if ((absl::ConsumePrefix(&name, "cert:") && IsName(name)) ||
               (absl::ConsumePrefix(&name, "uid:") && absl::SimpleAtoi(name, &uid))) {
      const std::string who(words[0]);
      const std::string as(absl::StripPrefix(who, "cert:"));
      if (!access.named_.insert({who, {as, *role}}).second) {
        fault(absl::StrCat(who, " was there before"));
      }
    } else {
      fault(absl::StrCat("no token:, cert:, uid: or any: ", words[0]));
    }
  }
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
  return access;
}

absl::StatusOr<Principal> Access::Find(const Evidence& evidence) const {
  if (evidence.token) {
    const auto it = tokens_.find(HashBytes(*evidence.token));
    if (it == tokens_.end()) return Unauthenticated("the token isn't known", "BAD_TOKEN");
    return it->second;
  }
  for (const std::string& name : evidence.certificate_names) {
    if (const auto it = named_.find("cert:" + name); it != named_.end()) return it->second;
  }
  if (!evidence.certificate_names.empty() && any_) {
    return Principal{evidence.certificate_names.front(), *any_};
  }
  if (evidence.uid) {
    const std::string name = absl::StrCat("uid:", *evidence.uid);
    if (const auto it = named_.find(name); it != named_.end()) return it->second;
    if (any_) return Principal{name, *any_};
  }
  if (evidence.certificate_names.empty() && !evidence.uid) {
    return Unauthenticated("this server wants a token or a certificate", "NO_CREDENTIALS");
  }
  return Unauthenticated(
      absl::StrCat(evidence.certificate_names.empty() ? absl::StrCat("uid:", *evidence.uid)
                                                      : evidence.certificate_names.front(),
                   " isn't in the access file"),
      "UNKNOWN_PRINCIPAL");
}

absl::StatusOr<NewToken> MakeToken(absl::string_view name, Role role) {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a name has 1 to ", kNameLength, " letters, digits or -_.@:/*: ", name));
  }
  NewToken made;
  BEAMD_ASSIGN_OR_RETURN(made.token, NewSecret(kTokenBytes));
  made.line = absl::StrCat("token:", name, " ", Name(role), " ", HashBytes(made.token).Hex());
  return made;
}

std::string HostOfPeer(absl::string_view peer) {
  if (absl::ConsumePrefix(&peer, "ipv4:")) return std::string(peer.substr(0, peer.rfind(':')));
  // gRPC escapes the brackets.
  const std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  absl::string_view left = text;
  if (!absl::ConsumePrefix(&left, "ipv6:[")) return "local";
  return std::string(left.substr(0, left.find(']')));
}

}  // namespace beamd

#include "client/beamctl/port_probe.h"

#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace beamd {
namespace {

// As a client that speaks TLS begins; empty where OpenSSL makes none.
std::string ClientHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  if (context == nullptr) return "";
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (ssl == nullptr || in == nullptr || out == nullptr) return "";
  SSL_set_bio(ssl.get(), in, out);  // which own them from now on
  constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2.data(), kHttp2.size());
  // It ends with the wish to read the answer.
  SSL_connect(ssl.get());
  std::string hello(size_t{16} << 10, '\0');
  const int size = BIO_read(out, hello.data(), static_cast<int>(hello.size()));
  hello.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return hello;
}

bool Await(int fd, short events, absl::Time until) {
  pollfd wanted{.fd = fd, .events = events, .revents = 0};
  const auto left = absl::ToInt64Milliseconds(until - absl::Now());
  return left > 0 && poll(&wanted, 1, static_cast<int>(left)) == 1;
}

int Connected(const addrinfo& to, absl::Time until) {
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const bool begun = connect(fd, to.ai_addr, to.ai_addrlen) == 0 || errno == EINPROGRESS;
  int error = 0;
  socklen_t size = sizeof(error);
  if (begun && Await(fd, POLLOUT, until) &&
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

}  // namespace

Speaks WhatSpeaks(const std::string& address, absl::Duration limit) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return Speaks::kNothing;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const absl::Time until = absl::Now() + limit;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) {
    return Speaks::kNothing;
  }
  const absl::Cleanup release = [found] { freeaddrinfo(found); };
  int fd = -1;
  for (const addrinfo* to = found; to != nullptr && fd < 0; to = to->ai_next) {
    fd = Connected(*to, until);
  }
  if (fd < 0) return Speaks::kNothing;
  const absl::Cleanup hang_up = [fd] { close(fd); };
  const std::string hello = ClientHello();
  if (hello.empty() ||
      send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) {
    return Speaks::kNothing;
  }
  std::array<unsigned char, 4> answer{};
  size_t filled = 0;
  while (filled < answer.size() && Await(fd, POLLIN, until)) {
    const ssize_t more = recv(fd, answer.data() + filled, answer.size() - filled, 0);
    if (more <= 0) break;
    filled += static_cast<size_t>(more);
  }
  if (filled < answer.size()) return Speaks::kNothing;
  // A handshake or an alert; a frame of SETTINGS (RFC 9113, section 6.5).
  if ((answer[0] == 22 || answer[0] == 21) && answer[1] == 3) return Speaks::kTls;
  return answer[0] == 0 && answer[3] == 4 ? Speaks::kPlain : Speaks::kOther;
}

std::string ConnectionHint(const std::string& address, bool tls) {
  switch (WhatSpeaks(address)) {
    case Speaks::kPlain:
      if (!tls) break;
      return absl::StrCat(address,
                          " doesn't speak TLS: leave out --tls_ca, --tls_cert and "
                          "--tls_key, or start the daemon with --tls_cert and --tls_key.");
    case Speaks::kTls:
      if (!tls) {
        return absl::StrCat(address, " speaks TLS: --tls_ca FILE names who signs its certificate.");
      }
      return absl::StrCat("The TLS handshake with ", address,
                          " failed: --tls_ca must have signed its certificate, which must name "
                          "this host, and it may want one of yours (--tls_cert, --tls_key).");
    case Speaks::kOther:
      return absl::StrCat("What listens on ", address, " is no beamd.");
    case Speaks::kNothing:
      break;
  }
  return absl::StrCat("Is a daemon there? `beamd serve --listen ", address,
                      " --store DIR` starts one.");
}

}  // namespace beamd

#include "server/services/acceptor.h"

#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

constexpr int64_t kReserve = 384;
constexpr int64_t kReserveShare = 4;

constexpr std::chrono::milliseconds kCountFor{100};

// How many descriptors this process has open; nullopt: none is left to count them with.
std::optional<int64_t> CountDescriptors() {
  DIR* const open = opendir("/proc/self/fd");
  if (open == nullptr) return std::nullopt;
  // Not ".", "..", nor the directory itself.
  int64_t count = -3;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

// Whether one more connection was too many. They are counted: a descriptor's number says nothing
// once some are moved (see local_listener.cc). Counting takes long where there are many, so that for
// a while those that are let in are added up.
class DescriptorCount {
 public:
  bool IsOverLimit(int64_t promised) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const auto all = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
    const int64_t left = all - ReservedDescriptors(all);
    const int64_t most = left - std::min(promised, left / 2);
    const auto now = std::chrono::steady_clock::now();
    MutexLock lock(mutex_);
    if (!count_ || now - counted_at_ >= kCountFor) {
      count_ = CountDescriptors();
      counted_at_ = now;
    } else {
      ++*count_;
    }
    return !count_ || *count_ > most;
  }

 private:
  Mutex mutex_;
  std::optional<int64_t> count_ BEAMD_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point counted_at_ BEAMD_GUARDED_BY(mutex_);
};

// All acceptors take from one table.
DescriptorCount& Descriptors() {
  static auto* const count = new DescriptorCount;
  return *count;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// A peer that vanished without a word is noticed: what was sent to it after kUnacknowledgedMs, its
// silence after the probes. Connections have the options of their listener (Linux, tcp(7)).
void NoticeLostPeers(int fd) {
  constexpr unsigned kUnacknowledgedMs = 20000;
  constexpr int kIdleSeconds = 20, kBetweenSeconds = 5, kProbes = 3, kOn = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof(kUnacknowledgedMs));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof(kIdleSeconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kBetweenSeconds, sizeof(kBetweenSeconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof(kProbes));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof(kOn));
}

// -1 where it can't be had; errno says why.
int ListenAt(const addrinfo& at, int port) {
  sockaddr_storage address{};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  if (at.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<uint16_t>(port));
  }
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  // A restart binds at once; a second server does not.
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  NoticeLostPeers(fd);
  if (at.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), at.ai_addrlen) == 0 &&
      listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

}  // namespace

int64_t ReservedDescriptors(int64_t limit) { return std::min(kReserve, limit / kReserveShare); }

absl::StatusOr<TcpListeners> ListenTcp(const std::string& address) {
  const auto refuse = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("can't listen on ", address, ": ", why));
  };
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return refuse("it is no host:port");
  }
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found);
  if (error != 0) return refuse(gai_strerror(error));
  TcpListeners listeners;
  listeners.port = port;
  int why = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = ListenAt(*at, listeners.port);
    if (fd < 0) {
      why = errno;
      continue;
    }
    if (listeners.port == 0) listeners.port = PortOf(fd);
    listeners.sockets.push_back(fd);
  }
  freeaddrinfo(found);
  if (listeners.sockets.empty()) return refuse(std::strerror(why));
  return listeners;
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Start(std::vector<int> listeners, Take take,
                                                          Promised promised) {
  std::unique_ptr<Acceptor> acceptor(
      new Acceptor(std::move(listeners), std::move(take), std::move(promised)));
  acceptor->stop_ = eventfd(0, EFD_CLOEXEC);
  if (acceptor->stop_ < 0) return absl::ErrnoToStatus(errno, "an event to stop accepting");
  acceptor->thread_ = std::thread([a = acceptor.get()] { a->Accept(); });
  return acceptor;
}

Acceptor::Acceptor(std::vector<int> listeners, Take take, Promised promised)
    : listeners_(std::move(listeners)), take_(std::move(take)), promised_(std::move(promised)) {}

Acceptor::~Acceptor() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = write(stop_, &one, sizeof(one));
    thread_.join();
  }
  for (const int listener : listeners_) close(listener);
  if (stop_ >= 0) close(stop_);
}

void Acceptor::Accept() {
  std::vector<pollfd> events;
  for (const int listener : listeners_) events.push_back({listener, POLLIN, 0});
  events.push_back({stop_, POLLIN, 0});
  bool full = false;
  while (true) {
    if (poll(events.data(), events.size(), -1) < 0 && errno != EINTR) return;
    if ((events.back().revents & POLLIN) != 0) return;
    for (const pollfd& event : events) {
      if (event.fd == stop_ || (event.revents & POLLIN) == 0) continue;
      const int fd = accept4(event.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        // The connection stays in the backlog until there is a descriptor.
        if (errno == EMFILE || errno == ENFILE) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        continue;
      }
      const bool over = Descriptors().IsOverLimit(promised_());
      if (over && !full) spdlog::warn("connections are turned away: too many are open");
      if (full && !over) spdlog::info("connections are accepted again");
      full = over;
      if (over) {
        close(fd);
      } else {
        take_(fd);
      }
    }
  }
}

}  // namespace beamd

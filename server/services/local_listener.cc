#include "server/services/local_listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "grpcpp/server_posix.h"
#include "server/services/acceptor.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// Connections get descriptors from here on, each time another one.
constexpr int kFirst = 256;

// A call learns its connection's user by the descriptor, and may ask when the connection is gone
// already. So that no other connection has the number by then, numbers are reused as late as
// possible, not at once as the kernel does.
int Renumber(int fd) {
  static int next = kFirst;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  if (++next >= end) next = std::min(kFirst, end / 2);
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, next);
  if (moved < 0) moved = fcntl(fd, F_DUPFD_CLOEXEC, std::min(kFirst, end / 2));
  close(fd);
  if (moved >= 0) next = moved;
  return moved;
}

bool SomebodyListens(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool listens =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return listens;
}

}  // namespace

class LocalListener::Impl {
 public:
  Impl(std::string path, grpc::Server& server, LocalUsers& users)
      : path_(std::move(path)), server_(server), users_(users) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (acceptor_ == nullptr) return;
    acceptor_.reset();
    unlink(path_.c_str());
  }

  absl::Status Listen(Acceptor::Promised promised) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof(address.sun_path)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a socket's path has at most ", sizeof(address.sun_path) - 1, " bytes: ", path_));
    }
    std::memcpy(address.sun_path, path_.data(), path_.size());
    struct stat st;
    if (lstat(path_.c_str(), &st) == 0) {
      if (!S_ISSOCK(st.st_mode)) {
        return absl::AlreadyExistsError(absl::StrCat(path_, " is there and is no socket"));
      }
      if (SomebodyListens(address)) {
        return absl::AlreadyExistsError(absl::StrCat(path_, " is in use"));
      }
      unlink(path_.c_str());
    }
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 ||
        bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        // Who may do what is said by the access file.
        chmod(path_.c_str(), 0666) != 0 || listen(listener, SOMAXCONN) != 0) {
      absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("listening on ", path_));
      if (listener >= 0) close(listener);
      return status;
    }
    BEAMD_ASSIGN_OR_RETURN(acceptor_,
                           Acceptor::Start(
                               {listener}, [this](int fd) { Take(fd); }, std::move(promised)));
    return absl::OkStatus();
  }

 private:
  void Take(int fd) {
    fd = Renumber(fd);
    ucred who{};
    socklen_t size = sizeof(who);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
      spdlog::warn("a local connection is lost: {}", std::strerror(errno));
      if (fd >= 0) close(fd);
      return;
    }
    users_.Connected(fd, who.uid);
    grpc::AddInsecureChannelFromFd(&server_, fd);
  }

  const std::string path_;
  grpc::Server& server_;
  LocalUsers& users_;
  std::unique_ptr<Acceptor> acceptor_;
};

LocalListener::LocalListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalListener::~LocalListener() = default;

absl::StatusOr<std::unique_ptr<LocalListener>> LocalListener::Start(const std::string& path,
                                                                    grpc::Server& server,
                                                                    LocalUsers& users,
                                                                    Acceptor::Promised promised) {
  auto impl = std::make_unique<Impl>(path, server, users);
  if (absl::Status status = impl->Listen(std::move(promised)); !status.ok()) return status;
  return std::unique_ptr<LocalListener>(new LocalListener(std::move(impl)));
}

}  // namespace beamd

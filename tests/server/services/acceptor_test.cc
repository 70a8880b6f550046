#include "server/services/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

int OptionOf(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, name, &value, &size), 0);
  return value;
}

TEST(Acceptor, ConnectionsNoticeAPeerThatVanished) {
  const auto listeners = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  std::promise<int> taken;
  const auto acceptor = Acceptor::Start(
      listeners->sockets, [&](int fd) { taken.set_value(fd); }, [] { return int64_t{0}; });
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(listeners->port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  const int fd = taken.get_future().get();
  EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 20000);
  EXPECT_EQ(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE), 20);
  EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
  EXPECT_EQ(OptionOf(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
  close(fd);
  close(client);
}

// In the kernel's space of names, not on a disk.
sockaddr_un Address() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "beamd_acceptor_test." + std::to_string(getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return address;
}

int Connect(const sockaddr_un& to) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

// As the unix socket's are, which leaves the low numbers free.
TEST(Acceptor, CountsConnectionsThatAreMovedToHighNumbers) {
  constexpr int kLimit = 400, kLeft = kLimit - 100, kFirst = 64;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = kLimit;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(ReservedDescriptors(kLimit), kLimit - kLeft);

  const sockaddr_un address = Address();
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, SOMAXCONN), 0);
  std::vector<int> taken;
  auto acceptor = Acceptor::Start(
      {listener},
      [&](int fd) {
        taken.push_back(fcntl(fd, F_DUPFD_CLOEXEC, kFirst));
        close(fd);
      },
      [] { return int64_t{0}; });
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  for (int i = 0; i < 330; ++i) close(Connect(address));
  // Connections are taken in order: all of them were by now.
  const int last = Connect(address);
  char byte = 0;
  timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(last, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  EXPECT_EQ(recv(last, &byte, 1, 0), 0);  // turned away
  close(last);
  *acceptor = nullptr;
  EXPECT_LE(taken.size(), size_t{kLeft});
  EXPECT_GT(taken.size(), size_t{kLeft} / 2);
  for (const int fd : taken) EXPECT_GE(fd, kFirst);
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace beamd

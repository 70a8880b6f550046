#include "server/services/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>

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

}  // namespace
}  // namespace beamd

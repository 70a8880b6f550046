#include "server/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

// That systemd would listen on.
int Listen() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An abstract name, as systemd uses where it runs no file system for it.
  const std::string name = absl::StrCat("beamd-systemd-test-", getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  return fd;
}

TEST(Systemd, IsToldOnItsSocket) {
  const int fd = Listen();
  NotifySystemd("READY=1");
  char text[64] = {};
  EXPECT_EQ(recv(fd, text, sizeof(text), MSG_DONTWAIT), 7);
  EXPECT_STREQ(text, "READY=1");
  unsetenv("NOTIFY_SOCKET");
  NotifySystemd("READY=1");
  EXPECT_EQ(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1);
  close(fd);
}

TEST(Systemd, IsAskedForTimeWhileAStartTakesLong) {
  const int fd = Listen();
  char text[64] = {};
  {
    const LongStart start(absl::Milliseconds(10));
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(recv(fd, text, sizeof(text) - 1, 0), 25);
      EXPECT_STREQ(text, "EXTEND_TIMEOUT_USEC=60000");
    }
  }
  while (recv(fd, text, sizeof(text), MSG_DONTWAIT) > 0) continue;
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1) << "the start is over";
  unsetenv("NOTIFY_SOCKET");
  close(fd);
}

TEST(Systemd, WantsAWatchdogWhereItSaysSo) {
  unsetenv("WATCHDOG_USEC");
  unsetenv("WATCHDOG_PID");
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
  setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(WatchdogInterval(), absl::Seconds(15));
  // Of another process.
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  EXPECT_EQ(WatchdogInterval(), absl::Seconds(15));
  setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace beamd

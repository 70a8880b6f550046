// Each attempt is made in a process of its own, after it entered the sandbox.
#include "server/workers/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

constexpr int kLeftOut = 77;

// The exit status of a child that ran `attempt` inside; kLeftOut where the kernel refused `needs`.
int Inside(Sandbox sandbox, const std::string& needs, const std::function<bool()>& attempt) {
  const pid_t pid = fork();
  if (pid == 0) {
    const std::vector<std::string> in_force = EnterSandbox(sandbox);
    if (std::find(in_force.begin(), in_force.end(), needs) == in_force.end()) _exit(kLeftOut);
    _exit(attempt() ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#define EXPECT_INSIDE(sandbox, needs, ...)                                    \
  do {                                                                        \
    const int status = Inside(sandbox, needs, __VA_ARGS__);                   \
    if (status == kLeftOut) GTEST_SKIP() << needs << " isn't to be had here"; \
    EXPECT_EQ(status, 0);                                                     \
  } while (false)

TEST(Sandbox, LetsAWorkerCompute) {
  EXPECT_INSIDE(Sandbox::kStrict, "seccomp", [] {
    int sum = 0;
    std::thread([&] { sum = 1; }).join();
    void* code = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int memory = memfd_create("buffer", MFD_CLOEXEC);
    return sum == 1 && mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0 &&
           ftruncate(memory, 1 << 20) == 0 && std::string(1 << 20, 'x').size() == 1 << 20;
  });
}

TEST(Sandbox, StartsNoProgramsAndNoProcesses) {
  for (const Sandbox sandbox : {Sandbox::kStrict, Sandbox::kDevice}) {
    EXPECT_INSIDE(sandbox, "seccomp", [] {
      char* const argv[] = {nullptr};
      return execv("/bin/true", argv) == -1 && errno == EPERM;
    });
  }
  EXPECT_INSIDE(Sandbox::kStrict, "seccomp", [] { return fork() == -1; });
}

TEST(Sandbox, MakesNoSockets) {
  EXPECT_INSIDE(Sandbox::kStrict, "seccomp",
                [] { return socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM; });
}

TEST(Sandbox, SeesNoFilesButTheMachines) {
  const std::string own = ::testing::TempDir() + "sandbox_secret";
  close(open(own.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  EXPECT_INSIDE(Sandbox::kStrict, "files", [&] {
    return open(own.c_str(), O_RDONLY | O_CLOEXEC) == -1 &&
           open(own.c_str(), O_WRONLY | O_CLOEXEC) == -1 && open("/proc/stat", O_RDONLY) >= 0;
  });
}

TEST(Sandbox, SignalsOnlyItself) {
  EXPECT_INSIDE(Sandbox::kStrict, "seccomp",
                [] { return kill(getppid(), 0) == -1 && errno == EPERM; });
}

TEST(Sandbox, IsNobodyWhereItWasRoot) {
  if (geteuid() != 0 || kSanitizer) GTEST_SKIP() << "only a root's child changes its user";
  EXPECT_INSIDE(Sandbox::kStrict, "user", [] { return geteuid() == 65534 && getegid() == 65534; });
}

// The kernel forgets whom to die with when a process changes its user.
TEST(Sandbox, StillEndsWithItsParent) {
  int alive[2];  // held open by the grandchild
  ASSERT_EQ(pipe2(alive, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    int inside[2];
    if (pipe(inside) != 0) _exit(1);
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      EnterSandbox(Sandbox::kStrict);
      [[maybe_unused]] const ssize_t told = write(inside[1], "x", 1);
      while (true) usleep(1000);
    }
    char x = 0;
    _exit(read(inside[0], &x, 1) == 1 ? 0 : 1);
  }
  close(alive[1]);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  char x = 0;
  EXPECT_EQ(read(alive[0], &x, 1), 0);  // the end of the file: nobody holds it
  close(alive[0]);
}

TEST(Sandbox, OffIsNothing) {
  const pid_t pid = fork();
  if (pid == 0) _exit(EnterSandbox(Sandbox::kOff).empty() ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Sandbox, NamesParseBack) {
  for (const Sandbox s : {Sandbox::kOff, Sandbox::kDevice, Sandbox::kStrict}) {
    EXPECT_EQ(ParseSandbox(Name(s)), s);
  }
  EXPECT_EQ(ParseSandbox("of"), Sandbox::kStrict);
}

}  // namespace
}  // namespace beamd

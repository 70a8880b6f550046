#include "server/workers/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/workers/child_main.h"

// glibc 2.36 forgot that C++ includes it too.
extern "C" {
#include <sys/pidfd.h>
}

namespace beamd {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

// Half of all memory more than it has, in the system's choice of whom to end (proc(5)).
constexpr char kOomScore[] = "500";

cpu_set_t CoreSet(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  return set;
}

// Between fork and exec in a process with threads: system calls only, no allocation.
[[noreturn]] void Exec(const SpawnOptions& options, const cpu_set_t& cores, int channel, int null,
                       char* const* argv) {
  // `channel` and `null` are above 3: the caller saw to it.
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(channel, kChildChannelFd);
  close_range(kChildChannelFd + 1, ~0U, 0);
  if (!options.cores.empty()) sched_setaffinity(0, sizeof(cores), &cores);
  if (options.address_space_bytes > 0 && !kSanitizer) {
    const auto bytes = static_cast<rlim_t>(options.address_space_bytes);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
  }
  // Where the machine has no memory left, the system takes a child and not the daemon.
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    [[maybe_unused]] const ssize_t written = write(score, kOomScore, sizeof(kOomScore) - 1);
    close(score);
  }
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execv("/proc/self/exe", argv);
  _exit(127);
}

// A descriptor above the child's channel, so that dup2 there can't clobber it.
int Raise(int fd) {
  const int raised = fcntl(fd, F_DUPFD_CLOEXEC, kChildChannelFd + 1);
  close(fd);
  return raised;
}

}  // namespace

absl::StatusOr<SpawnedChild> Spawn(const SpawnOptions& options) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  const int child_end = Raise(sockets[1]);
  const int null = Raise(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (child_end < 0 || null < 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, "descriptors for a child");
    for (const int fd : {sockets[0], child_end, null}) {
      if (fd >= 0) close(fd);
    }
    return status;
  }
  fcntl(sockets[0], F_SETFL, O_NONBLOCK);

  std::vector<std::string> args = {"beamd"};
  args.insert(args.end(), options.args.begin(), options.args.end());
  args.push_back(absl::StrCat("--parent_pid=", getpid()));
  std::vector<char*> argv;
  argv.reserve(args.size() + 1);
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const cpu_set_t cores = CoreSet(options.cores);

  const pid_t pid = fork();
  if (pid == 0) Exec(options, cores, child_end, null, argv.data());
  const int fork_errno = errno;
  close(child_end);
  close(null);
  if (pid < 0) {
    close(sockets[0]);
    return absl::ErrnoToStatus(fork_errno, "fork");
  }
  // The child is not reaped before its pidfd is closed, so the pid is still its own.
  const int pidfd = pidfd_open(pid, 0);
  if (pidfd < 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, "pidfd_open");
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    close(sockets[0]);
    return status;
  }
  return SpawnedChild{.pid = pid, .pidfd = pidfd, .channel = sockets[0]};
}

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

absl::Status BindToCores(const std::vector<int>& cores) {
  const cpu_set_t set = CoreSet(cores);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "binding to cores");
}

}  // namespace beamd

#include "server/workers/sandbox.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <initializer_list>

namespace beamd {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

constexpr uid_t kNobody = 65534;
constexpr rlim_t kDescriptors = 256;

// capabilities(7); libcap would be one more library for one call.
bool DropCapabilities() {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

// A root's child becomes nobody, others stay who they are.
bool BecomeNobody() {
  if (geteuid() != 0) return false;
  int parent_death = 0;
  prctl(PR_GET_PDEATHSIG, &parent_death);
  if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0) {
    return false;
  }
  // A change of user clears it (prctl(2)). The daemon that died in between left its socket closed,
  // which ends the child too.
  prctl(PR_SET_PDEATHSIG, parent_death);
  return true;
}

// landlock(7): of the file system, only what says what machine this is. Landlock is a thread's own
// and that of threads that it starts.
bool ForgetFiles() {
  const landlock_ruleset_attr all{.handled_access_fs =
                                      (uint64_t{LANDLOCK_ACCESS_FS_MAKE_SYM} << 1) - 1};
  const int rules = static_cast<int>(syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0));
  if (rules < 0) return false;
  for (const char* path : {"/proc/stat", "/proc/loadavg", "/proc/cpuinfo", "/proc/meminfo",
                           "/proc/self", "/sys/devices/system/cpu", "/sys/devices/system/node"}) {
    landlock_path_beneath_attr rule{};
    rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) continue;
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(rule.parent_fd);
  }
  const bool done = syscall(SYS_landlock_restrict_self, rules, 0) == 0;
  close(rules);
  return done;
}

// Calls that fail with EPERM in a child that holds a device.
constexpr int kRefused[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(kcmp),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(bpf),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(bind),
    SCMP_SYS(listen),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
};

// Calls that a child which only computes may make; all others fail with EPERM.
constexpr int kAllowed[] = {
    // open descriptors
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(sendto),
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendmsg),
    SCMP_SYS(recvmsg),
    SCMP_SYS(shutdown),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(lseek),
    SCMP_SYS(fcntl),
    SCMP_SYS(dup),
    SCMP_SYS(dup3),
    SCMP_SYS(pipe2),
    SCMP_SYS(eventfd2),
    SCMP_SYS(memfd_create),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fallocate),
    SCMP_SYS(getdents64),
    // memory
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(brk),
    SCMP_SYS(mlock),
    SCMP_SYS(munlock),
    SCMP_SYS(mincore),
    SCMP_SYS(msync),
    SCMP_SYS(mbind),
    SCMP_SYS(get_mempolicy),
    SCMP_SYS(set_mempolicy),
    // threads
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_setaffinity),
    SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler),
    SCMP_SYS(getcpu),
    SCMP_SYS(rseq),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(get_robust_list),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(arch_prctl),
    SCMP_SYS(membarrier),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(restart_syscall),
    // clocks
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(times),
    SCMP_SYS(setitimer),
    SCMP_SYS(getitimer),
    SCMP_SYS(timer_create),
    SCMP_SYS(timer_settime),
    SCMP_SYS(timer_delete),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    // signals to itself
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigpending),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(sigaltstack),
    // questions
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getppid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getrusage),
    SCMP_SYS(getrlimit),
    SCMP_SYS(sysinfo),
    SCMP_SYS(uname),
    SCMP_SYS(getrandom),
};

bool AddAll(scmp_filter_ctx filter, uint32_t action, const int* begin, const int* end) {
  return std::all_of(begin, end,
                     [&](int call) { return seccomp_rule_add(filter, action, call, 0) == 0; });
}

bool AddArgumentRules(scmp_filter_ctx filter) {
  const auto pid = static_cast<scmp_datum_t>(getpid());
  constexpr scmp_datum_t kWrites = O_ACCMODE | O_CREAT | O_TRUNC;
  bool added = true;
  const auto allow = [&](int call, const scmp_arg_cmp& argument) {
    added = added && seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1, argument) == 0;
  };
  allow(SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
  allow(SCMP_SYS(openat), SCMP_A2(SCMP_CMP_MASKED_EQ, kWrites, O_RDONLY));
  allow(SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, pid));
  allow(SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
  allow(SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, PR_SET_VMA));
  // Its own limits, to read.
  allow(SCMP_SYS(prlimit64), SCMP_A2(SCMP_CMP_EQ, 0));
  // What it may not look at is answered with ENOSYS: glibc then takes clone, whose flags it may.
  return added && seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
}

bool FilterCalls(Sandbox sandbox) {
  const bool strict = sandbox == Sandbox::kStrict;
  scmp_filter_ctx filter = seccomp_init(strict ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW);
  if (filter == nullptr) return false;
  // Of all threads.
  seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
  bool added =
      strict ? AddAll(filter, SCMP_ACT_ALLOW, std::begin(kAllowed), std::end(kAllowed)) &&
                   AddArgumentRules(filter)
             : AddAll(filter, SCMP_ACT_ERRNO(EPERM), std::begin(kRefused), std::end(kRefused));
  added = added && seccomp_load(filter) == 0;
  seccomp_release(filter);
  return added;
}

bool LimitResources() {
  const rlimit descriptors{kDescriptors, kDescriptors};
  const rlimit none{0, 0};
  return setrlimit(RLIMIT_NOFILE, &descriptors) == 0 && setrlimit(RLIMIT_MSGQUEUE, &none) == 0 &&
         setrlimit(RLIMIT_CORE, &none) == 0;
}

}  // namespace

absl::string_view Name(Sandbox sandbox) {
  switch (sandbox) {
    case Sandbox::kOff:
      return "off";
    case Sandbox::kDevice:
      return "device";
    case Sandbox::kStrict:
      return "strict";
  }
  return "strict";
}

Sandbox ParseSandbox(absl::string_view name) {
  if (name == Name(Sandbox::kOff)) return Sandbox::kOff;
  if (name == Name(Sandbox::kDevice)) return Sandbox::kDevice;
  return Sandbox::kStrict;
}

std::vector<std::string> EnterSandbox(Sandbox sandbox) {
  std::vector<std::string> in_force;
  if (sandbox == Sandbox::kOff) return in_force;
  const auto note = [&](bool done, const char* what) {
    if (done) in_force.emplace_back(what);
  };
  const bool strict = sandbox == Sandbox::kStrict;
  note(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  if (kSanitizer) return in_force;
  // Drivers open what they need as they go, and some of it is large.
  if (strict) {
    note(LimitResources(), "rlimits");
    note(ForgetFiles(), "files");
    note(BecomeNobody(), "user");
  }
  note(DropCapabilities(), "capabilities");
  note(FilterCalls(sandbox), "seccomp");
  std::sort(in_force.begin(), in_force.end());
  return in_force;
}

}  // namespace beamd

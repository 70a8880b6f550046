#include "server/workers/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <deque>
#include <list>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "server/workers/child_main.h"
#include "server/workers/frame_channel.h"
#include "server/workers/spawn.h"
#include "spdlog/spdlog.h"

// glibc 2.36 forgot that C++ includes it too.
extern "C" {
#include <sys/pidfd.h>
}

namespace beamd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kNever = Clock::time_point::max();
// How often resident memory of busy children is read.
constexpr milliseconds kTick{50};
// How long the thread keeps ticking after the last task, so that submitting needs no wake-up.
constexpr milliseconds kStayAwake{1000};
// From the fork to the hello. Wide: loading LLVM on a loaded machine takes seconds.
constexpr milliseconds kStartLimit{60000};
// From the end of its input to a retired child's exit.
constexpr milliseconds kRetireLimit{5000};
// What a child that closed its channel may take to be gone: much memory is given back slowly.
constexpr milliseconds kDeathGrace{2000};
// Probes that may fail in a row before a pool is quarantined.
constexpr int kCanaryFailures = 2;
// Starts that may fail in a row before tasks are told, and the wait between them.
constexpr int kStartFailures = 3;
constexpr milliseconds kFirstBackOff{50};
constexpr milliseconds kLastBackOff{5000};

Clock::time_point After(Clock::time_point now, absl::Duration d) {
  if (d >= absl::Hours(24 * 365)) return kNever;
  return now + std::chrono::nanoseconds(absl::ToInt64Nanoseconds(d));
}

int64_t ResidentBytes(pid_t pid) {
  char bytes[128];
  const int fd = open(absl::StrCat("/proc/", pid, "/statm").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, bytes, sizeof(bytes) - 1);
  close(fd);
  if (n <= 0) return 0;
  bytes[n] = 0;
  long long total = 0, resident = 0;
  if (std::sscanf(bytes, "%lld %lld", &total, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Child {
  enum class State : uint8_t { kStarting, kProbing, kIdle, kBusy, kRetiring, kDying };

  SpawnedChild process;
  State state = State::kStarting;
  FrameParser in;
  std::string out;
  std::optional<PoolTask> task;
  uint64_t task_number = 0;
  bool greeted = false;  // said hello
  std::string failed;    // why it can't serve, in its own words
  bool probing = false;  // and is asked, and has not passed
  size_t canary_step = 0;
  std::string canary_failure;
  bool dead = false;
  Clock::time_point started;
  // Of a task: since when it has how long, and what was excused by then.
  Clock::time_point allowed_since;
  absl::Duration allowed, excused;
  bool excusable = true;        // whether that is more time
  int64_t resident_before = 0;  // the task, where its growth has a limit
  Clock::time_point deadline = kNever;
  // What becomes of the task, and of the count, if the deadline passes or once the child is dead.
  TaskOutcome verdict = TaskOutcome::kTimeout;
  std::string reason;  // "recycled", or verdict's name
  std::string detail;
  uint64_t tasks_done = 0;
  int64_t resident_bytes = 0;
  std::list<uint64_t> contexts;  // last used first
  absl::flat_hash_set<uint64_t> attached;
  // Descriptors that go with `out`, by where their frame begins in it.
  std::deque<std::pair<size_t, std::shared_ptr<const Attachment>>> files;
};

struct Pool {
  PoolOptions options;
  bool closed = false;
  std::list<std::unique_ptr<Child>> children;
  std::map<uint64_t, std::deque<PoolTask>> queues;  // by owner; none is empty
  uint64_t last_owner = 0;
  FairShare share;
  PoolState state;
  std::optional<Canary> canary;
  int canary_failures = 0;  // in a row
  int start_failures = 0;   // in a row
  Clock::time_point failing_since;
  std::string start_error = "not yet";
  Clock::time_point next_start = Clock::time_point::min();
};

// As send(2), with a descriptor beside the bytes where there is one.
ssize_t SendBytes(int channel, const char* bytes, size_t size, int file) {
  iovec what{.iov_base = const_cast<char*>(bytes), .iov_len = size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &what;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof(file));
  }
  return sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string DescribeExit(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return absl::StrCat("exited with status ", info.si_status);
  return absl::StrCat("killed by signal ", info.si_status, " (", strsignal(info.si_status), ")");
}

}  // namespace

const char* Name(TaskOutcome outcome) {
  static constexpr const char* kNames[] = {"done",    "timeout",   "crash",      "memory",
                                           "garbage", "cancelled", "unavailable"};
  return kNames[static_cast<int>(outcome)];
}

class Supervisor::Impl {
 public:
  explicit Impl(std::map<std::string, double> weights)
      : weights_(std::move(weights)),
        wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { Loop(); }) {}

  ~Impl() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      Wake();
    }
    thread_.join();
    close(wake_fd_);
  }

  PoolId AddPool(PoolOptions options) {
    MutexLock lock(mutex_);
    auto at = std::find_if(pools_.begin(), pools_.end(), [](const std::unique_ptr<Pool>& pool) {
      return pool->closed && pool->children.empty();
    });
    if (at == pools_.end()) at = pools_.insert(pools_.end(), nullptr);
    *at = std::make_unique<Pool>();
    (*at)->options = std::move(options);
    (*at)->share = FairShare(weights_);
    Wake();
    return static_cast<PoolId>(at - pools_.begin());
  }

  void ClosePool(PoolId id) {
    MutexLock lock(mutex_);
    Pool& pool = *pools_[id];
    pool.closed = true;
    pool.options.children = 0;
    for (auto& [owner, queue] : pool.queues) {
      for (PoolTask& task : queue) {
        Finish(pool, std::move(task), {.outcome = TaskOutcome::kCancelled, .detail = "closed"});
      }
    }
    pool.queues.clear();
    for (const auto& child : pool.children) Condemn(*child, TaskOutcome::kCancelled, "closed");
    Wake();
  }

  absl::StatusOr<internal::Hello> WaitForHello(PoolId id, absl::Duration timeout) {
    const absl::Time deadline = SteadyNow() + timeout;
    MutexLock lock(mutex_);
    const Pool& pool = *pools_[id];
    while (!pool.state.hello) {
      if (pool.start_failures >= kStartFailures || SteadyNow() >= deadline) {
        return absl::UnavailableError(
            absl::StrCat("no ", pool.options.name, " starts: ", pool.start_error));
      }
      hello_.WaitUntil(mutex_, deadline);
    }
    return *pool.state.hello;
  }

  void Submit(PoolId id, PoolTask task) {
    MutexLock lock(mutex_);
    Pool& pool = *pools_[id];
    if (stopping_ || pool.closed) {
      pool.share.Enter(task.claim.principal);
      Finish(
          pool, std::move(task),
          {.outcome = TaskOutcome::kCancelled, .detail = pool.closed ? "closed" : "shutting down"});
      return;
    }
    if (!pool.state.quarantine.empty()) {
      pool.share.Enter(task.claim.principal);
      Finish(pool, std::move(task),
             {.outcome = TaskOutcome::kUnavailable, .detail = pool.state.quarantine});
      return;
    }
    last_activity_ = Clock::now();
    pool.share.Enter(task.claim.principal);
    pool.queues[task.owner].push_back(std::move(task));
    Dispatch(pool);
  }

  void Cancel(uint64_t owner, absl::Duration grace, bool excuses) {
    MutexLock lock(mutex_);
    const auto now = Clock::now();
    for (const auto& pool : pools_) {
      if (const auto queue = pool->queues.find(owner); queue != pool->queues.end()) {
        for (PoolTask& task : queue->second) {
          Finish(*pool, std::move(task), {.outcome = TaskOutcome::kCancelled});
        }
        pool->queues.erase(queue);
      }
      for (const auto& child : pool->children) {
        if (child->state != Child::State::kBusy || child->task->owner != owner) continue;
        if (child->deadline <= After(now, grace)) continue;
        child->verdict = TaskOutcome::kCancelled;
        Allow(*pool, *child, now, grace);
        child->excusable = excuses;
      }
    }
    Wake();
  }

  void DropContext(uint64_t context) {
    MutexLock lock(mutex_);
    for (const auto& pool : pools_) {
      for (const auto& child : pool->children) {
        if (child->contexts.remove(context) > 0) SendDrop(*child, context);
      }
    }
    Wake();
  }

  void Detach(PoolId id, uint64_t attachment) {
    MutexLock lock(mutex_);
    for (const auto& child : pools_[id]->children) {
      if (child->attached.erase(attachment) == 0) continue;
      internal::Frame frame;
      frame.mutable_detach()->set_id(attachment);
      Send(*child, frame);
      Flush(*child);
      if (!child->out.empty()) Wake();
    }
  }

  void SetCanary(PoolId id, Canary canary) {
    MutexLock lock(mutex_);
    pools_[id]->canary = std::move(canary);
  }

  bool Release(PoolId id) {
    MutexLock lock(mutex_);
    Pool& pool = *pools_[id];
    const bool was = !pool.state.quarantine.empty();
    pool.state.quarantine.clear();
    pool.canary_failures = 0;
    Wake();
    return was;
  }

  std::string Quarantine(PoolId id) const {
    MutexLock lock(mutex_);
    return pools_[id]->state.quarantine;
  }

  PoolState State(PoolId id) const {
    MutexLock lock(mutex_);
    PoolState state = pools_[id]->state;
    for (const auto& child : pools_[id]->children) {
      state.children.push_back({.pid = child->process.pid,
                                .tasks_done = child->tasks_done,
                                .busy = child->state == Child::State::kBusy,
                                .resident_bytes = ResidentBytes(child->process.pid)});
    }
    return state;
  }

  uint64_t NewId() {
    MutexLock lock(mutex_);
    return ++last_id_;
  }

 private:
  void Wake() BEAMD_REQUIRES(mutex_) {
    const uint64_t one = 1;
    // Fails only where the counter is full, and then the thread is about to wake.
    [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof(one));
  }

  // Callbacks run on the thread, without the lock.
  void Finish(Pool& pool, PoolTask task, TaskEnd end) BEAMD_REQUIRES(mutex_) {
    pool.share.Charge(task.claim.principal, absl::ToDoubleSeconds(end.ran));
    pool.share.Leave(task.claim.principal);
    finished_.emplace_back(std::move(task.done), std::move(end));
    if (std::this_thread::get_id() != thread_id_) Wake();
  }

  // --- sending ---

  void Flush(Child& child) BEAMD_REQUIRES(mutex_) {
    size_t sent = 0;
    while (sent < child.out.size()) {
      // Up to the next frame that has a descriptor: it goes with the frame's first bytes.
      const bool with_file = !child.files.empty() && child.files.front().first == sent;
      const auto next = child.files.begin() + (with_file ? 1 : 0);
      const size_t end = next == child.files.end() ? child.out.size() : next->first;
      const ssize_t n = SendBytes(child.process.channel, child.out.data() + sent, end - sent,
                                  with_file ? child.files.front().second->file : -1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;  // full: POLLOUT tells; broken: the pidfd tells
      if (with_file) child.files.pop_front();
      sent += static_cast<size_t>(n);
    }
    child.out.erase(0, sent);
    for (auto& [begin, attachment] : child.files) begin -= sent;
  }

  void SendAttachment(Child& child, const std::shared_ptr<const Attachment>& attachment)
      BEAMD_REQUIRES(mutex_) {
    if (!child.attached.insert(attachment->attach.id()).second) return;
    internal::Frame frame;
    *frame.mutable_attach() = attachment->attach;
    child.files.emplace_back(child.out.size(), attachment);
    Send(child, frame);
  }

  // False where the frame is too long to send.
  bool Send(Child& child, const internal::Frame& frame) BEAMD_REQUIRES(mutex_) {
    absl::StatusOr<std::string> bytes = EncodeFrame(frame);
    if (!bytes.ok()) return false;
    child.out += *bytes;
    return true;
  }

  void SendDrop(Child& child, uint64_t context) BEAMD_REQUIRES(mutex_) {
    internal::Frame frame;
    frame.mutable_drop_context()->set_id(context);
    Send(child, frame);
    Flush(child);
  }

  bool SendContext(Pool& pool, Child& child, const internal::AddContext& context)
      BEAMD_REQUIRES(mutex_) {
    const auto held = std::find(child.contexts.begin(), child.contexts.end(), context.id());
    if (held != child.contexts.end()) {
      child.contexts.splice(child.contexts.begin(), child.contexts, held);
      return true;
    }
    internal::Frame frame;
    *frame.mutable_add_context() = context;
    if (!Send(child, frame)) return false;
    child.contexts.push_front(context.id());
    if (static_cast<int>(child.contexts.size()) > pool.options.contexts) {
      internal::Frame drop;
      drop.mutable_drop_context()->set_id(child.contexts.back());
      child.contexts.pop_back();
      Send(child, drop);
    }
    return true;
  }

  // Gives queued tasks to idle children.
  void Dispatch(Pool& pool) BEAMD_REQUIRES(mutex_) {
    for (const auto& child : pool.children) {
      // One that hung up is as good as dead.
      while (child->state == Child::State::kIdle && !child->dead && child->process.channel >= 0 &&
             !pool.queues.empty()) {
        // Of equal claims the next owner behind the last.
        const auto queue = std::min_element(
            pool.queues.begin(), pool.queues.end(), [&](const auto& a, const auto& b) {
              const uint64_t behind = pool.last_owner + 1;
              return pool.share.Before(a.second.front().claim, a.first - behind,
                                       b.second.front().claim, b.first - behind);
            });
        pool.last_owner = queue->first;
        PoolTask task = std::move(queue->second.front());
        queue->second.pop_front();
        if (queue->second.empty()) pool.queues.erase(queue);
        Run(pool, *child, std::move(task));
      }
    }
  }

  void Run(Pool& pool, Child& child, PoolTask task) BEAMD_REQUIRES(mutex_) {
    child.task_number = ++last_task_;
    task.request.set_task(child.task_number);
    for (const auto& attachment : task.attachments) SendAttachment(child, attachment);
    if ((task.context != nullptr && !SendContext(pool, child, *task.context)) ||
        !Send(child, task.request)) {
      Finish(pool, std::move(task),
             {.outcome = TaskOutcome::kGarbage, .detail = "request too long"});
      return;
    }
    Flush(child);
    child.started = Clock::now();
    child.verdict = TaskOutcome::kTimeout;
    child.state = Child::State::kBusy;
    child.task = std::move(task);
    if (child.task->growth_limit_bytes > 0) {
      child.resident_before = ResidentBytes(child.process.pid);
    }
    Allow(pool, child, child.started, child.task->limit);
    if (!child.out.empty() || std::min(child.deadline, child.started + kTick) < sleeps_until_) {
      Wake();
    }
  }

  // --- the thread ---

  void Loop() {
    MutexLock lock(mutex_);
    thread_id_ = std::this_thread::get_id();
    while (!stopping_) {
      const auto now = Clock::now();
      for (const auto& pool : pools_) {
        Judge(*pool, now);
        Start(*pool, now);
        Dispatch(*pool);
      }
      if (RunCallbacks()) continue;
      WaitForEvents();
    }
    Stop();
  }

  bool RunCallbacks() BEAMD_REQUIRES(mutex_) {
    if (finished_.empty()) return false;
    std::vector<std::pair<std::function<void(TaskEnd)>, TaskEnd>> finished;
    finished.swap(finished_);
    mutex_.Unlock();
    for (auto& [done, end] : finished) done(std::move(end));
    // What they held may come back here when it goes: a buffer's memory is detached.
    finished.clear();
    mutex_.Lock();
    return true;
  }

  // Ends those past their limits.
  void Judge(Pool& pool, Clock::time_point now) BEAMD_REQUIRES(mutex_) {
    for (const auto& child : pool.children) {
      if (child->state == Child::State::kBusy) CheckMemory(pool, *child, now);
      if (child->state != Child::State::kDying && now >= child->deadline &&
          !Excuse(pool, *child, now)) {
        const absl::Duration ran = absl::FromChrono(now - child->started);
        Condemn(*child, child->verdict,
                absl::StrCat("no answer within ", absl::FormatDuration(ran)));
      }
    }
  }

  // From now on its task has so long.
  static void Allow(const Pool& pool, Child& child, Clock::time_point now, absl::Duration time) {
    child.allowed_since = now;
    child.allowed = time;
    child.excused = pool.options.excused ? pool.options.excused() : absl::ZeroDuration();
    child.excusable = true;
    child.deadline = After(now, time);
  }

  // Whether what isn't counted moves its end.
  static bool Excuse(const Pool& pool, Child& child, Clock::time_point now) {
    const bool asked = child.state == Child::State::kBusy || child.state == Child::State::kProbing;
    if (!asked || !child.excusable || !pool.options.excused) return false;
    // One that hung up has no more time.
    if (child.verdict == TaskOutcome::kCrash) return false;
    child.deadline =
        After(child.allowed_since, child.allowed + pool.options.excused() - child.excused);
    return now < child.deadline;
  }

  void CheckMemory(Pool& pool, Child& child, Clock::time_point now) BEAMD_REQUIRES(mutex_) {
    const int64_t most = pool.options.memory_limit_bytes;
    const int64_t growth = child.task->growth_limit_bytes;
    if ((most <= 0 && growth <= 0) || now - child.started < kTick) return;
    const int64_t resident = ResidentBytes(child.process.pid);
    if (most > 0 && resident > most) {
      Condemn(child, TaskOutcome::kMemory,
              absl::StrCat("held ", resident, " bytes, the limit is ", most));
    } else if (growth > 0 && resident - child.resident_before > growth) {
      Condemn(child, TaskOutcome::kMemory,
              absl::StrCat("grew by ", resident - child.resident_before, " bytes, the limit is ",
                           growth));
    }
  }

  void Condemn(Child& child, TaskOutcome verdict, std::string detail) BEAMD_REQUIRES(mutex_) {
    if (child.state == Child::State::kDying) return;
    if (child.state != Child::State::kRetiring) {
      child.verdict = verdict;
      child.reason = Name(verdict);
      child.detail = std::move(detail);
    }
    child.state = Child::State::kDying;
    child.deadline = kNever;
    pidfd_send_signal(child.process.pidfd, SIGKILL, nullptr, 0);
  }

  void Start(Pool& pool, Clock::time_point now) BEAMD_REQUIRES(mutex_) {
    const auto serving = std::count_if(
        pool.children.begin(), pool.children.end(), [](const std::unique_ptr<Child>& child) {
          return child->state != Child::State::kRetiring && child->state != Child::State::kDying;
        });
    if (now < pool.next_start || !pool.state.quarantine.empty()) return;
    for (auto i = serving; i < pool.options.children; ++i) {
      SpawnOptions options{.args = pool.options.args,
                           .cores = pool.options.cores,
                           .address_space_bytes = pool.options.address_space_bytes};
      options.args.push_back(absl::StrCat("--name=", pool.options.name));
      absl::StatusOr<SpawnedChild> spawned = Spawn(options);
      if (!spawned.ok()) {
        StartFailed(pool, std::string(spawned.status().message()), now);
        return;
      }
      auto child = std::make_unique<Child>();
      child->process = *spawned;
      child->started = now;
      child->deadline = now + kStartLimit;
      pool.children.push_back(std::move(child));
    }
  }

  void StartFailed(Pool& pool, std::string why, Clock::time_point now) BEAMD_REQUIRES(mutex_) {
    pool.start_error = std::move(why);
    if (pool.start_failures == 0) pool.failing_since = now;
    const milliseconds wait =
        std::min(kLastBackOff, kFirstBackOff * (1 << std::min(pool.start_failures, 10)));
    pool.next_start = now + wait;
    if (++pool.start_failures < kStartFailures) return;
    hello_.NotifyAll();
    // What is short now, descriptors or memory, may not be in a while; and where others of the pool
    // serve, they take what waits.
    const bool some_serve =
        std::any_of(pool.children.begin(), pool.children.end(), [](const auto& child) {
          return child->greeted && child->state != Child::State::kRetiring &&
                 child->state != Child::State::kDying && !child->dead;
        });
    if (some_serve || After(pool.failing_since, pool.options.patience) > now) return;
    GiveUpQueues(pool, pool.start_error);
  }

  void GiveUpQueues(Pool& pool, const std::string& why) BEAMD_REQUIRES(mutex_) {
    for (auto& [owner, queue] : pool.queues) {
      for (PoolTask& task : queue) {
        Finish(pool, std::move(task), {.outcome = TaskOutcome::kUnavailable, .detail = why});
      }
    }
    pool.queues.clear();
  }

  Clock::time_point NextWakeUp(Clock::time_point now) const BEAMD_REQUIRES(mutex_) {
    auto next = now - last_activity_ < kStayAwake ? now + kTick : kNever;
    for (const auto& pool : pools_) {
      if (pool->start_failures > 0 && pool->next_start > now) {
        next = std::min(next, pool->next_start);
      }
      for (const auto& child : pool->children) {
        next = std::min(next, child->deadline);
        if (child->state == Child::State::kBusy) next = std::min(next, now + kTick);
      }
    }
    return next;
  }

  void WaitForEvents() BEAMD_REQUIRES(mutex_) {
    std::vector<pollfd> fds = {{.fd = wake_fd_, .events = POLLIN, .revents = 0}};
    std::vector<std::pair<Pool*, Child*>> watched;
    for (const auto& pool : pools_) {
      for (const auto& child : pool->children) {
        watched.emplace_back(pool.get(), child.get());
        const bool sends = !child->out.empty() && child->state != Child::State::kDying;
        const auto events = static_cast<short>(POLLIN | (sends ? POLLOUT : 0));
        fds.push_back({.fd = child->process.channel, .events = events, .revents = 0});
        fds.push_back({.fd = child->process.pidfd, .events = POLLIN, .revents = 0});
      }
    }
    const auto now = Clock::now();
    sleeps_until_ = NextWakeUp(now);
    timespec timeout{};
    if (sleeps_until_ != kNever) {
      const auto left =
          std::max(std::chrono::nanoseconds(0),
                   std::chrono::duration_cast<std::chrono::nanoseconds>(sleeps_until_ - now));
      timeout.tv_sec = left.count() / 1000000000;
      timeout.tv_nsec = left.count() % 1000000000;
    }
    mutex_.Unlock();
    ppoll(fds.data(), fds.size(), sleeps_until_ == kNever ? nullptr : &timeout, nullptr);
    mutex_.Lock();
    sleeps_until_ = Clock::time_point::min();
    if (fds[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = read(wake_fd_, &count, sizeof(count));
    }
    for (size_t i = 0; i < watched.size(); ++i) {
      auto [pool, child] = watched[i];
      const short channel = fds[1 + 2 * i].revents;
      const short exit = fds[2 + 2 * i].revents;
      if (channel & POLLOUT) Flush(*child);
      if (channel & (POLLIN | POLLHUP | POLLERR)) Receive(*pool, *child);
      if (exit != 0) Bury(*pool, child);
    }
  }

  void Receive(Pool& pool, Child& child) BEAMD_REQUIRES(mutex_) {
    char bytes[1 << 16];
    while (child.process.channel >= 0) {
      const ssize_t n = recv(child.process.channel, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (n <= 0) {
        // The end of the stream: the child is ending, or will be made to. Not polled again.
        HangUp(child);
        break;
      }
      child.in.Append({bytes, static_cast<size_t>(n)});
    }
    while (child.state != Child::State::kDying) {
      absl::StatusOr<std::optional<internal::Frame>> frame = child.in.Next();
      if (!frame.ok()) {
        Condemn(child, TaskOutcome::kGarbage, std::string(frame.status().message()));
        return;
      }
      if (!*frame) return;
      Accept(pool, child, std::move(**frame));
    }
  }

  void HangUp(Child& child) BEAMD_REQUIRES(mutex_) {
    close(child.process.channel);
    child.process.channel = -1;  // poll skips it
    if (child.state == Child::State::kRetiring || child.state == Child::State::kDying) return;
    // It has this long to be dead by itself, so that its own end is what is told.
    child.deadline = std::min(child.deadline, Clock::now() + kDeathGrace);
    child.verdict = TaskOutcome::kCrash;
  }

  void Accept(Pool& pool, Child& child, internal::Frame frame) BEAMD_REQUIRES(mutex_) {
    if (child.state == Child::State::kStarting) {
      if (!frame.has_hello() || frame.hello().build() != build_ ||
          frame.hello().protocol() != kFrameProtocol) {
        Condemn(child, TaskOutcome::kGarbage, "not a child of this build");
        return;
      }
      if (!frame.hello().failed().empty()) {
        child.failed = frame.hello().failed();
        return;
      }
      pool.state.hello = frame.hello();
      pool.start_failures = 0;
      child.greeted = true;
      for (const auto& attachment : pool.options.attachments) SendAttachment(child, attachment);
      Flush(child);
      child.deadline = kNever;
      child.state = Child::State::kIdle;
      if (pool.canary && !pool.canary->requests.empty()) Ask(pool, child);
      hello_.NotifyAll();
      return;
    }
    if (child.state == Child::State::kProbing) return Grade(pool, child, frame);
    if (child.state != Child::State::kBusy || frame.task() != child.task_number) {
      Condemn(child, TaskOutcome::kGarbage, "an answer to no question");
      return;
    }
    const auto now = Clock::now();
    const std::string ends = frame.ends();
    if (frame.has_condition()) pool.state.condition = frame.condition();
    TaskEnd end{
        .reply = std::move(frame), .ran = absl::FromChrono(now - child.started), .given = true};
    Finish(pool, *std::move(child.task), std::move(end));
    child.task.reset();
    child.state = Child::State::kIdle;
    child.deadline = kNever;
    ++child.tasks_done;
    ++pool.state.tasks_done;
    last_activity_ = now;
    if (ends.empty()) {
      Recycle(pool, child, now);
    } else {
      Retire(child, ends, now);
    }
    Dispatch(pool);
  }

  void Ask(Pool& pool, Child& child) BEAMD_REQUIRES(mutex_) {
    child.task_number = ++last_task_;
    internal::Frame request = pool.canary->requests[child.canary_step];
    request.set_task(child.task_number);
    if (pool.canary->context != nullptr) SendContext(pool, child, *pool.canary->context);
    Send(child, request);
    Flush(child);
    child.started = Clock::now();
    Allow(pool, child, child.started, pool.canary->limit);
    child.verdict = TaskOutcome::kTimeout;
    child.state = Child::State::kProbing;
    child.probing = true;
  }

  // What the child made of its canary.
  void Grade(Pool& pool, Child& child, const internal::Frame& answer) BEAMD_REQUIRES(mutex_) {
    const absl::Status status = answer.task() == child.task_number
                                    ? pool.canary->check(child.canary_step, answer)
                                    : absl::InternalError("an answer to no question");
    if (!status.ok()) {
      child.canary_failure = std::string(status.message());
      return Condemn(child, TaskOutcome::kGarbage, child.canary_failure);
    }
    if (++child.canary_step < pool.canary->requests.size()) return Ask(pool, child);
    pool.canary_failures = 0;
    child.probing = false;
    child.state = Child::State::kIdle;
    child.deadline = kNever;
    Dispatch(pool);
  }

  // A child ended before it had passed.
  void ProbeFailed(Pool& pool, const Child& child) BEAMD_REQUIRES(mutex_) {
    if (++pool.canary_failures < kCanaryFailures) return;
    pool.state.quarantine = absl::StrCat(
        "quarantined: its known kernel failed ", pool.canary_failures,
        " times, the last: ", child.canary_failure.empty() ? child.detail : child.canary_failure);
    GiveUpQueues(pool, pool.state.quarantine);
  }

  void Recycle(Pool& pool, Child& child, Clock::time_point now) BEAMD_REQUIRES(mutex_) {
    // Reading /proc costs as much as a short task: not after each.
    constexpr uint64_t kTasksBetweenLooks = 32;
    const PoolOptions& options = pool.options;
    bool due = options.recycle_tasks > 0 &&
               child.tasks_done >= static_cast<uint64_t>(options.recycle_tasks);
    if (!due && options.recycle_bytes > 0 && child.tasks_done % kTasksBetweenLooks == 0) {
      due = ResidentBytes(child.process.pid) > options.recycle_bytes;
    }
    if (due) Retire(child, "recycled", now);
  }

  void Retire(Child& child, std::string reason, Clock::time_point now) BEAMD_REQUIRES(mutex_) {
    child.state = Child::State::kRetiring;
    child.reason = std::move(reason);
    child.deadline = now + kRetireLimit;
    shutdown(child.process.channel, SHUT_WR);
  }

  // The child has ended: settles its task and forgets it.
  void Bury(Pool& pool, Child* child) BEAMD_REQUIRES(mutex_) {
    child->dead = true;
    // What it said before it died still counts.
    if (child->process.channel >= 0) Receive(pool, *child);
    siginfo_t info{};
    waitid(P_PIDFD, static_cast<id_t>(child->process.pidfd), &info, WEXITED);
    const bool condemned = !child->reason.empty();
    if (!condemned) {
      const bool memory = info.si_code == CLD_EXITED && info.si_status == kExitOutOfMemory;
      child->verdict = memory ? TaskOutcome::kMemory : TaskOutcome::kCrash;
      child->reason = Name(child->verdict);
      child->detail = DescribeExit(info);
    }
    const auto now = Clock::now();
    // Nothing a task does sends SIGKILL: an operator or the system did, and the task is innocent, as
    // is the device.
    const bool innocent = !condemned && info.si_code != CLD_EXITED && info.si_status == SIGKILL;
    if (child->task) {
      if (innocent && pool.options.retry && !child->task->retried) {
        child->task->retried = true;
        pool.queues[child->task->owner].push_front(*std::move(child->task));
      } else {
        Finish(pool, *std::move(child->task),
               {.outcome = child->verdict,
                .detail = child->detail,
                .ran = absl::FromChrono(now - child->started),
                .given = true});
      }
    }
    if (!child->greeted) {
      StartFailed(pool, child->failed.empty() ? child->detail : child->failed, now);
    }
    if (child->probing && !innocent) ProbeFailed(pool, *child);
    ++pool.state.replaced[child->reason];
    if (!stopping_ && !pool.closed) {
      spdlog::info("pool={} pid={} ended reason={} detail=\"{}\"", pool.options.name,
                   child->process.pid, child->reason, absl::CEscape(child->detail));
    }
    if (child->process.channel >= 0) close(child->process.channel);
    close(child->process.pidfd);
    pool.children.remove_if([&](const std::unique_ptr<Child>& c) { return c.get() == child; });
  }

  void Stop() BEAMD_REQUIRES(mutex_) {
    for (const auto& pool : pools_) {
      for (auto& [owner, queue] : pool->queues) {
        for (PoolTask& task : queue) {
          Finish(*pool, std::move(task),
                 {.outcome = TaskOutcome::kCancelled, .detail = "shutting down"});
        }
      }
      pool->queues.clear();
      for (const auto& child : pool->children) {
        pidfd_send_signal(child->process.pidfd, SIGKILL, nullptr, 0);
        siginfo_t info{};
        waitid(P_PIDFD, static_cast<id_t>(child->process.pidfd), &info, WEXITED);
        if (child->task) {
          Finish(*pool, *std::move(child->task),
                 {.outcome = TaskOutcome::kCancelled, .detail = "shutting down", .given = true});
        }
        if (child->process.channel >= 0) close(child->process.channel);
        close(child->process.pidfd);
      }
      pool->children.clear();
    }
    while (RunCallbacks()) {
    }
  }

  const std::map<std::string, double> weights_;
  const std::string build_ = BuildId();
  const int wake_fd_;
  mutable Mutex mutex_;
  CondVar hello_;
  std::vector<std::unique_ptr<Pool>> pools_ BEAMD_GUARDED_BY(mutex_);
  std::vector<std::pair<std::function<void(TaskEnd)>, TaskEnd>> finished_ BEAMD_GUARDED_BY(mutex_);
  Clock::time_point last_activity_ BEAMD_GUARDED_BY(mutex_) = Clock::time_point();
  // While the thread waits for events, when it will look again by itself.
  Clock::time_point sleeps_until_ BEAMD_GUARDED_BY(mutex_) = Clock::time_point::min();
  uint64_t last_id_ BEAMD_GUARDED_BY(mutex_) = 0;
  uint64_t last_task_ BEAMD_GUARDED_BY(mutex_) = 0;
  bool stopping_ BEAMD_GUARDED_BY(mutex_) = false;
  std::thread::id thread_id_ BEAMD_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all of the above
};

Supervisor::Supervisor(std::map<std::string, double> weights)
    : impl_(std::make_unique<Impl>(std::move(weights))) {}
Supervisor::~Supervisor() = default;
PoolId Supervisor::AddPool(PoolOptions options) { return impl_->AddPool(std::move(options)); }
void Supervisor::ClosePool(PoolId pool) { impl_->ClosePool(pool); }
absl::StatusOr<internal::Hello> Supervisor::WaitForHello(PoolId pool, absl::Duration timeout) {
  return impl_->WaitForHello(pool, timeout);
}
void Supervisor::SetCanary(PoolId pool, Canary canary) {
  impl_->SetCanary(pool, std::move(canary));
}
std::string Supervisor::Quarantine(PoolId pool) const { return impl_->Quarantine(pool); }
bool Supervisor::Release(PoolId pool) { return impl_->Release(pool); }
void Supervisor::Submit(PoolId pool, PoolTask task) { impl_->Submit(pool, std::move(task)); }
void Supervisor::Cancel(uint64_t owner, absl::Duration grace, bool excuses) {
  impl_->Cancel(owner, grace, excuses);
}
void Supervisor::DropContext(uint64_t context) { impl_->DropContext(context); }
void Supervisor::Detach(PoolId pool, uint64_t attachment) { impl_->Detach(pool, attachment); }
PoolState Supervisor::State(PoolId pool) const { return impl_->State(pool); }
uint64_t Supervisor::NewId() { return impl_->NewId(); }

}  // namespace beamd

// One client's buffers on one device, what happens to them, and the process that runs its graphs.
//
// On a device with memory of its own what a run writes is there alone, in the runner's hands, until
// somebody reads it: that brings it here. What was uploaded, or read since it was written, is here
// too, and outlives the runner.
//
// Calls that name a common buffer happen in the order in which they come: runs one behind the
// other, a reader behind the last run before it that writes what it reads. Who reads has the
// content as it was: a run that comes meanwhile writes into a copy.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/device_turn.h"
#include "engine/base/mutex.h"
#include "engine/base/steady_clock.h"
#include "proto/beamd/v1/executor.pb.h"
#include "server/auth/caller.h"
#include "server/services/executor.h"
#include "server/sessions/budget.h"
#include "server/sessions/content.h"
#include "server/sessions/graph_use.h"
#include "server/sessions/kernel_choice.h"
#include "server/sessions/transfer_pace.h"
#include "server/sessions/upload.h"
#include "server/workers/cancel.h"
#include "server/workers/supervisor.h"

namespace beamd {

struct SessionLimits {
  int64_t sessions = 256;            // of all
  int64_t principal_sessions = 64;   // of one principal
  int64_t buffers = 4096;            // of one session
  int64_t total_buffers = 16384;     // of all: each is a descriptor and a mapping
  int64_t bytes = int64_t{8} << 30;  // of one session, scratch memory of its runs included
  int64_t total_bytes = int64_t{16} << 30;
  // Of one principal.
  int64_t principal_buffers = total_buffers;
  int64_t principal_bytes = total_bytes;
  int64_t chunk_bytes = int64_t{4} << 20;
  // A second and core that serves, of all transfers, while other sessions run; 0: no limit.
  int64_t shared_transfer_bytes = int64_t{12} << 20;
  int64_t inline_bytes = int64_t{4} << 20;
  int64_t queued_runs = 256;  // of one session
  // About what the graphs of all sessions' runs take that have not ended.
  int64_t queued_bytes = int64_t{1} << 30;
  int64_t principal_queued_bytes = queued_bytes;  // likewise, of one principal
  // Memory of freed buffers that a session keeps for its next ones, as long as it is busy.
  int64_t spare_bytes = int64_t{64} << 20;
  int64_t graph_nodes = 20000;
  int64_t plans = 256;  // that a session keeps
  absl::Duration lease = absl::Minutes(1);
  absl::Duration longest_lease = absl::Hours(1);
  // Of one run's kernels, waiting for the device's turn not counted; of planning and compiling.
  absl::Duration run_time = absl::Seconds(60);
  absl::Duration plan_time = absl::Seconds(120);
  // That planning and compiling one run may take.
  int64_t plan_bytes = int64_t{1} << 30;
};

// A device that sessions can be opened on.
struct SessionDevice {
  const TuningDevice* device = nullptr;
  std::shared_ptr<const Attachment> turn;
  // Before that, the one of its principal's sessions there.
  std::shared_ptr<DeviceTurn> group_turn;
  // Of the session's runner.
  std::shared_ptr<RunPage> page;
  std::vector<int> cores;
  std::string sandbox;  // an argument of the runner's
  // Runs read and write copies there of what their buffers hold here.
  bool own_memory = false;
};

// How many runs ended so, by outcome: "ok", "captured", "refused", "cancelled", "timeout", "crash",
// "memory", "unavailable".
class RunCounts {
 public:
  void Add(const std::string& outcome) {
    MutexLock lock(mutex_);
    ++counts_[outcome];
  }
  std::map<std::string, uint64_t> Get() const {
    MutexLock lock(mutex_);
    return counts_;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, uint64_t> counts_ BEAMD_GUARDED_BY(mutex_);
};

// What one principal's sessions have together.
struct PrincipalUse {
  PrincipalUse(const SessionLimits& limits, Budget* whole)
      : memory(limits.principal_bytes, limits.principal_buffers, whole) {}

  Budget memory;
  std::atomic<int64_t> queued_bytes{0};
};

// What sessions share; all of it outlives them.
struct SessionHost {
  SessionLimits limits;
  Supervisor* supervisor = nullptr;
  KernelChooser* chooser = nullptr;
  const Tuner* tuner = nullptr;
  ContentIndex* index = nullptr;
  RunCounts* counts = nullptr;
  TransferPace* pace = nullptr;
  // For what may block.
  Executor* executor = nullptr;
  // Runs that have not ended.
  std::atomic<int64_t> pending{0};
  std::atomic<int64_t> queued_bytes{0};
  std::atomic<bool> stopping = false;
  // Of the runners: argv without the device, and where they compile.
  std::vector<std::string> runner_args;
  std::vector<int> compile_cores;
};

// A buffer's content at one moment, and what it is.
struct BufferSnapshot {
  v1::BufferInfo info;
  std::shared_ptr<const Content> content;
};

// Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using RunDone = std::function<void(absl::StatusOr<v1::RunResponse>)>;
  using ReadDone = std::function<void(absl::StatusOr<BufferSnapshot>)>;

  Session(SessionHost& host, SessionDevice device, std::string id, std::string principal,
          std::shared_ptr<PrincipalUse> use, std::string label, absl::Duration lease)
      : host_(host),
        device_(std::move(device)),
        id_(std::move(id)),
        principal_(std::move(principal)),
        use_(std::move(use)),
        label_(std::move(label)),
        lease_(lease) {}

  const std::string& id() const { return id_; }
  const std::string& principal() const { return principal_; }
  v1::Session Describe() const;

  // --- the lease ---
  // It is used: the lease begins anew. False where it has ended.
  bool Touch(absl::Time now);
  // When its lease ends; never while something runs for it.
  absl::Time expires() const;
  // Lets go of memory that waits for another use, where nobody has called for a while.
  void Trim(absl::Time now);
  // Ends it; what runs ends with an error. Returns what it held.
  int64_t Close();
  // What calls of one that has ended are told: NotFound, or Unavailable where the server stops.
  absl::Status Ended() const;

  // --- buffers ---
  absl::StatusOr<v1::BeginUploadResponse> BeginUpload(const v1::BeginUploadRequest& request);
  // A stream that brings a buffer's content.
  struct Upload {
    std::shared_ptr<UploadState> state;
    uint64_t stream = 0;
    uint64_t handle = 0;
  };
  // That goes on at `offset`; the stream of the buffer that was open ends. FailedPrecondition where
  // its content is there, OutOfRange where it goes on elsewhere.
  absl::StatusOr<Upload> OpenUpload(uint64_t handle, int64_t offset);
  // At the end of the stream; the buffer can be used where all of it came.
  void CloseUpload(const Upload& upload);
  // What a transfer that moved `bytes` waits before it moves more, for other clients' sake.
  absl::Duration PauseAfter(int64_t bytes) const;
  // `done` is called at once, or when the last run that writes it has ended.
  void Read(uint64_t handle, ReadDone done);
  // `end` is called where the session ends before Quit: whoever still holds what it read must let it
  // go. It must neither block nor call the session. 0 where it has ended.
  uint64_t Join(std::function<void()> end);
  // Afterwards `end` isn't called and doesn't run any more.
  void Quit(uint64_t joined);
  // All or none: NotFound naming a handle that isn't there.
  absl::StatusOr<int64_t> Free(std::span<const uint64_t> handles);

  // --- runs ---
  // `done` is called once, on any thread; it must not block. A run that is cancelled ends before its
  // next kernel, and its runner does where that doesn't come within two seconds: what it assigns to
  // is lost once it has begun.
  void Run(v1::RunRequest request, const Caller& caller, std::shared_ptr<CancelToken> cancel,
           RunDone done);

 private:
  struct Buffer;
  struct Plan;
  struct Task;
  using BufferPtr = std::shared_ptr<Buffer>;
  using TaskPtr = std::shared_ptr<Task>;

  bool is_closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }
  absl::StatusOr<BufferPtr> FindBuffer(uint64_t handle) const BEAMD_REQUIRES(mutex_);
  absl::StatusOr<uint64_t> AddBuffer(BufferPtr buffer) BEAMD_REQUIRES(mutex_);
  // Memory that waits, or new. Its content is this session's old one: whoever takes it overwrites
  // it before somebody reads.
  absl::StatusOr<std::shared_ptr<Content>> NewContent(int64_t size_bytes) BEAMD_REQUIRES(mutex_);
  // For who writes it here and not on the device.
  absl::StatusOr<std::shared_ptr<Content>> NewStagedContent(int64_t size_bytes)
      BEAMD_REQUIRES(mutex_);
  // False where nothing waits.
  bool DropSpare() BEAMD_REQUIRES(mutex_);
  void Keep(std::shared_ptr<Content> content) BEAMD_REQUIRES(mutex_);
  absl::Status CheckRoom(int64_t buffers, int64_t bytes) const BEAMD_REQUIRES(mutex_);

  // Nobody waits for it any more: it ends at its next step, or what it runs does.
  void Abandon(const TaskPtr& task);
  // Of an abandoned one, that step.
  void Drop(const TaskPtr& task);
  absl::Status Admit(const TaskPtr& task) BEAMD_REQUIRES(mutex_);
  void CountQueued(int64_t bytes) {
    host_.queued_bytes.fetch_add(bytes);
    use_->queued_bytes.fetch_add(bytes);
  }
  // True where it is the first.
  bool Enqueue(const TaskPtr& task) BEAMD_REQUIRES(mutex_);
  void Advance(const TaskPtr& task);
  // Whether kernels of its plan were tuned since, where its policy is to tune them.
  bool IsOutdated(const TaskPtr& task);
  void Forget(const TaskPtr& task);
  void Ask(const TaskPtr& task, internal::Frame request, absl::Duration limit,
           std::vector<std::shared_ptr<const Attachment>> attachments,
           void (Session::*then)(const TaskPtr&, internal::Frame&));
  void Planned(const TaskPtr& task, internal::Frame& reply);
  void Choose(const TaskPtr& task);
  void BuiltPlan(const TaskPtr& task, internal::Frame& reply);
  void Start(const TaskPtr& task);
  absl::Status GatherMemories(const TaskPtr& task) BEAMD_REQUIRES(mutex_);
  // The answer has the outputs' content where that is so many bytes.
  uint64_t MostInline(const Task& task) const;
  // Of a run on a device with memory of its own.
  void AddStates(const Task& task, internal::RunPlanRequest& run) BEAMD_REQUIRES(mutex_);
  void Ran(const TaskPtr& task, internal::Frame& reply);
  void Fetch(const TaskPtr& task);
  void Fetched(const TaskPtr& task, internal::Frame& reply);
  void Again(const TaskPtr& task);
  absl::StatusOr<v1::RunResponse> Answer(const TaskPtr& task, const internal::RunPlanReply& reply)
      BEAMD_REQUIRES(mutex_);
  void Lose(const TaskPtr& task, const std::string& why);
  // What it held alone is lost, and so are its plans.
  void LoseRunner(const std::string& why);
  void Finish(const TaskPtr& task, absl::StatusOr<v1::RunResponse> answer);
  PoolId Pool() BEAMD_REQUIRES(mutex_);

  SessionHost& host_;
  const SessionDevice device_;
  const std::string id_;
  const std::string principal_;
  const std::shared_ptr<PrincipalUse> use_;
  const std::string label_;
  const absl::Duration lease_;

  mutable Mutex mutex_;
  bool closed_ BEAMD_GUARDED_BY(mutex_) = false;
  absl::Time used_ BEAMD_GUARDED_BY(mutex_) = SteadyNow();
  uint64_t last_handle_ BEAMD_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, BufferPtr> buffers_ BEAMD_GUARDED_BY(mutex_);
  int64_t bytes_ BEAMD_GUARDED_BY(mutex_) = 0;
  int64_t scratch_bytes_ BEAMD_GUARDED_BY(mutex_) = 0;
  // By size; nobody else holds them.
  absl::flat_hash_map<int64_t, std::vector<std::shared_ptr<Content>>> spare_
      BEAMD_GUARDED_BY(mutex_);
  int64_t spare_bytes_ BEAMD_GUARDED_BY(mutex_) = 0;
  std::optional<PoolId> pool_ BEAMD_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<Plan>> plans_ BEAMD_GUARDED_BY(mutex_);
  uint64_t plan_uses_ BEAMD_GUARDED_BY(mutex_) = 0;
  std::deque<TaskPtr> queue_ BEAMD_GUARDED_BY(mutex_);  // the first one runs
  // Of them, those that end when it is their turn, since nobody waits for them.
  int64_t dropped_ BEAMD_GUARDED_BY(mutex_) = 0;

  Mutex joined_mutex_;
  bool ended_ BEAMD_GUARDED_BY(joined_mutex_) = false;
  uint64_t last_joined_ BEAMD_GUARDED_BY(joined_mutex_) = 0;
  std::map<uint64_t, std::function<void()>> joined_ BEAMD_GUARDED_BY(joined_mutex_);
};

}  // namespace beamd

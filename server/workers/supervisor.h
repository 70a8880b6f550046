// Owns the daemon's children: starts them, hands them tasks, ends and replaces those that overrun,
// crash, swell or talk nonsense. One thread forks, waits and kills; it lives as long as the object.
//
// A pool is a number of like children. Each has at most one task at a time, so a task's limit
// counts its running, never its queueing. Tasks of one owner run in the order of their submission.
// Between owners the claims decide (fair_share.h), and owners of equal claims take turns: who has a
// better claim waits for one task at most.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/workers/fair_share.h"
#include "server/workers/frames.pb.h"

namespace beamd {

// Memory, or another thing behind a descriptor, that children are given before a task that names
// it.
struct Attachment {
  internal::Attach attach;  // its id is of this pool alone
  int file = -1;
  std::shared_ptr<const void> owner;  // keeps the descriptor open
};

struct PoolOptions {
  std::string name;  // "worker", "runner"
  int children = 1;
  // argv behind the program's name.
  std::vector<std::string> args;
  std::vector<int> cores;
  // Resident memory past which a child is killed, and replaced after its task; 0: no limit.
  int64_t memory_limit_bytes = 0;
  int64_t recycle_bytes = 0;
  int64_t address_space_bytes = 0;
  // Tasks after which a child is replaced; 0: never.
  int64_t recycle_tasks = 0;
  // Contexts that a child keeps; the longest unused goes first.
  int contexts = 8;
  // Given to every child once it has said hello.
  std::vector<std::shared_ptr<const Attachment>> attachments;
  // Whether a task may be given a second child where its first was killed from outside: it must do
  // no harm when it runs twice.
  bool retry = true;
  // How long tasks wait while no child starts, before they are kUnavailable; three starts are tried
  // at least.
  absl::Duration patience;
  // By what this grows while a child is asked its limit is longer. Asked where that begins and where
  // it would be over, under the supervisor's lock: no more than a look into memory. Empty: nothing.
  std::function<absl::Duration()> excused;
};

// What a child must answer rightly before it is given work; it is asked once it has said hello.
struct Canary {
  // As PoolTask's.
  std::shared_ptr<const internal::AddContext> context;
  // Asked in turn, each with this limit.
  std::vector<internal::Frame> requests;
  absl::Duration limit = absl::Seconds(30);
  // Why the answer to request `step` is wrong, or OK. Called on the supervisor's thread: must not
  // block.
  std::function<absl::Status(size_t step, const internal::Frame& reply)> check;
};

// How a task ended.
enum class TaskOutcome : uint8_t {
  kDone,        // reply holds the child's answer
  kTimeout,     // overran its limit; the child was killed
  kCrash,       // the child died
  kMemory,      // the child passed its memory limit
  kGarbage,     // the child's answer was no frame, or not to this task
  kCancelled,   // its owner was cancelled
  kUnavailable  // children of this pool don't start, or it is quarantined
};
const char* Name(TaskOutcome outcome);

struct TaskEnd {
  TaskOutcome outcome = TaskOutcome::kDone;
  std::string detail;
  internal::Frame reply;
  absl::Duration ran;
  bool given = false;  // a child had it
};

struct PoolTask {
  // Tasks of one job share an owner and a claim; cancelling is by owner.
  uint64_t owner = 0;
  Claim claim;
  // Sent to a child before its first task that names it; its id is unique in the daemon.
  std::shared_ptr<const internal::AddContext> context;
  // Likewise; a child keeps them until Detach.
  std::vector<std::shared_ptr<const Attachment>> attachments;
  internal::Frame request;
  absl::Duration limit = absl::InfiniteDuration();
  // What resident memory may grow by while it runs; 0: no limit but the pool's.
  int64_t growth_limit_bytes = 0;
  // Called once, on the supervisor's thread: must not block, may submit.
  std::function<void(TaskEnd)> done;
  // Set by the supervisor: its child was killed from outside, so it is given a second one.
  bool retried = false;
};

struct ChildState {
  int64_t pid = 0;
  uint64_t tasks_done = 0;
  bool busy = false;
  int64_t resident_bytes = 0;
};

struct PoolState {
  std::vector<ChildState> children;
  uint64_t tasks_done = 0;
  // Children that ended, by reason: "timeout", "crash", "memory", "garbage", "recycled",
  // "cancelled", "device" (a runner whose device was lost).
  std::map<std::string, uint64_t> replaced;
  // Why nobody is served; empty: all are.
  std::string quarantine;
  // What the newest child that started said of itself.
  std::optional<internal::Hello> hello;
  // The device's, as a runner told last.
  std::optional<v1::DeviceCondition> condition;
};

using PoolId = int;

// Thread-safe.
class Supervisor {
 public:
  explicit Supervisor(std::map<std::string, double> weights = {});  // FairShare's
  // Kills every child; tasks that have not ended end as cancelled.
  ~Supervisor();

  // Starts the children.
  PoolId AddPool(PoolOptions options);
  // Ends its children and starts no more; it takes no tasks, and those that wait end as cancelled.
  // Its number is given to another pool once they are gone.
  void ClosePool(PoolId pool);
  // Until a child of the pool has said hello. Unavailable where none does.
  absl::StatusOr<internal::Hello> WaitForHello(PoolId pool, absl::Duration timeout);

  // From now on children of the pool are asked the canary when they start. Where two in a row fail
  // it, the pool is quarantined: its tasks end as unavailable, and no child is started, until
  // Release.
  void SetCanary(PoolId pool, Canary canary);
  // False where it wasn't quarantined.
  bool Release(PoolId pool);
  // PoolState::quarantine alone: cheap.
  std::string Quarantine(PoolId pool) const;

  void Submit(PoolId pool, PoolTask task);
  // Ends the owner's queued tasks now, and its running ones by killing their children, where those
  // don't answer within `grace`. With `excuses` what their pool excuses isn't counted: they were told
  // to end, and are to end by themselves once they come to it.
  void Cancel(uint64_t owner, absl::Duration grace = absl::Milliseconds(100), bool excuses = false);
  // Forgets a context in every child that holds it.
  void DropContext(uint64_t context);

  // Takes an attachment from the pool's children.
  void Detach(PoolId pool, uint64_t attachment);

  PoolState State(PoolId pool) const;
  // A number no one else was given: for owners and contexts.
  uint64_t NewId();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace beamd

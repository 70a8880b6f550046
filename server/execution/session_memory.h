// The memories of a session as its runner has them: on a CPU the daemon's memory itself, on a device
// with memory of its own a copy there, which is what runs read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/device.h"
#include "devices/device_turn.h"
#include "server/execution/shared_memory.h"
#include "server/workers/frames.pb.h"

namespace beamd {

// Not thread-safe.
class SessionMemory {
 public:
  // `device` outlives it.
  explicit SessionMemory(Device& device);

  // Transfers take it a few megabytes at a time; null: the device is ours alone. Outlives them.
  void set_turn(DeviceTurn* turn) { turn_ = turn; }
  // Closes `file`. InvalidArgument where that is smaller.
  absl::Status Attach(uint64_t id, int file, size_t size_bytes, bool writable);
  // What the device has of it is freed.
  void Detach(uint64_t id) { held_.erase(id); }

  // For a run. On a device with memory of its own `state` says what must be there: HELD, the
  // device's copy; STAGED, that, or else one is made of the shared memory; NEW, anything. NotFound:
  // the device has no copy; ResourceExhausted: there is no room for one.
  absl::StatusOr<Buffer*> Get(uint64_t id, internal::MemoryState state);
  // Makes the shared memory what the device has. NotFound: it has none of it.
  absl::Status Fetch(uint64_t id);

 private:
  struct Held {
    std::unique_ptr<SharedMemory> shared;  // null on a CPU: it is `memory`
    std::unique_ptr<Buffer> memory;        // null: the device has no copy
  };
  absl::StatusOr<Held*> Find(uint64_t id);

  Device& device_;
  const bool own_;  // the device has memory of its own
  DeviceTurn* turn_ = nullptr;
  std::map<uint64_t, Held> held_;
};

}  // namespace beamd

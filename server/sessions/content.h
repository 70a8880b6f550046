// What buffers hold: memory that several may share, found again by its digest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/execution/shared_memory.h"
#include "server/sessions/budget.h"
#include "server/workers/supervisor.h"

namespace beamd {

// Memory of one buffer, or of several that hold the same. Who wants to write must be its only owner
// and find it not fixed; else it is copied first.
class Content {
 public:
  // Zeros. ResourceExhausted: the budget, or the system.
  static absl::StatusOr<std::shared_ptr<Content>> Create(std::shared_ptr<Budget> budget,
                                                         int64_t size_bytes);
  ~Content();
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;

  // As writing into data() does, but pages that nobody had yet are not cleared first.
  // ResourceExhausted where the system has none.
  absl::Status Write(int64_t offset, std::span<const std::span<const std::byte>> parts);
  std::byte* data() const { return memory_->data(); }
  int64_t size_bytes() const { return static_cast<int64_t>(memory_->size_bytes()); }
  // False: what a buffer holds is a device's alone, and data() isn't it. True from the start. Only
  // for the session that has it; what several have is staged for good.
  bool staged() const { return staged_; }
  void set_staged(bool staged) { staged_ = staged; }
  // Never written any more: it is known by its digest. Before anybody runs on it.
  void Fix() { fixed_ = true; }
  bool fixed() const { return fixed_; }
  // It for a pool's runner, under id(). Read-only where it is fixed. `supervisor` outlives it.
  std::shared_ptr<const Attachment> AttachTo(Supervisor& supervisor, PoolId pool);
  // Takes it from the runners that have it.
  void Detach();
  // That no other content has.
  uint64_t id() const { return id_; }

 private:
  Content(std::shared_ptr<Budget> budget, std::shared_ptr<SharedMemory> memory, uint64_t id)
      : budget_(std::move(budget)), memory_(std::move(memory)), id_(id) {}

  const std::shared_ptr<Budget> budget_;
  const std::shared_ptr<SharedMemory> memory_;
  const uint64_t id_;
  bool fixed_ = false;
  bool staged_ = true;
  Mutex mutex_;
  std::vector<std::pair<Supervisor*, PoolId>> pools_ BEAMD_GUARDED_BY(mutex_);
};

// Fixed contents that are held now, by principal, digest and size. Thread-safe.
class ContentIndex {
 public:
  void Add(const std::string& principal, const std::string& sha256,
           const std::shared_ptr<Content>& content);
  // Null where there is none.
  std::shared_ptr<Content> Find(const std::string& principal, const std::string& sha256,
                                int64_t size_bytes);

 private:
  using Key = std::pair<std::string, std::string>;

  Mutex mutex_;
  std::map<Key, std::weak_ptr<Content>> contents_ BEAMD_GUARDED_BY(mutex_);
  size_t sweep_at_ BEAMD_GUARDED_BY(mutex_) = 1024;
};

// SHA-256 of what comes bit by bit (FIPS 180-4). Not thread-safe.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;
  void Add(std::span<const std::byte> bytes);
  // 32 bytes; once.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace beamd

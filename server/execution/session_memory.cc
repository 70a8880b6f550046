#include "server/execution/session_memory.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Of one turn of the device: a millisecond or two.
constexpr size_t kTransferBytes = size_t{16} << 20;

}  // namespace

SessionMemory::SessionMemory(Device& device)
    : device_(device), own_(device.caps().kind != TargetKind::kCpu) {}

absl::Status SessionMemory::Attach(uint64_t id, int file, size_t size_bytes, bool writable) {
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> shared,
                         SharedMemory::Open(file, size_bytes, writable));
  Held held;
  if (own_) {
    held.shared = std::move(shared);
  } else {
    held.memory = std::make_unique<SharedBuffer>(std::move(shared));
  }
  held_[id] = std::move(held);
  return absl::OkStatus();
}

absl::StatusOr<SessionMemory::Held*> SessionMemory::Find(uint64_t id) {
  const auto at = held_.find(id);
  if (at == held_.end()) return absl::NotFoundError(absl::StrCat("memory ", id, " isn't here"));
  return &at->second;
}

absl::StatusOr<Buffer*> SessionMemory::Get(uint64_t id, internal::MemoryState state) {
  BEAMD_ASSIGN_OR_RETURN(Held* const held, Find(id));
  if (held->memory != nullptr) return held->memory.get();
  if (state == internal::HELD) {
    return absl::NotFoundError(absl::StrCat("the device has no copy of memory ", id));
  }
  SharedMemory& shared = *held->shared;
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory, device_.Allocate(shared.size_bytes()));
  if (state == internal::STAGED) {
    for (size_t at = 0; at < shared.size_bytes(); at += kTransferBytes) {
      const DeviceTurnScope turn(turn_);
      const size_t count = std::min(kTransferBytes, shared.size_bytes() - at);
      BEAMD_RETURN_IF_ERROR(memory->Write(at, {shared.data() + at, count}));
    }
    shared.LetGo();
  }
  held->memory = std::move(memory);
  return held->memory.get();
}

absl::Status SessionMemory::Fetch(uint64_t id) {
  BEAMD_ASSIGN_OR_RETURN(Held* const held, Find(id));
  if (!own_) return absl::OkStatus();
  if (held->memory == nullptr) {
    return absl::NotFoundError(absl::StrCat("the device has no copy of memory ", id));
  }
  SharedMemory& shared = *held->shared;
  for (size_t at = 0; at < shared.size_bytes(); at += kTransferBytes) {
    const DeviceTurnScope turn(turn_);
    const size_t count = std::min(kTransferBytes, shared.size_bytes() - at);
    BEAMD_RETURN_IF_ERROR(held->memory->Read(at, {shared.data() + at, count}));
  }
  shared.LetGo();
  return absl::OkStatus();
}

}  // namespace beamd

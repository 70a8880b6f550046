#include "server/execution/device_memory.h"

#include <algorithm>
#include <span>

#include "engine/base/status.h"

namespace beamd {
namespace {

// No more than this waits for reuse.
constexpr int64_t kMostWaitingBytes = int64_t{1} << 30;

}  // namespace

absl::StatusOr<std::shared_ptr<DeviceMemory>> OpenedDevice::Allocate(int64_t size_bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(size_bytes, kWindowAlignment));
  std::unique_ptr<Buffer> buffer;
  if (const auto it = waiting_.find(size); it != waiting_.end() && !it->second.empty()) {
    buffer = std::move(it->second.back());
    it->second.pop_back();
    waiting_bytes_ -= static_cast<int64_t>(size);
  } else {
    absl::StatusOr<std::unique_ptr<Buffer>> allocated = device_->Allocate(size);
    if (absl::IsResourceExhausted(allocated.status()) && waiting_bytes_ > 0) {
      LetGo();
      allocated = device_->Allocate(size);
    }
    if (!allocated.ok()) return std::move(allocated).status();
    buffer = *std::move(allocated);
  }
  counters_->AddMemory(static_cast<int64_t>(size));
  return std::make_shared<DeviceMemory>(shared_from_this(), std::move(buffer));
}

void OpenedDevice::GiveBack(std::unique_ptr<Buffer> buffer) {
  const size_t size = buffer->size_bytes();
  counters_->AddMemory(-static_cast<int64_t>(size));
  if (waiting_bytes_ + static_cast<int64_t>(size) > kMostWaitingBytes) return;
  waiting_bytes_ += static_cast<int64_t>(size);
  waiting_[size].push_back(std::move(buffer));
}

void OpenedDevice::LetGo() {
  waiting_.clear();
  waiting_bytes_ = 0;
}

absl::StatusOr<std::shared_ptr<DeviceMemory>> DeviceMemory::Window(
    std::shared_ptr<DeviceMemory> parent, int64_t offset_bytes, int64_t size_bytes) {
  BEAMD_ASSIGN_OR_RETURN(
      std::unique_ptr<Buffer> buffer,
      parent->device().device().View(parent->buffer(), static_cast<size_t>(offset_bytes),
                                     static_cast<size_t>(size_bytes)));
  std::shared_ptr<OpenedDevice> device = parent->device_;
  return std::shared_ptr<DeviceMemory>(
      new DeviceMemory(std::move(device), std::move(buffer), std::move(parent)));
}

DeviceMemory::~DeviceMemory() {
  if (parent_ == nullptr) device_->GiveBack(std::move(buffer_));
}

absl::Status CopyMemory(const DeviceMemory& to, const DeviceMemory& from, int64_t size_bytes) {
  const auto size = static_cast<size_t>(size_bytes);
  if (const void* const mapped = from.buffer().mapped(); mapped != nullptr) {
    return to.buffer().Write(0, {static_cast<const std::byte*>(mapped), size});
  }
  std::vector<std::byte> bytes(size);
  BEAMD_RETURN_IF_ERROR(from.buffer().Read(0, bytes));
  return to.buffer().Write(0, bytes);
}

}  // namespace beamd

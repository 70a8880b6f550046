// Memory that tensors hold on a device, and the open device that it belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "devices/device.h"
#include "engine/base/counters.h"
#include "engine/lazy/tensor_buffer.h"

namespace beamd {

class DeviceMemory;

// A device under the name that tensors call it by. What was given back waits here for a request of
// its size, since getting pages from the system costs more than most kernels. Not thread-safe.
class OpenedDevice : public std::enable_shared_from_this<OpenedDevice> {
 public:
  OpenedDevice(std::string name, std::unique_ptr<Device> device, std::shared_ptr<Counters> counters)
      : name_(std::move(name)), device_(std::move(device)), counters_(std::move(counters)) {}

  const std::string& name() const { return name_; }
  Device& device() { return *device_; }
  // ResourceExhausted if it doesn't fit, even after all that waits was let go.
  absl::StatusOr<std::shared_ptr<DeviceMemory>> Allocate(int64_t size_bytes);
  int64_t waiting_bytes() const { return waiting_bytes_; }

 private:
  friend class DeviceMemory;
  void GiveBack(std::unique_ptr<Buffer> buffer);
  void LetGo();

  const std::string name_;
  const std::unique_ptr<Device> device_;
  const std::shared_ptr<Counters> counters_;
  absl::flat_hash_map<size_t, std::vector<std::unique_ptr<Buffer>>> waiting_;
  int64_t waiting_bytes_ = 0;
};

// Memory of its own, or a window of another's; keeps its device and the other alive.
class DeviceMemory final : public BufferMemory {
 public:
  DeviceMemory(std::shared_ptr<OpenedDevice> device, std::unique_ptr<Buffer> buffer)
      : device_(std::move(device)), buffer_(std::move(buffer)) {}
  // Errors of Device::View.
  static absl::StatusOr<std::shared_ptr<DeviceMemory>> Window(std::shared_ptr<DeviceMemory> parent,
                                                              int64_t offset_bytes,
                                                              int64_t size_bytes);
  ~DeviceMemory() override;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  OpenedDevice& device() const { return *device_; }
  Buffer& buffer() const { return *buffer_; }
  // What this is a window of, in the end.
  const DeviceMemory& whole() const { return parent_ != nullptr ? parent_->whole() : *this; }

 private:
  const std::shared_ptr<OpenedDevice> device_;
  const std::shared_ptr<DeviceMemory> parent_;  // null: of its own
  std::unique_ptr<Buffer> buffer_;

  DeviceMemory(std::shared_ptr<OpenedDevice> device, std::unique_ptr<Buffer> buffer,
               std::shared_ptr<DeviceMemory> parent)
      : device_(std::move(device)), parent_(std::move(parent)), buffer_(std::move(buffer)) {}
};

// Copies what both have room for; through the host.
absl::Status CopyMemory(const DeviceMemory& to, const DeviceMemory& from, int64_t size_bytes);

}  // namespace beamd

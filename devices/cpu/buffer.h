// Memory that kernels on a CPU work on: whole pages of their own, huge ones where the system gives
// them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/device.h"

namespace beamd {

class CpuBuffer : public Buffer {
 public:
  // ResourceExhausted if the system has no room.
  static absl::StatusOr<std::unique_ptr<CpuBuffer>> Create(size_t size_bytes);
  // A window of mapped memory, which outlives it. OutOfRange, InvalidArgument: Device::View.
  static absl::StatusOr<std::unique_ptr<CpuBuffer>> Window(Buffer& parent, size_t offset_bytes,
                                                           size_t size_bytes);
  ~CpuBuffer() override;
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;

  size_t size_bytes() const override { return size_bytes_; }
  absl::Status Write(size_t offset_bytes, std::span<const std::byte> bytes) override;
  absl::Status Read(size_t offset_bytes, std::span<std::byte> bytes) const override;
  void* mapped() override { return data_; }

 private:
  CpuBuffer(std::byte* data, size_t size_bytes, size_t mapped_bytes)
      : data_(data), size_bytes_(size_bytes), mapped_bytes_(mapped_bytes) {}

  std::byte* const data_;
  const size_t size_bytes_;
  const size_t mapped_bytes_;  // 0: a window, whose memory is another's
};

}  // namespace beamd

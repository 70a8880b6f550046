// Memory that the daemon owns and a session's runner maps too: what a client's buffers on a CPU
// are, and what goes to and comes from those on other devices. It outlives the runner.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/device.h"

namespace beamd {

// A mapped memfd whose size is sealed. Thread-safe but for what is written.
class SharedMemory {
 public:
  // Zeros; pages are taken as they are written. ResourceExhausted where the system has no
  // descriptor or no room for the mapping.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(size_t size_bytes);
  // What another process created; closes `file`. Writing to what isn't writable is a fault.
  // InvalidArgument where it is smaller.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(int file, size_t size_bytes,
                                                            bool writable);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // This process holds none of its pages any more, until it touches them again. They stay as they
  // are.
  void LetGo();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // -1 for one that was opened.
  int file() const { return file_; }

 private:
  SharedMemory(std::byte* data, size_t size_bytes, int file)
      : data_(data), size_bytes_(size_bytes), file_(file) {}

  std::byte* const data_;
  const size_t size_bytes_;
  const int file_;
};

// It as a buffer of the CPU.
class SharedBuffer final : public Buffer {
 public:
  explicit SharedBuffer(std::unique_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  size_t size_bytes() const override { return memory_->size_bytes(); }
  absl::Status Write(size_t offset_bytes, std::span<const std::byte> bytes) override;
  absl::Status Read(size_t offset_bytes, std::span<std::byte> bytes) const override;
  void* mapped() override { return memory_->data(); }

 private:
  const std::unique_ptr<SharedMemory> memory_;
};

}  // namespace beamd

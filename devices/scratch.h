// Memory to time and check kernels on: one buffer a slot, filled with seeded values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

// Writes `count` elements of `scalar` to `out`: floats in [-1, 1) on a grid of 2^-23 (so none is
// denormal), integers in [-100, 100] or [0, 200], bool 0 or 1; a function of seed, slot and place
// alone. The first element's place is `begin`, a multiple of 4096.
void FillSeeded(Scalar scalar, int64_t count, int32_t slot, uint64_t seed, void* out,
                int64_t begin = 0);

// Not thread-safe. The device must outlive it.
class ScratchBuffers {
 public:
  // What a buffer has before its begin and behind its end, so that a write past either is seen.
  static constexpr int64_t kGuardBytes = 256;

  // ResourceExhausted where the device can't hold them.
  static absl::StatusOr<ScratchBuffers> Create(Device& device,
                                               std::span<const KernelImage::Buffer> buffers,
                                               uint64_t seed);

  // In the order of KernelImage::buffers, for Launch.
  std::span<Buffer* const> pointers() const { return pointers_; }
  // Puts back what all buffers and their guards held at first: seeded values where the kernel reads,
  // else a pattern that no kernel stores by accident (every bit set: NaN, -1). What ran before may
  // have written anywhere.
  absl::Status Reset();
  // What buffer i held at first: all of its elements, made anew.
  std::string Initial(size_t i) const;
  // One element of that where all are alike, as many bytes as any scalar has; null where they
  // aren't.
  const void* Pattern(size_t i) const;
  // OutOfRange naming the slot if something was written before a buffer's begin or behind its end.
  absl::Status CheckGuards() const;
  // The same if a buffer that is only read has changed.
  absl::Status CheckInputs() const;
  // The elements of buffer i as they are now.
  absl::StatusOr<std::string> Content(size_t i) const;
  // The same without a copy where the host reaches the memory: valid until the buffer changes. Else
  // `storage` holds it.
  absl::StatusOr<const void*> View(size_t i, std::string& storage) const {
    return View(*buffers_[i], i, storage);
  }
  // Takes the written buffers away (null elsewhere) and puts others in their place, to Reset before
  // use: what one kernel left stays, without a copy, while another runs; until the next call.
  absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> TakeWritten();
  // The elements of `taken`, once buffer i.
  absl::StatusOr<const void*> View(Buffer& taken, size_t i, std::string& storage) const;

 private:
  size_t SizeOf(size_t i) const;
  void FillInitial(size_t i, void* out) const;
  absl::Status Restore(size_t i);
  // A buffer for place i with its guards around it and nothing in it.
  absl::Status Allocate(size_t i);
  absl::Status WriteGuards(size_t i);

  Device* device_ = nullptr;
  std::vector<KernelImage::Buffer> uses_;
  // Guard, elements, guard; and windows of them that leave out the guard before.
  std::vector<std::unique_ptr<Buffer>> wholes_;
  std::vector<std::unique_ptr<Buffer>> taken_wholes_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Buffer*> pointers_;
  uint64_t seed_ = 0;
};

}  // namespace beamd

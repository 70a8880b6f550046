// One GPU as its driver's raw calls see it: what CUDA's driver API and HIP have in common.
//
// Every launch, copy and event goes to one stream, so each waits for all before it. Handles are the
// driver's. Errors are GpuStatus' (devices/gpu/status.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/device.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

// Thread-safe as far as the driver is: callers order what must be ordered. Released with the
// object.
class GpuContext {
 public:
  using Sizes = std::array<unsigned, 3>;  // x first

  virtual ~GpuContext() = default;
  // From now on calls of this thread go to this GPU. Before each of the others.
  virtual absl::Status Enter() = 0;

  virtual absl::StatusOr<uint64_t> Allocate(size_t size_bytes) = 0;
  virtual void Free(uint64_t address) = 0;
  virtual absl::StatusOr<size_t> FreeMemory() = 0;
  // Memory of the host that the GPU copies from and to by itself.
  virtual absl::StatusOr<void*> AllocatePinned(size_t size_bytes) = 0;
  virtual void FreePinned(void* memory) = 0;
  // These start and don't wait.
  virtual absl::Status CopyIn(uint64_t to, const void* from, size_t size_bytes) = 0;
  virtual absl::Status CopyOut(void* to, uint64_t from, size_t size_bytes) = 0;
  virtual absl::Status Fill(uint64_t address, unsigned char value, size_t size_bytes) = 0;

  virtual absl::StatusOr<void*> LoadModule(const std::string& code) = 0;
  virtual void UnloadModule(void* module) = 0;
  virtual absl::StatusOr<void*> Function(void* module, const std::string& name) = 0;
  // `arguments`: where each parameter's value lies.
  virtual absl::Status Launch(void* function, const Sizes& groups, const Sizes& items,
                              void** arguments) = 0;

  virtual absl::StatusOr<void*> CreateEvent() = 0;
  virtual void DestroyEvent(void* event) = 0;
  virtual absl::Status Record(void* event) = 0;
  virtual absl::Status WaitFor(void* event) = 0;
  virtual absl::StatusOr<float> Milliseconds(void* begin, void* end) = 0;
  // For all that was started.
  virtual absl::Status Wait() = 0;

  // What its management library tells. Unimplemented where there is none.
  virtual absl::StatusOr<DeviceCondition> Condition() = 0;
  // Device::Disturbed; it needs no Enter.
  virtual bool Disturbed() = 0;
};

}  // namespace beamd

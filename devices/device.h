// A device that runs compiled kernels, as runners see it: memory, loading, launching, time.
//
// devices/ sees engine/base, engine/dtype and engine/llvm/kernel_image.h only. A driver is a
// folder; it registers itself (devices/registry.h) and is done when tests/conformance passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/target_caps.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

// What a stored time is true for. Never a serial number.
struct DeviceInfo {
  std::string vendor;    // "AuthenticAMD", "NVIDIA"
  std::string model;     // "AMD EPYC 7763 64-Core Processor"
  std::string arch;      // what code is generated for: "znver3", "sm_90"
  std::string features;  // CPU: the feature string of that arch; GPU: empty
  std::string driver;    // version of the driver; empty on a CPU
  // What it does is no measure of any device: devices/emu.
  bool emulated = false;
  int64_t units = 0;  // cores this process may use; multiprocessors
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  // of the last level
  // What the clocks may rise to; 0 where nothing tells.
  int64_t clock_limit_mhz = 0;
  int64_t memory_clock_limit_mhz = 0;
};

// What a device does at this moment, as its management library tells. 0: it doesn't say.
struct DeviceCondition {
  int64_t clock_mhz = 0;
  int64_t memory_clock_mhz = 0;
  int64_t temperature_celsius = 0;
  // Processes that compute on it besides this one.
  int64_t foreign_processes = 0;
};

// Kernels take for granted that every buffer, and window of one, begins at a multiple of this.
inline constexpr size_t kWindowAlignment = 64;

// Memory of one device. Not thread-safe; must not be freed while a launch uses it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual size_t size_bytes() const = 0;
  // OutOfRange where the bytes don't lie inside.
  virtual absl::Status Write(size_t offset_bytes, std::span<const std::byte> bytes) = 0;
  virtual absl::Status Read(size_t offset_bytes, std::span<std::byte> bytes) const = 0;
  // The memory itself where the host can reach it; else null.
  virtual void* mapped() { return nullptr; }
};

// Code loaded onto one device. Immutable; freed with the object, before its device.
class Executable {
 public:
  virtual ~Executable() = default;
};

struct Launch {
  std::span<Buffer* const> buffers;    // in the order of KernelImage::buffers
  std::span<const int64_t> variables;  // in the order of KernelImage::variables
  int64_t begin = 0;                   // slices [begin, end) of the outermost loop
  int64_t end = 1;
  int64_t repeats = 1;  // this many launches back to back, at least 1
};

// A launch of a whole kernel, checked and resolved ahead, for running often. Executable, buffers and
// device outlive it. Not thread-safe.
class PreparedLaunch {
 public:
  virtual ~PreparedLaunch() = default;
  // Argument `index` is from now on what lies `offset_bytes` (a multiple of kWindowAlignment) into
  // `buffer`. InvalidArgument where that is too small.
  virtual absl::Status SetBuffer(size_t index, Buffer& buffer, size_t offset_bytes) = 0;
  // InvalidArgument where the value lies outside the variable's bounds.
  virtual absl::Status SetVariable(size_t index, int64_t value) = 0;
  // Starts it behind all that was started on its device before, and may return before it is done:
  // Device::Wait. Allocates nothing.
  virtual absl::Status Start() = 0;
  // Starts it and waits for it; device time by events.
  virtual absl::StatusOr<absl::Duration> Run() = 0;
};

// One device. Thread-safe. After Unavailable the object is dead: reopen it from its driver.
class Device {
 public:
  virtual ~Device() = default;
  virtual const TargetCaps& caps() const = 0;
  virtual const DeviceInfo& info() const = 0;
  // Aligned to kWindowAlignment; content unspecified. ResourceExhausted if it doesn't fit; a GPU's
  // carries an ErrorDetail (engine/base/error_detail.h): DEVICE_MEMORY, what is free as its limit.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t size_bytes) = 0;
  // A window of a buffer of this device, which outlives it. OutOfRange where it doesn't lie inside;
  // InvalidArgument unless the offset is a multiple of kWindowAlignment.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> View(Buffer& parent, size_t offset_bytes,
                                                       size_t size_bytes) = 0;
  // InvalidArgument for an image of another target or one that needs symbols from outside.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Load(const KernelImage& image) = 0;
  // Waits for the launches; returns device time by events, not host time, of all repeats together.
  // InvalidArgument where the buffers (their number or sizes), the variables or the slices don't
  // fit the image.
  virtual absl::StatusOr<absl::Duration> Run(const Executable& exe, const Launch& launch) = 0;
  // The launch for running often; InvalidArgument as Run says, or where it isn't of all slices.
  virtual absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(const Executable& exe,
                                                                  const Launch& launch) = 0;
  // Returns once all prepared launches that were started are done, with the error of one that
  // failed.
  virtual absl::Status Wait() = 0;
  // Leaves nothing of these buffers in any cache.
  virtual absl::Status FlushCache(std::span<Buffer* const> buffers) = 0;
  // Bytes that whoever comes first can have. Unimplemented where nothing tells.
  virtual absl::StatusOr<int64_t> FreeMemory() {
    return absl::UnimplementedError("nothing tells how much memory of this device is free");
  }
  // Likewise.
  virtual absl::StatusOr<DeviceCondition> Condition() {
    return absl::UnimplementedError("nothing tells the condition of this device");
  }
  // Whether others compute on it, as far as its management library has seen of late, or its clocks
  // are held down: times that are taken now are no times. False where nothing tells.
  virtual bool Disturbed() { return false; }
};

}  // namespace beamd

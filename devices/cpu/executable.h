// Kernel objects linked into this process' memory by LLVM's JITLink, and unlinked again.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

using CpuEntry = void (*)(void* const* buffers, const int64_t* variables, int64_t begin,
                          int64_t end);

class CpuExecutable : public Executable {
 public:
  virtual CpuEntry entry() const = 0;
  // The loaded image without its code.
  virtual const KernelImage& image() const = 0;
};

// Thread-safe. Outlives what it loads.
class CpuLoader {
 public:
  static absl::StatusOr<std::unique_ptr<CpuLoader>> Create();
  virtual ~CpuLoader() = default;
  // InvalidArgument where the object is broken or wants a symbol from outside.
  virtual absl::StatusOr<std::unique_ptr<CpuExecutable>> Load(const KernelImage& image) = 0;
};

}  // namespace beamd

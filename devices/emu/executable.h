// Translated kernels linked into this process' memory, and unlinked again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "devices/emu/kernel.h"
#include "engine/base/target_caps.h"
#include "engine/llvm/kernel_image.h"

namespace beamd::emu {

class EmuExecutable : public Executable {
 public:
  virtual Entry entry() const = 0;
  // The loaded image without its code.
  virtual const KernelImage& image() const = 0;
  // Without its object.
  virtual const TranslatedKernel& kernel() const = 0;
  // Address and bytes of what kernel().constants names.
  virtual const std::vector<std::pair<uint64_t, uint64_t>>& constants() const = 0;
};

// Thread-safe. Outlives what it loads.
class EmuLoader {
 public:
  // Internal where LLVM can't generate or load code for this host.
  static absl::StatusOr<std::unique_ptr<EmuLoader>> Create(const TargetCaps& caps);
  virtual ~EmuLoader() = default;
  // Translator's errors; InvalidArgument where the code wants a symbol from outside.
  virtual absl::StatusOr<std::unique_ptr<EmuExecutable>> Load(const KernelImage& image) = 0;
};

}  // namespace beamd::emu

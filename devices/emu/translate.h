// From an image for a GPU to machine code for this host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/emu/kernel.h"
#include "engine/base/target_caps.h"
#include "engine/llvm/kernel_image.h"

namespace beamd::emu {

// Thread-safe.
class Translator {
 public:
  // Internal where LLVM has no code generator for this host.
  static absl::StatusOr<std::unique_ptr<Translator>> Create();
  virtual ~Translator() = default;
  // `image`: CodeForm::kBitcode, of the target `caps`.
  // Error: InvalidArgument for what isn't such an image or asks for more than the target has;
  // Unimplemented naming what the emulator doesn't know; Internal where LLVM fails, as after a
  // crash inside it.
  virtual absl::StatusOr<TranslatedKernel> Translate(const KernelImage& image,
                                                     const TargetCaps& caps) = 0;
};

}  // namespace beamd::emu

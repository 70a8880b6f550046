// Rewrites the module of a GPU's kernel so that it runs on this host: ids, barriers and wave
// operations become what emu/group_run.h offers, and every access to memory is checked.
#pragma once

#include "absl/status/status.h"
#include "devices/emu/kernel.h"
#include "engine/base/target_caps.h"
#include "engine/llvm/kernel_image.h"
#include "llvm/IR/Module.h"

namespace beamd::emu {

// `module`: the image's, with the host's triple and data layout set already. Afterwards it defines
// kEmuEntry, of type Entry, and what that needs. Fills in all of `kernel` but the object.
// Error: InvalidArgument where the module breaks what engine/llvm/kernel_image.h says, or lacks
// AMD's fences around a barrier; Unimplemented naming an intrinsic or a piece of IR that the
// emulator doesn't know.
absl::Status Instrument(llvm::Module& module, const KernelImage& image, const TargetCaps& caps,
                        TranslatedKernel& kernel);

}  // namespace beamd::emu

// What a linked AMDGPU code object says of its kernel.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "engine/base/target_caps.h"
#include "engine/llvm/kernel_image.h"

namespace beamd::conformance {

// What contradicts `image` or `caps` in its code's ELF header, symbols and metadata; empty if
// nothing does.
// Spec: LLVM, "User Guide for AMDGPU Backend", "Code Object Metadata".
std::string CodeObjectFaults(const KernelImage& image, const TargetCaps& caps);

}  // namespace beamd::conformance

// What a stored record says about the code generator that made its times.
#pragma once

namespace beamd {

// Bumped with every change that can alter the machine code of a kernel: lowering, emission, the
// pass pipeline, math functions. Records of another epoch are misses (EPOCH_CHANGED).
inline constexpr int kCodegenEpoch = 2;

// "22.1.8": the LLVM that this binary was built with.
const char* LlvmVersion();

}  // namespace beamd

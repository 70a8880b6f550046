#include "engine/llvm/epoch.h"

#include "llvm/Config/llvm-config.h"

namespace beamd {

const char* LlvmVersion() { return LLVM_VERSION_STRING; }

}  // namespace beamd

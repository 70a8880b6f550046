// LLVM's JITLink: relocatable objects linked into this process' memory, and unlinked again.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"

namespace beamd {

// For this host; sees no symbol of the process. Errors of lookups are answers, not lines on stderr.
// Internal if it can't start.
absl::StatusOr<std::unique_ptr<llvm::orc::LLJIT>> MakeJit();

}  // namespace beamd

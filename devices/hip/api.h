// AMD's HIP runtime, opened while the process runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace beamd {

// ROCm's names, newest first.
inline constexpr const char* kHipLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6",
                                                "libamdhip64.so.5"};

// Immutable once loaded. Thread-safe as the runtime is.
struct HipApi {
#define HIP_ENTRY(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
#include "devices/hip/api.def"
#undef HIP_ENTRY
  // Fills in a hipDeviceProp_t; where `properties_arch_offset` is, gcnArchName begins.
  int (*properties)(void* properties, int device) = nullptr;
  size_t properties_arch_offset = 0;
  // The library is a test's: it runs LLVM bitcode, not code objects.
  bool takes_bitcode = false;

  // Unavailable where there is no library, or one that lacks an entry point.
  static absl::StatusOr<std::unique_ptr<const HipApi>> Load(
      std::span<const char* const> libraries = kHipLibraries);

  // The runtime's word for an error (devices/gpu/status.h).
  absl::Status Check(int result, const char* entry) const;
};

}  // namespace beamd

// BEAMD_HIP(api, hipInit, 0u): calls, and turns the result into a Status.
#define BEAMD_HIP(api, entry, ...) (api).Check((api).entry(__VA_ARGS__), #entry)

// CUDA's driver API, opened while the process runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace beamd {

// Immutable once loaded. Thread-safe as the driver is.
struct CudaApi {
#define CUDA_ENTRY(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "devices/cuda/api.def"
#undef CUDA_ENTRY
  // The library is a test's: it runs LLVM bitcode, not PTX.
  bool takes_bitcode = false;

  // Unavailable where there is no library, or one that lacks an entry point.
  static absl::StatusOr<std::unique_ptr<const CudaApi>> Load(const char* library = "libcuda.so.1");

  // The driver's word for an error (devices/gpu/status.h).
  absl::Status Check(int result, const char* entry) const;
};

}  // namespace beamd

// BEAMD_CUDA(api, cuInit, 0u): calls, and turns the result into a Status.
#define BEAMD_CUDA(api, entry, ...) (api).Check((api).entry(__VA_ARGS__), #entry)

// From a scheduled kernel to machine code: lower, emit, optimise, generate. One per worker thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/kernel.h"
#include "engine/llvm/host.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

struct CompileOptions {
  int64_t max_uops = 0;  // 0: no limit; over it: ResourceExhausted
  std::string dump;  // name of a pass, "ir", "asm" or empty; its text goes to CompileResult::dump
};

struct CompileResult {
  KernelImage image;
  std::string dump;
};

// Keeps LLVM's TargetMachine between compiles. Not thread-safe.
class KernelCompiler {
 public:
  static absl::StatusOr<std::unique_ptr<KernelCompiler>> Create(const TargetCaps& caps);
  virtual ~KernelCompiler() = default;
  virtual absl::StatusOr<CompileResult> Compile(const Kernel& kernel,
                                                const CompileOptions& options) = 0;
};

}  // namespace beamd

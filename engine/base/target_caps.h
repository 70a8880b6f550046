// What a compile target can do; decides which opts are legal, never what a kernel means.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace beamd {

enum class TargetKind : uint8_t { kCpu, kCuda, kHip };

// What an image for a GPU holds.
enum class CodeForm : uint8_t {
  kNative,   // what its driver loads: PTX, or a linked code object
  kBitcode,  // the same module after LLVM's passes as bitcode: what devices/emu runs
};

// What a TC opt does (0.10.0's TC), in the numbers of the search's option.
enum class TensorCoreUse : uint8_t {
  kOff,     // nothing: it is refused
  kOn,      // sums of products are a tensor core's
  kShapes,  // axes are split as for a tensor core, plain code computes the sums
};

struct TargetCaps {
  TargetKind kind = TargetKind::kCpu;
  std::string arch;  // CPU name, "sm_80", "gfx1100"
  // LLVM feature string. A CPU: all of them; "cuda": the PTX version that the driver takes
  // ("+ptx80"), empty for the arch's own; "hip": empty.
  std::string features;
  bool has_local = false;
  bool has_shared = false;
  int64_t shared_bytes = 0;                          // a work-group's limit
  std::optional<std::array<int64_t, 3>> global_max;  // grid limits, x first
  std::optional<std::array<int64_t, 3>> local_max;   // the largest bounds their product as well
  int vector_bytes = 16;        // widest vector register; on a GPU the widest access to memory
  int wave_size = 1;            // work-items that run in step: 32 or 64 on a GPU
  int code_object_version = 5;  // "hip": 4 for libamdhip64.so.5, 5 from .so.6 on
  CodeForm code_form = CodeForm::kNative;
  TensorCoreUse tensor_cores = TensorCoreUse::kOn;
  bool allow_tf32 = false;  // float32 products may be a tensor core's that rounds to 10 bits

  bool operator==(const TargetCaps&) const = default;
};

// A CPU by the name that LLVM gives it, and whether it has the features that LLVM knows.
TargetCaps CpuTarget(std::string name, const std::map<std::string, bool>& features);

// An NVIDIA GPU of compute capability major.minor under a driver of this version (12040: CUDA 12.4),
// as code is generated for it: the newest PTX that the driver, the GPU and LLVM 22 all know. The
// limits of a launch are the conformance corpus' and may be set to the device's own. Unavailable
// where the driver takes no PTX that the GPU needs.
// Source: the release table of NVIDIA's PTX ISA manual.
absl::StatusOr<TargetCaps> CudaTarget(int major, int minor, int driver_version);

// Of an NVIDIA GPU's name: 80 of "sm_80"; 0 of what is no such name.
int ComputeCapability(absl::string_view arch);

// The oldest PTX that names this GPU, 78 of "sm_90"; 0 of one that no code is generated for.
int OldestPtx(absl::string_view arch);

// An AMD GPU by the name that HIP gives it ("gfx90a:sramecc+:xnack-"), under a HIP runtime of this
// major version. Unavailable for a name that isn't one.
absl::StatusOr<TargetCaps> HipTarget(absl::string_view name, int runtime_major);

// The three targets of the conformance corpus: no locals on "cpu"; sm_80 on "cuda" (shared 49152,
// grid (2147483647, 65535, 65535), group (1024, 1024, 64)); RDNA3 on "hip" (shared 65536).
TargetCaps CorpusTarget(TargetKind kind);

}  // namespace beamd

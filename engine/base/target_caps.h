// What a compile target can do; decides which opts are legal, never what a kernel means.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace beamd {

enum class TargetKind : uint8_t { kCpu, kCuda, kHip };

struct TargetCaps {
  TargetKind kind = TargetKind::kCpu;
  std::string arch;      // CPU name, "sm_80", "gfx1100"
  std::string features;  // LLVM feature string; CPU only
  bool has_local = false;
  bool has_shared = false;
  int64_t shared_bytes = 0;                          // a work-group's limit
  std::optional<std::array<int64_t, 3>> global_max;  // grid limits, x first
  std::optional<std::array<int64_t, 3>> local_max;
  int vector_bytes = 16;  // widest vector register

  bool operator==(const TargetCaps&) const = default;
};

// A CPU by the name that LLVM gives it, and whether it has the features that LLVM knows.
TargetCaps CpuTarget(std::string name, const std::map<std::string, bool>& features);

// The three targets of the conformance corpus: no locals on "cpu"; sm_80 on "cuda" (shared 49152,
// grid (2147483647, 65535, 65535), group (1024, 1024, 64)); RDNA3 on "hip" (shared 65536).
TargetCaps CorpusTarget(TargetKind kind);

}  // namespace beamd

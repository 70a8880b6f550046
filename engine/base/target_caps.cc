#include "engine/base/target_caps.h"

namespace beamd {

TargetCaps CorpusTarget(TargetKind kind) {
  TargetCaps caps;
  caps.kind = kind;
  if (kind == TargetKind::kCpu) return caps;
  caps.arch = kind == TargetKind::kCuda ? "sm_80" : "gfx1100";
  caps.has_local = true;
  caps.has_shared = true;
  caps.shared_bytes = kind == TargetKind::kCuda ? 49152 : 65536;
  caps.global_max = {{2147483647, 65535, 65535}};
  caps.local_max = {{1024, 1024, 64}};
  return caps;
}

}  // namespace beamd

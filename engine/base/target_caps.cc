#include "engine/base/target_caps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace beamd {

TargetCaps CpuTarget(std::string name, const std::map<std::string, bool>& features) {
  const auto has = [&](const char* feature) {
    const auto it = features.find(feature);
    return it != features.end() && it->second;
  };
  std::vector<std::string> signed_names;
  signed_names.reserve(features.size());
  for (const auto& [feature, there] : features) {
    signed_names.push_back(absl::StrCat(there ? "+" : "-", feature));
  }
  // Part of every record's key: what is there first, then what isn't.
  std::sort(signed_names.begin(), signed_names.end());
  TargetCaps caps;
  caps.kind = TargetKind::kCpu;
  caps.arch = std::move(name);
  caps.features = absl::StrJoin(signed_names, ",");
  caps.vector_bytes = has("avx512vl") ? 64 : has("avx") ? 32 : 16;
  return caps;
}

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
  caps.wave_size = 32;
  return caps;
}

}  // namespace beamd

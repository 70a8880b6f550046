#include "engine/llvm/host.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/TargetParser/Host.h"

namespace beamd {

TargetCaps HostCaps() {
  TargetCaps caps;
  caps.kind = TargetKind::kCpu;
  caps.arch = llvm::sys::getHostCPUName().str();
  std::vector<std::string> features;
  bool avx = false;
  bool avx512 = false;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    features.push_back(absl::StrCat(feature.getValue() ? "+" : "-", feature.getKey().str()));
    avx = avx || (feature.getKey() == "avx" && feature.getValue());
    avx512 = avx512 || (feature.getKey() == "avx512vl" && feature.getValue());
  }
  std::ranges::sort(features);
  caps.features = absl::StrJoin(features, ",");
  caps.vector_bytes = avx512 ? 64 : avx ? 32 : 16;
  return caps;
}

}  // namespace beamd

#include "engine/base/target_caps.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace beamd {
namespace {

// CUDA's version and the newest PTX that its driver takes, of those that LLVM 22 can write.
constexpr std::pair<int, int> kPtxOfDriver[] = {
    {13000, 90}, {12090, 88}, {12080, 87}, {12070, 86}, {12050, 85}, {12040, 84}, {12030, 83},
    {12020, 82}, {12010, 81}, {12000, 80}, {11080, 78}, {11070, 77}, {11060, 76}, {11050, 75},
    {11040, 74}, {11030, 73}, {11020, 72}, {11010, 71}, {11000, 70}, {10020, 65}, {10010, 64},
    {10000, 63}, {9020, 62},  {9010, 61},  {9000, 60}};

// Compute capability and the oldest PTX that names it.
constexpr std::pair<int, int> kPtxOfGpu[] = {{70, 60},  {72, 61},  {75, 63},  {80, 70}, {86, 71},
                                             {87, 74},  {88, 90},  {89, 78},  {90, 78}, {100, 86},
                                             {103, 88}, {110, 90}, {120, 87}, {121, 88}};

}  // namespace

int ComputeCapability(absl::string_view arch) {
  int capability = 0;
  if (!absl::ConsumePrefix(&arch, "sm_") || !absl::SimpleAtoi(arch, &capability)) return 0;
  return std::max(capability, 0);
}

int OldestPtx(absl::string_view arch) {
  const int capability = ComputeCapability(arch);
  const auto* const gpu = std::find_if(std::begin(kPtxOfGpu), std::end(kPtxOfGpu),
                                       [&](const auto& g) { return g.first == capability; });
  return gpu == std::end(kPtxOfGpu) ? 0 : gpu->second;
}

absl::StatusOr<TargetCaps> CudaTarget(int major, int minor, int driver_version) {
  const std::string arch = absl::StrCat("sm_", major * 10 + minor);
  const int oldest = OldestPtx(arch);
  if (oldest == 0) {
    return absl::UnavailableError(
        absl::StrCat("no code is generated for compute capability ", major, ".", minor));
  }
  const auto* const driver = std::find_if(std::begin(kPtxOfDriver), std::end(kPtxOfDriver),
                                          [&](const auto& d) { return d.first <= driver_version; });
  if (driver == std::end(kPtxOfDriver) || driver->second < oldest) {
    return absl::UnavailableError(
        absl::StrCat("the driver is too old: it is of CUDA ", driver_version / 1000, ".",
                     driver_version % 1000 / 10, " and takes no PTX for compute capability ", major,
                     ".", minor));
  }
  TargetCaps caps = CorpusTarget(TargetKind::kCuda);
  caps.arch = arch;
  caps.features = absl::StrCat("+ptx", driver->second);
  return caps;
}

absl::StatusOr<TargetCaps> HipTarget(absl::string_view name, int runtime_major) {
  const absl::string_view arch = name.substr(0, name.find(':'));
  if (!absl::StartsWith(arch, "gfx")) {
    return absl::UnavailableError(absl::StrCat("no code is generated for \"", name, "\""));
  }
  TargetCaps caps = CorpusTarget(TargetKind::kHip);
  caps.arch = std::string(arch);
  // GFX9 is GCN and CDNA, with waves of 64; everything since runs in 32.
  caps.wave_size = absl::StartsWith(arch, "gfx9") ? 64 : 32;
  caps.code_object_version = runtime_major < 6 ? 4 : 5;
  return caps;
}

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

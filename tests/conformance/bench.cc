#include "tests/conformance/bench.h"

#include <utility>

#include "devices/emu/device.h"
#include "devices/registry.h"
#include "engine/base/status.h"

namespace beamd::conformance {
namespace {

// Ascending, descending, shuffled.
constexpr uint64_t kSeeds[] = {0, 1, 2};

}  // namespace

absl::StatusOr<Bench> MakeBench(const CheckInput& input, int64_t most_groups) {
  Bench bench;
  if (input.target == TargetKind::kCpu) {
    BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Device> cpu, OpenDevice("cpu:0"));
    bench.devices.push_back(std::move(cpu));
  } else {
    TargetCaps caps = CorpusTarget(input.target);
    caps.code_form = CodeForm::kBitcode;
    for (const uint64_t seed : kSeeds) {
      BEAMD_ASSIGN_OR_RETURN(
          std::unique_ptr<Device> gpu,
          OpenEmuDevice(caps, EmuOptions{.seed = seed, .most_groups = most_groups}));
      bench.devices.push_back(std::move(gpu));
    }
  }
  BEAMD_ASSIGN_OR_RETURN(bench.compiler, KernelCompiler::Create(bench.caps()));
  return bench;
}

}  // namespace beamd::conformance

// The devices that values are computed on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "engine/llvm/compiler.h"
#include "tests/conformance/check.h"

namespace beamd::conformance {

struct Bench {
  std::unique_ptr<KernelCompiler> compiler;
  // The host's CPU; or GPUs that it plays, each with another order of work-items.
  std::vector<std::unique_ptr<Device>> devices;

  const TargetCaps& caps() const { return devices[0]->caps(); }
};

// For the target of `input`. `most_groups`: of an emulated launch only so many work-groups, drawn
// differently on each device; 0: all.
absl::StatusOr<Bench> MakeBench(const CheckInput& input, int64_t most_groups);

}  // namespace beamd::conformance

// Linked into a test, this makes its Worlds realise on the runtime that programs have: scheduled,
// compiled, run.
#include "devices/registry.h"
#include "engine/base/status.h"
#include "server/execution/runtime.h"
#include "tests/engine/tensor/tensor_world.h"

namespace beamd::testing {
namespace {

// The one CPU as two devices: tests of several need no more.
absl::StatusOr<std::unique_ptr<Runtime>> CreateRuntime() {
  std::vector<RuntimeDevice> devices;
  for (const char* name : {"cpu:0", "cpu:1"}) {
    BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice("cpu:0"));
    devices.push_back({name, std::move(device)});
  }
  return Runtime::Create(std::move(devices), {});
}

// One for all: equal kernels of different tests are compiled once.
Realizer* SharedRuntime() {
  static const absl::StatusOr<std::unique_ptr<Runtime>> runtime = CreateRuntime();
  BEAMD_CHECK(runtime.ok(), runtime.status().ToString());
  return runtime->get();
}

[[maybe_unused]] const bool kOnRuntime = [] {
  RealizerOfWorlds() = SharedRuntime;
  return true;
}();

}  // namespace
}  // namespace beamd::testing

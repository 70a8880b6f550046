#include "devices/cuda/nvml.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "devices/gpu/library.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// nvmlClockType_t, nvmlTemperatureSensors_t.
constexpr int kClockSm = 1, kClockMemory = 2, kSensorGpu = 0;
// nvmlReturn_t: `count` says how many there are.
constexpr int kInsufficientSize = 7;

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const char* library) {
  BEAMD_ASSIGN_OR_RETURN(const SharedLibrary opened, SharedLibrary::Open({&library, 1}));
  std::unique_ptr<Nvml> nvml(new Nvml);
#define NVML_ENTRY(name, ...) BEAMD_RETURN_IF_ERROR(opened.Bind(#name, nvml->name##_));
#include "devices/cuda/nvml.def"
#undef NVML_ENTRY
  if (const int result = nvml->nvmlInit_v2_(); result != 0) {
    return absl::UnavailableError(absl::StrCat("nvmlInit_v2: ", result));
  }
  return nvml;
}

std::string Nvml::DriverVersion() const {
  std::array<char, 80> version{};
  return nvmlSystemGetDriverVersion_(version.data(), version.size()) == 0 ? version.data() : "";
}

absl::StatusOr<void*> Nvml::Find(const std::string& pci_bus_id) const {
  void* device = nullptr;
  const int result = nvmlDeviceGetHandleByPciBusId_v2_(pci_bus_id.c_str(), &device);
  if (result == 0) return device;
  return absl::UnavailableError(
      absl::StrCat("nvmlDeviceGetHandleByPciBusId_v2(", pci_bus_id, "): ", result));
}

DeviceCondition Nvml::Condition(void* device) const {
  DeviceCondition condition;
  unsigned value = 0;
  if (nvmlDeviceGetClockInfo_(device, kClockSm, &value) == 0) condition.clock_mhz = value;
  if (nvmlDeviceGetClockInfo_(device, kClockMemory, &value) == 0) {
    condition.memory_clock_mhz = value;
  }
  if (nvmlDeviceGetTemperature_(device, kSensorGpu, &value) == 0) {
    condition.temperature_celsius = value;
  }
  std::array<NvmlProcess, 64> processes{};
  unsigned count = processes.size();
  const int result = nvmlDeviceGetComputeRunningProcesses_v3_(device, &count, processes.data());
  if (result == kInsufficientSize) {
    condition.foreign_processes = count - 1;  // one is this process
  } else if (result == 0) {
    const auto self = static_cast<uint32_t>(getpid());
    condition.foreign_processes =
        std::count_if(processes.begin(), processes.begin() + count,
                      [&](const NvmlProcess& process) { return process.pid != self; });
  }
  return condition;
}

void Nvml::Describe(void* device, DeviceInfo& info) const {
  unsigned value = 0;
  if (nvmlDeviceGetMaxClockInfo_(device, kClockSm, &value) == 0) info.clock_limit_mhz = value;
  if (nvmlDeviceGetMaxClockInfo_(device, kClockMemory, &value) == 0) {
    info.memory_clock_limit_mhz = value;
  }
}

}  // namespace beamd

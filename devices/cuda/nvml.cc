#include "devices/cuda/nvml.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "devices/gpu/library.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// nvmlClockType_t, nvmlTemperatureSensors_t.
constexpr int kClockSm = 1, kClockMemory = 2, kSensorGpu = 0;
// nvmlReturn_t: `count` says how many there are.
constexpr int kInsufficientSize = 7;
// nvmlClocksThrottleReasons: HwSlowdown, SwThermalSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown.
// A cap on power is no fault of the moment: the kernel's own draw leads to it.
constexpr unsigned long long kHeldDown = 0x8 | 0x20 | 0x40 | 0x80;
// How old a sample may be: somewhat more than their distance.
constexpr absl::Duration kOfLate = absl::Milliseconds(1100);

// This process, or another child of the daemon's.
bool IsOurs(uint32_t pid) {
  if (pid == static_cast<uint32_t>(getpid())) return true;
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  // "PID (NAME) STATE PARENT ...": the name may hold anything.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  int64_t parent = 0;
  return static_cast<bool>(rest >> state >> parent) && parent == getppid();
}

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

bool Nvml::Disturbed(void* device) const {
  unsigned long long reasons = 0;
  if (nvmlDeviceGetCurrentClocksThrottleReasons_(device, &reasons) == 0 &&
      (reasons & kHeldDown) != 0) {
    return true;
  }
  std::array<NvmlUtilization, 128> samples{};
  unsigned count = samples.size();
  const int64_t since = absl::ToUnixMicros(absl::Now() - kOfLate);
  // There are none, or it doesn't tell.
  if (nvmlDeviceGetProcessUtilization_(device, samples.data(), &count,
                                       static_cast<unsigned long long>(since)) != 0) {
    return false;
  }
  std::map<uint32_t, uint32_t> busy;  // by process
  for (unsigned i = 0; i < std::min<unsigned>(count, samples.size()); ++i) {
    const NvmlUtilization& sample = samples[i];
    if (sample.sm_percent > 0 && static_cast<int64_t>(sample.at_us) >= since) {
      busy[sample.pid] = std::max(busy[sample.pid], sample.sm_percent);
    }
  }
  if (busy.empty()) return false;
  if (KnowsProcess(device, static_cast<uint32_t>(getpid()))) {
    return std::any_of(busy.begin(), busy.end(),
                       [](const auto& process) { return !IsOurs(process.first); });
  }
  return busy.size() > 1;
}

bool Nvml::KnowsProcess(void* device, uint32_t pid) const {
  std::array<NvmlProcess, 64> processes{};
  unsigned count = processes.size();
  const int result = nvmlDeviceGetComputeRunningProcesses_v3_(device, &count, processes.data());
  if (result != 0) return false;
  return std::any_of(processes.begin(), processes.begin() + count,
                     [&](const NvmlProcess& process) { return process.pid == pid; });
}

void Nvml::Describe(void* device, DeviceInfo& info) const {
  unsigned value = 0;
  if (nvmlDeviceGetMaxClockInfo_(device, kClockSm, &value) == 0) info.clock_limit_mhz = value;
  if (nvmlDeviceGetMaxClockInfo_(device, kClockMemory, &value) == 0) {
    info.memory_clock_limit_mhz = value;
  }
}

}  // namespace beamd

#include "devices/hip/amd_smi.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "devices/gpu/library.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// AMDSMI_INIT_AMD_GPUS; amdsmi_clk_type_t; amdsmi_temperature_type_t and _metric_t.
constexpr uint64_t kInitGpus = 2;
constexpr int kClockGraphics = 0, kClockMemory = 4, kSensorHotspot = 1;
constexpr int kMetricCurrent = 0, kMetricCritical = 5;
// Some versions tell thousandths of a degree.
constexpr int64_t kHottestCelsius = 1000;
// What an idle GPU may show, and how long its counter needs to see that it is one.
constexpr uint32_t kBusyPercent = 5;
constexpr absl::Duration kSettles = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<AmdSmi>> AmdSmi::Open(const char* library) {
  BEAMD_ASSIGN_OR_RETURN(const SharedLibrary opened, SharedLibrary::Open({&library, 1}));
  std::unique_ptr<AmdSmi> smi(new AmdSmi);
#define AMD_SMI_ENTRY(name, ...) BEAMD_RETURN_IF_ERROR(opened.Bind(#name, smi->name##_));
#include "devices/hip/amd_smi.def"
#undef AMD_SMI_ENTRY
  if (const int result = smi->amdsmi_init_(kInitGpus); result != 0) {
    return absl::UnavailableError(absl::StrCat("amdsmi_init: ", result));
  }
  return smi;
}

absl::StatusOr<void*> AmdSmi::Find(const std::string& pci_bus_id) const {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(pci_bus_id.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
    return absl::UnavailableError(absl::StrCat("no place on a bus: \"", pci_bus_id, "\""));
  }
  // amdsmi_bdf_t: function 3 bits, device 5, bus 8, domain 48, from the lowest.
  const uint64_t place = uint64_t{domain} << 16 | uint64_t{bus} << 8 | device << 3 | function;
  void* gpu = nullptr;
  const int result = amdsmi_get_processor_handle_from_bdf_(place, &gpu);
  if (result == 0) return gpu;
  return absl::UnavailableError(
      absl::StrCat("amdsmi_get_processor_handle_from_bdf(", pci_bus_id, "): ", result));
}

int64_t AmdSmi::Celsius(void* gpu, int metric) const {
  int64_t temperature = 0;
  if (amdsmi_get_temp_metric_(gpu, kSensorHotspot, metric, &temperature) != 0) return 0;
  return temperature >= kHottestCelsius ? temperature / 1000 : temperature;
}

int64_t AmdSmi::ForeignProcesses(void* gpu) const {
  // Asked for none, it tells how many there are; this process, which has a context, is one.
  uint32_t count = 0;
  if (amdsmi_get_gpu_process_list_(gpu, &count, nullptr) != 0) return 0;
  return std::max<int64_t>(count, 1) - 1;
}

DeviceCondition AmdSmi::Condition(void* gpu) const {
  DeviceCondition condition;
  AmdSmiClock clock{};
  if (amdsmi_get_clock_info_(gpu, kClockGraphics, &clock) == 0) condition.clock_mhz = clock.now;
  if (amdsmi_get_clock_info_(gpu, kClockMemory, &clock) == 0) {
    condition.memory_clock_mhz = clock.now;
  }
  condition.temperature_celsius = Celsius(gpu, kMetricCurrent);
  condition.foreign_processes = ForeignProcesses(gpu);
  return condition;
}

bool AmdSmi::Disturbed(void* gpu) const {
  const int64_t critical = Celsius(gpu, kMetricCritical);
  // From there on clocks go down.
  if (critical > 0 && Celsius(gpu, kMetricCurrent) >= critical) return true;
  if (ForeignProcesses(gpu) == 0) return false;
  const auto is_busy = [&] {
    AmdSmiActivity activity{};
    return amdsmi_get_gpu_activity_(gpu, &activity) == 0 && activity.gfx >= kBusyPercent &&
           activity.gfx <= 100;
  };
  if (!is_busy()) return false;
  absl::SleepFor(kSettles);
  return is_busy();
}

void AmdSmi::Describe(void* gpu, DeviceInfo& info) const {
  AmdSmiClock clock{};
  if (amdsmi_get_clock_info_(gpu, kClockGraphics, &clock) == 0) info.clock_limit_mhz = clock.most;
  if (amdsmi_get_clock_info_(gpu, kClockMemory, &clock) == 0) {
    info.memory_clock_limit_mhz = clock.most;
  }
}

}  // namespace beamd

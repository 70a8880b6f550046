#include "devices/cuda/device.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "devices/cuda/nvml.h"
#include "devices/gpu/attributes.h"
#include "devices/gpu/context.h"
#include "devices/gpu/device.h"
#include "engine/base/status.h"
#include "engine/base/target_caps.h"

namespace beamd {
namespace {

// Older drivers lack entry points, or take no PTX that is written here.
constexpr int kOldestDriver = 11000;

// CUdevice_attribute.
enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxBlockDimX = 2,  // then y, z
  kMaxGridDimX = 5,   // then y, z
  kMaxSharedMemoryPerBlock = 8,
  kWarpSize = 10,
  kClockRate = 13,  // kHz
  kMultiprocessorCount = 16,
  kMemoryClockRate = 36,  // kHz
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
};

// CUjit_option.
constexpr int kJitErrorLogBuffer = 5, kJitErrorLogBufferSizeBytes = 6;

class CudaContext final : public GpuContext {
 public:
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(const CudaApi& api, int device) {
    void* context = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDevicePrimaryCtxRetain, &context, device));
    return std::unique_ptr<CudaContext>(new CudaContext(api, device, context));
  }
  ~CudaContext() override { api_.cuDevicePrimaryCtxRelease_v2(device_); }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  absl::Status Enter() override { return BEAMD_CUDA(api_, cuCtxSetCurrent, context_); }

  absl::StatusOr<uint64_t> Allocate(size_t size_bytes) override {
    uint64_t address = 0;
    BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api_, cuMemAlloc_v2, &address, size_bytes));
    return address;
  }
  void Free(uint64_t address) override { api_.cuMemFree_v2(address); }
  absl::StatusOr<size_t> FreeMemory() override {
    size_t free = 0, all = 0;
    BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api_, cuMemGetInfo_v2, &free, &all));
    return free;
  }
  absl::StatusOr<void*> AllocatePinned(size_t size_bytes) override {
    void* memory = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api_, cuMemAllocHost_v2, &memory, size_bytes));
    return memory;
  }
  void FreePinned(void* memory) override { api_.cuMemFreeHost(memory); }
  absl::Status CopyIn(uint64_t to, const void* from, size_t size_bytes) override {
    return BEAMD_CUDA(api_, cuMemcpyHtoDAsync_v2, to, from, size_bytes, nullptr);
  }
  absl::Status CopyOut(void* to, uint64_t from, size_t size_bytes) override {
    return BEAMD_CUDA(api_, cuMemcpyDtoHAsync_v2, to, from, size_bytes, nullptr);
  }
  absl::Status Fill(uint64_t address, unsigned char value, size_t size_bytes) override {
    return BEAMD_CUDA(api_, cuMemsetD8Async, address, value, size_bytes, nullptr);
  }

  absl::StatusOr<void*> LoadModule(const std::string& code) override {
    std::array<char, 4096> log{};
    std::array<int, 2> options = {kJitErrorLogBuffer, kJitErrorLogBufferSizeBytes};
    std::array<void*, 2> values = {log.data(),
                                   reinterpret_cast<void*>(static_cast<uintptr_t>(log.size()))};
    void* module = nullptr;
    const absl::Status status = BEAMD_CUDA(api_, cuModuleLoadDataEx, &module, code.c_str(),
                                           options.size(), options.data(), values.data());
    if (status.ok()) return module;
    log.back() = '\0';
    if (log.front() == '\0') return status;
    return absl::Status(status.code(), absl::StrCat(status.message(), ": ", log.data()));
  }
  void UnloadModule(void* module) override { api_.cuModuleUnload(module); }
  absl::StatusOr<void*> Function(void* module, const std::string& name) override {
    void* function = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api_, cuModuleGetFunction, &function, module, name.c_str()));
    return function;
  }
  absl::Status Launch(void* function, const Sizes& groups, const Sizes& items,
                      void** arguments) override {
    return BEAMD_CUDA(api_, cuLaunchKernel, function, groups[0], groups[1], groups[2], items[0],
                      items[1], items[2], 0, nullptr, arguments, nullptr);
  }

  absl::StatusOr<void*> CreateEvent() override {
    void* event = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api_, cuEventCreate, &event, 0));
    return event;
  }
  void DestroyEvent(void* event) override { api_.cuEventDestroy_v2(event); }
  absl::Status Record(void* event) override {
    return BEAMD_CUDA(api_, cuEventRecord, event, nullptr);
  }
  absl::Status WaitFor(void* event) override { return BEAMD_CUDA(api_, cuEventSynchronize, event); }
  absl::StatusOr<float> Milliseconds(void* begin, void* end) override {
    float milliseconds = 0;
    BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api_, cuEventElapsedTime, &milliseconds, begin, end));
    return milliseconds;
  }
  absl::Status Wait() override { return BEAMD_CUDA(api_, cuStreamSynchronize, nullptr); }

  absl::StatusOr<DeviceCondition> Condition() override {
    if (nvml_ == nullptr) return absl::UnimplementedError("there is no libnvidia-ml.so.1");
    return nvml_->Condition(nvml_device_);
  }

  bool Disturbed() override { return nvml_ != nullptr && nvml_->Disturbed(nvml_device_); }

  void SetNvml(std::unique_ptr<Nvml> nvml, void* device) {
    nvml_ = std::move(nvml);
    nvml_device_ = device;
  }

 private:
  CudaContext(const CudaApi& api, int device, void* context)
      : api_(api), device_(device), context_(context) {}

  const CudaApi& api_;
  const int device_;
  void* const context_;
  std::unique_ptr<Nvml> nvml_;  // null: not installed
  void* nvml_device_ = nullptr;
};

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

absl::StatusOr<int> CountCudaDevices(const CudaApi& api) {
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuInit, 0));
  int version = 0, count = 0;
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDriverGetVersion, &version));
  if (version < kOldestDriver) {
    return absl::UnavailableError(absl::StrCat("the driver is too old: it is of CUDA ",
                                               VersionText(version), ", and beamd wants ",
                                               VersionText(kOldestDriver), " or newer"));
  }
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDeviceGetCount, &count));
  if (count < 1) return absl::UnavailableError("the driver knows no GPU");
  return count;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaApi& api, int ordinal) {
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuInit, 0));
  int device = 0, version = 0;
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDeviceGet, &device, ordinal));
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDriverGetVersion, &version));
  Attributes attributes([&](int attribute, int* value) {
    return BEAMD_CUDA(api, cuDeviceGetAttribute, value, attribute, device);
  });
  const auto major = static_cast<int>(attributes[kComputeCapabilityMajor]);
  const auto minor = static_cast<int>(attributes[kComputeCapabilityMinor]);
  BEAMD_RETURN_IF_ERROR(attributes.status());
  BEAMD_ASSIGN_OR_RETURN(TargetCaps caps, CudaTarget(major, minor, version));
  caps.shared_bytes = attributes[kMaxSharedMemoryPerBlock];
  caps.wave_size = static_cast<int>(attributes[kWarpSize]);
  for (int i = 0; i < 3; ++i) {
    (*caps.global_max)[i] = attributes[kMaxGridDimX + i];
    (*caps.local_max)[i] = std::min(attributes[kMaxBlockDimX + i], attributes[kMaxThreadsPerBlock]);
  }
  if (api.takes_bitcode) caps.code_form = CodeForm::kBitcode;

  DeviceInfo info;
  info.vendor = "NVIDIA";
  info.arch = caps.arch;
  info.emulated = api.takes_bitcode;
  info.driver = absl::StrCat("CUDA ", VersionText(version));
  info.units = attributes[kMultiprocessorCount];
  info.cache_bytes = attributes[kL2CacheSize];
  info.clock_limit_mhz = attributes[kClockRate] / 1000;
  info.memory_clock_limit_mhz = attributes[kMemoryClockRate] / 1000;
  BEAMD_RETURN_IF_ERROR(attributes.status());
  std::array<char, 256> text{};
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDeviceGetName, text.data(), text.size(), device));
  info.model = text.data();
  size_t memory_bytes = 0;
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDeviceTotalMem_v2, &memory_bytes, device));
  info.memory_bytes = static_cast<int64_t>(memory_bytes);
  std::array<char, 32> bus{};
  BEAMD_RETURN_IF_ERROR(BEAMD_CUDA(api, cuDeviceGetPCIBusId, bus.data(), bus.size(), device));

  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context, CudaContext::Create(api, device));
  // Without it a device works as well, and tells less.
  if (absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(); nvml.ok()) {
    if (const std::string driver = (*nvml)->DriverVersion(); !driver.empty()) {
      info.driver = absl::StrCat(driver, " (", info.driver, ")");
    }
    if (const absl::StatusOr<void*> found = (*nvml)->Find(bus.data()); found.ok()) {
      (*nvml)->Describe(*found, info);
      context->SetNvml(*std::move(nvml), *found);
    }
  }
  return MakeGpuDevice(std::move(context), std::move(caps), std::move(info));
}

}  // namespace beamd

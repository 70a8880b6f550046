#include "devices/hip/device.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "devices/gpu/attributes.h"
#include "devices/gpu/context.h"
#include "devices/gpu/device.h"
#include "devices/hip/amd_smi.h"
#include "engine/base/status.h"
#include "engine/base/target_caps.h"

namespace beamd {
namespace {

// hipRuntimeGetVersion's number of 5.0; older runtimes number their attributes otherwise.
constexpr int kOldestRuntime = 50000000;
constexpr int kMajorUnit = 10000000, kMinorUnit = 100000;

// hipDeviceAttribute_t, whose order ROCm 5, 6 and 7 share.
enum Attribute : int {
  kClockRate = 5,  // kHz
  kL2CacheSize = 19,
  kMaxBlockDimX = 26,  // then y, z
  kMaxGridDimX = 29,   // then y, z
  kMaxThreadsPerBlock = 56,
  kMemoryClockRate = 60,  // kHz
  kMultiprocessorCount = 63,
  kMaxSharedMemoryPerBlock = 74,
  kWarpSize = 87,
};

constexpr int64_t kMostWorkItems = 0xffffffff;

// hipMemcpyKind.
constexpr int kHostToDevice = 1, kDeviceToHost = 2;

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

class HipContext final : public GpuContext {
 public:
  HipContext(const HipApi& api, int device) : api_(api), device_(device) {}

  absl::Status Enter() override { return BEAMD_HIP(api_, hipSetDevice, device_); }

  absl::StatusOr<uint64_t> Allocate(size_t size_bytes) override {
    void* address = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api_, hipMalloc, &address, size_bytes));
    return reinterpret_cast<uint64_t>(address);
  }
  void Free(uint64_t address) override { api_.hipFree(Pointer(address)); }
  absl::StatusOr<size_t> FreeMemory() override {
    size_t free = 0, all = 0;
    BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api_, hipMemGetInfo, &free, &all));
    return free;
  }
  absl::StatusOr<void*> AllocatePinned(size_t size_bytes) override {
    void* memory = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api_, hipHostMalloc, &memory, size_bytes, 0));
    return memory;
  }
  void FreePinned(void* memory) override { api_.hipHostFree(memory); }
  absl::Status CopyIn(uint64_t to, const void* from, size_t size_bytes) override {
    return BEAMD_HIP(api_, hipMemcpyAsync, Pointer(to), from, size_bytes, kHostToDevice, nullptr);
  }
  absl::Status CopyOut(void* to, uint64_t from, size_t size_bytes) override {
    return BEAMD_HIP(api_, hipMemcpyAsync, to, Pointer(from), size_bytes, kDeviceToHost, nullptr);
  }
  absl::Status Fill(uint64_t address, unsigned char value, size_t size_bytes) override {
    return BEAMD_HIP(api_, hipMemsetAsync, Pointer(address), value, size_bytes, nullptr);
  }

  absl::StatusOr<void*> LoadModule(const std::string& code) override {
    if (!api_.takes_bitcode) BEAMD_RETURN_IF_ERROR(CheckCodeObject(code));
    void* module = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api_, hipModuleLoadData, &module, code.data()));
    return module;
  }
  void UnloadModule(void* module) override { api_.hipModuleUnload(module); }
  absl::StatusOr<void*> Function(void* module, const std::string& name) override {
    void* function = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api_, hipModuleGetFunction, &function, module, name.c_str()));
    return function;
  }
  absl::Status Launch(void* function, const Sizes& groups, const Sizes& items,
                      void** arguments) override {
    return BEAMD_HIP(api_, hipModuleLaunchKernel, function, groups[0], groups[1], groups[2],
                     items[0], items[1], items[2], 0, nullptr, arguments, nullptr);
  }

  absl::StatusOr<void*> CreateEvent() override {
    void* event = nullptr;
    BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api_, hipEventCreate, &event));
    return event;
  }
  void DestroyEvent(void* event) override { api_.hipEventDestroy(event); }
  absl::Status Record(void* event) override {
    return BEAMD_HIP(api_, hipEventRecord, event, nullptr);
  }
  absl::Status WaitFor(void* event) override { return BEAMD_HIP(api_, hipEventSynchronize, event); }
  absl::StatusOr<float> Milliseconds(void* begin, void* end) override {
    float milliseconds = 0;
    BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api_, hipEventElapsedTime, &milliseconds, begin, end));
    return milliseconds;
  }
  absl::Status Wait() override { return BEAMD_HIP(api_, hipStreamSynchronize, nullptr); }

  absl::StatusOr<DeviceCondition> Condition() override {
    if (smi_ == nullptr) return absl::UnimplementedError("there is no libamd_smi.so");
    return smi_->Condition(smi_gpu_);
  }

  bool Disturbed() override { return smi_ != nullptr && smi_->Disturbed(smi_gpu_); }

  void SetSmi(std::unique_ptr<AmdSmi> smi, void* gpu) {
    smi_ = std::move(smi);
    smi_gpu_ = gpu;
  }

 private:
  const HipApi& api_;
  const int device_;
  std::unique_ptr<AmdSmi> smi_;  // null: not installed
  void* smi_gpu_ = nullptr;
};

std::string VersionText(int version) {
  return absl::StrCat(version / kMajorUnit, ".", version % kMajorUnit / kMinorUnit);
}

absl::StatusOr<std::string> ArchName(const HipApi& api, int device) {
  // Larger than any version's structure.
  std::array<char, 8192> properties{};
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, properties, properties.data(), device));
  properties.back() = '\0';
  return std::string(properties.data() + api.properties_arch_offset);
}

}  // namespace

absl::Status CheckCodeObject(const std::string& code) {
  Elf64_Ehdr header;
  const auto broken = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("the code object ", why));
  };
  if (code.size() < sizeof(header)) return broken("is shorter than an ELF header");
  std::memcpy(&header, code.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return broken("is no ELF file");
  }
  const auto fits = [&](uint64_t offset, uint64_t count, uint64_t each, uint64_t least) {
    return count == 0 ||
           (each >= least && offset <= code.size() && count <= (code.size() - offset) / each);
  };
  if (!fits(header.e_phoff, header.e_phnum, header.e_phentsize, sizeof(Elf64_Phdr)) ||
      !fits(header.e_shoff, header.e_shnum, header.e_shentsize, sizeof(Elf64_Shdr))) {
    return broken("is cut short");
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, code.data() + header.e_phoff + size_t{i} * header.e_phentsize,
                sizeof(segment));
    if (!fits(segment.p_offset, segment.p_filesz, 1, 1)) return broken("is cut short");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> CountHipDevices(const HipApi& api) {
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipInit, 0));
  int version = 0, count = 0;
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipRuntimeGetVersion, &version));
  if (version < kOldestRuntime) {
    return absl::UnavailableError(absl::StrCat("the runtime is too old: it is HIP ",
                                               VersionText(version), ", and beamd wants ",
                                               VersionText(kOldestRuntime), " or newer"));
  }
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipGetDeviceCount, &count));
  if (count < 1) return absl::UnavailableError("the runtime knows no GPU");
  return count;
}

absl::StatusOr<std::unique_ptr<Device>> OpenHipDevice(const HipApi& api, int ordinal) {
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipInit, 0));
  int version = 0;
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipRuntimeGetVersion, &version));
  BEAMD_ASSIGN_OR_RETURN(const std::string arch, ArchName(api, ordinal));
  BEAMD_ASSIGN_OR_RETURN(TargetCaps caps, HipTarget(arch, version / kMajorUnit));
  Attributes attributes([&](int attribute, int* value) {
    return BEAMD_HIP(api, hipDeviceGetAttribute, value, attribute, ordinal);
  });
  caps.shared_bytes = attributes[kMaxSharedMemoryPerBlock];
  caps.wave_size = static_cast<int>(attributes[kWarpSize]);
  for (int i = 0; i < 3; ++i) {
    (*caps.local_max)[i] = std::min(attributes[kMaxBlockDimX + i], attributes[kMaxThreadsPerBlock]);
    // In work-groups; a dispatch counts its work-items in 32 bits.
    (*caps.global_max)[i] = std::min(attributes[kMaxGridDimX + i],
                                     kMostWorkItems / std::max<int64_t>((*caps.local_max)[i], 1));
  }
  if (api.takes_bitcode) caps.code_form = CodeForm::kBitcode;

  DeviceInfo info;
  info.vendor = "AMD";
  info.arch = caps.arch;
  info.emulated = api.takes_bitcode;
  info.driver = absl::StrCat("HIP ", VersionText(version), ".", version % kMinorUnit);
  info.units = attributes[kMultiprocessorCount];
  info.cache_bytes = attributes[kL2CacheSize];
  info.clock_limit_mhz = attributes[kClockRate] / 1000;
  info.memory_clock_limit_mhz = attributes[kMemoryClockRate] / 1000;
  BEAMD_RETURN_IF_ERROR(attributes.status());
  std::array<char, 256> text{};
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipDeviceGetName, text.data(), text.size(), ordinal));
  info.model = text.data();
  size_t memory_bytes = 0;
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipDeviceTotalMem, &memory_bytes, ordinal));
  info.memory_bytes = static_cast<int64_t>(memory_bytes);
  std::array<char, 32> bus{};
  BEAMD_RETURN_IF_ERROR(BEAMD_HIP(api, hipDeviceGetPCIBusId, bus.data(), bus.size(), ordinal));

  auto context = std::make_unique<HipContext>(api, ordinal);
  // Without it a device works as well, and tells less.
  if (absl::StatusOr<std::unique_ptr<AmdSmi>> smi = AmdSmi::Open(); smi.ok()) {
    if (const absl::StatusOr<void*> found = (*smi)->Find(bus.data()); found.ok()) {
      (*smi)->Describe(*found, info);
      context->SetSmi(*std::move(smi), *found);
    }
  }
  return MakeGpuDevice(std::move(context), std::move(caps), std::move(info));
}

}  // namespace beamd

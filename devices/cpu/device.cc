#include "devices/cpu/device.h"

#include <emmintrin.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "devices/cpu/buffer.h"
#include "devices/cpu/executable.h"
#include "devices/launch.h"
#include "engine/base/status.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/TargetParser/Host.h"

namespace beamd {
namespace {

constexpr size_t kCacheLine = 64;
constexpr int64_t kDefaultCacheBytes = int64_t{32} << 20;
// Up to here evicting line by line is quicker than streaming other memory through the cache.
constexpr size_t kEvictBytes = size_t{8} << 20;

// As engine/llvm's HostCaps, which devices/ doesn't see; a test holds the two together.
TargetCaps ThisCpu() {
  std::map<std::string, bool> features;
  for (const auto& f : llvm::sys::getHostCPUFeatures()) features[f.getKey().str()] = f.getValue();
  return CpuTarget(llvm::sys::getHostCPUName().str(), features);
}

// Value of the first line "key : value" of /proc/cpuinfo; empty where there is none.
std::string CpuInfo(absl::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(field.first) == key) {
      return std::string(absl::StripAsciiWhitespace(field.second));
    }
  }
  return "";
}

// The largest cache of core 0 as the kernel describes it ("32768K"): sysconf believes what a
// virtual machine says of the whole socket. 0 where it says nothing.
int64_t LastLevelCacheBytes() {
  int64_t largest = 0;
  for (int i = 0; i < 8; ++i) {
    std::ifstream file(absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", i, "/size"));
    std::string text;
    int64_t kilobytes = 0;
    if (!(file >> text) || !absl::SimpleAtoi(absl::StripSuffix(text, "K"), &kilobytes)) continue;
    largest = std::max(largest, kilobytes << 10);
  }
  return largest;
}

DeviceInfo Describe(const TargetCaps& caps) {
  DeviceInfo info;
  info.vendor = CpuInfo("vendor_id");
  info.model = CpuInfo("model name");
  info.arch = caps.arch;
  info.features = caps.features;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  info.units = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  info.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  info.cache_bytes = LastLevelCacheBytes();
  if (info.cache_bytes == 0) info.cache_bytes = kDefaultCacheBytes;
  return info;
}

// A run that lost more than this of its time to others is told without it.
constexpr int64_t kLostNanoseconds = 20000;
constexpr int64_t kLostShare = 20;

int64_t NowNanoseconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

// The kernel's arguments as its entry takes them. A launch is a call.
class CpuLaunch final : public PreparedLaunch {
 public:
  CpuLaunch(const CpuExecutable& executable, const Launch& launch)
      : entry_(executable.entry()),
        image_(executable.image()),
        pointers_(launch.buffers.size()),
        variables_(launch.variables.begin(), launch.variables.end()) {
    for (size_t i = 0; i < pointers_.size(); ++i) pointers_[i] = launch.buffers[i]->mapped();
  }

  absl::Status SetBuffer(size_t index, Buffer& buffer, size_t offset_bytes) override {
    auto* const data = static_cast<std::byte*>(buffer.mapped());
    if (data == nullptr) return absl::InvalidArgumentError("the buffer is not of this device");
    BEAMD_RETURN_IF_ERROR(CheckArgument(image_, index, buffer, offset_bytes));
    pointers_[index] = data + offset_bytes;
    return absl::OkStatus();
  }

  absl::Status SetVariable(size_t index, int64_t value) override {
    BEAMD_RETURN_IF_ERROR(CheckVariable(image_, index, value));
    variables_[index] = value;
    return absl::OkStatus();
  }

  absl::Status Start() override {
    entry_(pointers_.data(), variables_.data(), 0, image_.slices);
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Duration> Run() override {
    const int64_t start = NowNanoseconds(CLOCK_MONOTONIC);
    BEAMD_RETURN_IF_ERROR(Start());
    return absl::Nanoseconds(NowNanoseconds(CLOCK_MONOTONIC) - start);
  }

 private:
  const CpuEntry entry_;
  const KernelImage& image_;
  std::vector<void*> pointers_;
  std::vector<int64_t> variables_;
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(std::unique_ptr<CpuLoader> loader)
      : caps_(ThisCpu()), info_(Describe(caps_)), loader_(std::move(loader)) {}

  const TargetCaps& caps() const override { return caps_; }
  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t size_bytes) override {
    return CpuBuffer::Create(size_bytes);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> View(Buffer& parent, size_t offset_bytes,
                                               size_t size_bytes) override {
    return CpuBuffer::Window(parent, offset_bytes, size_bytes);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Load(const KernelImage& image) override {
    if (image.kind != TargetKind::kCpu) {
      return absl::InvalidArgumentError("the image is not for a CPU");
    }
    return loader_->Load(image);
  }

  absl::StatusOr<absl::Duration> Run(const Executable& exe, const Launch& launch) override {
    const auto* loaded = dynamic_cast<const CpuExecutable*>(&exe);
    if (loaded == nullptr) return absl::InvalidArgumentError("loaded by another device");
    BEAMD_RETURN_IF_ERROR(CheckLaunch(loaded->image(), launch));
    std::vector<void*> pointers(launch.buffers.size());
    for (size_t i = 0; i < pointers.size(); ++i) pointers[i] = launch.buffers[i]->mapped();
    const CpuEntry entry = loaded->entry();
    // The thread's own time around the passing of time, so that it is never too short.
    const int64_t own_start = NowNanoseconds(CLOCK_THREAD_CPUTIME_ID);
    const int64_t start = NowNanoseconds(CLOCK_MONOTONIC);
    for (int64_t i = 0; i < launch.repeats; ++i) {
      entry(pointers.data(), launch.variables.data(), launch.begin, launch.end);
    }
    const int64_t took = NowNanoseconds(CLOCK_MONOTONIC) - start;
    const int64_t own = NowNanoseconds(CLOCK_THREAD_CPUTIME_ID) - own_start;
    // Others had the core: that was no time of the kernel's.
    const bool shared = took - own > std::max(kLostNanoseconds, took / kLostShare);
    return absl::Nanoseconds(shared ? own : took);
  }

  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(const Executable& exe,
                                                          const Launch& launch) override {
    const auto* loaded = dynamic_cast<const CpuExecutable*>(&exe);
    if (loaded == nullptr) return absl::InvalidArgumentError("loaded by another device");
    BEAMD_RETURN_IF_ERROR(CheckWholeLaunch(loaded->image(), launch));
    return std::make_unique<CpuLaunch>(*loaded, launch);
  }

  absl::Status Wait() override { return absl::OkStatus(); }  // Start waits

  absl::Status FlushCache(std::span<Buffer* const> buffers) override {
    size_t bytes = 0;
    for (const Buffer* buffer : buffers) bytes += buffer->size_bytes();
    if (bytes <= kEvictBytes) {
      for (Buffer* buffer : buffers) {
        const auto* data = static_cast<const std::byte*>(buffer->mapped());
        for (size_t i = 0; i < buffer->size_bytes(); i += kCacheLine) _mm_clflush(data + i);
      }
      _mm_mfence();
      return absl::OkStatus();
    }
    const std::lock_guard lock(flush_mutex_);
    if (flush_ == nullptr) {
      BEAMD_ASSIGN_OR_RETURN(flush_, CpuBuffer::Create(2 * info_.cache_bytes));
    }
    std::memset(flush_->mapped(), ++flush_fill_, flush_->size_bytes());
    return absl::OkStatus();
  }

 private:
  const TargetCaps caps_;
  const DeviceInfo info_;
  std::unique_ptr<CpuLoader> loader_;
  std::mutex flush_mutex_;
  std::unique_ptr<CpuBuffer> flush_;
  unsigned char flush_fill_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCpuDevice() {
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<CpuLoader> loader, CpuLoader::Create());
  return std::make_unique<CpuDevice>(std::move(loader));
}

}  // namespace beamd

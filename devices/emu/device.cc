#include "devices/emu/device.h"

#include <sys/sysinfo.h>
#include <time.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "devices/cpu/buffer.h"
#include "devices/emu/executable.h"
#include "devices/emu/group_run.h"
#include "devices/launch.h"
#include "engine/base/gpu_target.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Of an emulated GPU, so that what is sized by a cache stays small.
constexpr int64_t kCacheBytes = int64_t{4} << 20;

int64_t NowNanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

emu::BufferArgument ArgumentOf(const KernelImage::Buffer& want, Buffer& buffer,
                               size_t offset_bytes) {
  return {.address = reinterpret_cast<uint64_t>(buffer.mapped()) + offset_bytes,
          .bytes = static_cast<uint64_t>(want.size_elements) * SizeBytes(want.scalar),
          .slot = want.slot,
          .read = want.read,
          .written = want.written};
}

// What all launches of a device share. One runs at a time.
struct Core {
  std::mutex mutex;
  emu::GroupRun run;
};

absl::StatusOr<emu::LaunchPlan> PlanOf(const emu::EmuExecutable& executable, const Launch& launch,
                                       int wave, const EmuOptions& options) {
  const KernelImage& image = executable.image();
  emu::LaunchPlan plan;
  plan.kernel = &executable.kernel();
  plan.entry = executable.entry();
  plan.constants = executable.constants();
  plan.name = image.entry;
  plan.groups = image.global_size;
  plan.items = image.local_size;
  plan.wave = wave;
  plan.seed = options.seed;
  plan.most_groups = options.most_groups;
  plan.variables.assign(launch.variables.begin(), launch.variables.end());
  for (size_t i = 0; i < image.buffers.size(); ++i) {
    if (launch.buffers[i]->mapped() == nullptr) {
      return absl::InvalidArgumentError("the buffer is not of this device");
    }
    plan.buffers.push_back(ArgumentOf(image.buffers[i], *launch.buffers[i], 0));
  }
  return plan;
}

class EmuLaunch final : public PreparedLaunch {
 public:
  EmuLaunch(Core& core, const KernelImage& image, emu::LaunchPlan plan)
      : core_(core), image_(image), plan_(std::move(plan)) {}

  absl::Status SetBuffer(size_t index, Buffer& buffer, size_t offset_bytes) override {
    if (buffer.mapped() == nullptr) {
      return absl::InvalidArgumentError("the buffer is not of this device");
    }
    BEAMD_RETURN_IF_ERROR(CheckArgument(image_, index, buffer, offset_bytes));
    plan_.buffers[index] = ArgumentOf(image_.buffers[index], buffer, offset_bytes);
    return absl::OkStatus();
  }

  absl::Status SetVariable(size_t index, int64_t value) override {
    BEAMD_RETURN_IF_ERROR(CheckVariable(image_, index, value));
    plan_.variables[index] = value;
    return absl::OkStatus();
  }

  absl::Status Start() override {
    const std::lock_guard lock(core_.mutex);
    return core_.run.Run(plan_);
  }

  absl::StatusOr<absl::Duration> Run() override {
    const int64_t start = NowNanoseconds();
    BEAMD_RETURN_IF_ERROR(Start());
    return absl::Nanoseconds(NowNanoseconds() - start);
  }

 private:
  Core& core_;
  const KernelImage& image_;
  emu::LaunchPlan plan_;
};

class EmuDevice final : public Device {
 public:
  EmuDevice(TargetCaps caps, const EmuOptions& options, std::unique_ptr<emu::EmuLoader> loader)
      : caps_(std::move(caps)), options_(options), loader_(std::move(loader)) {
    info_.vendor = "beamd";
    info_.model = absl::StrCat("emulated ", caps_.arch);
    info_.arch = caps_.arch;
    info_.driver = "emulator";
    info_.emulated = true;
    info_.units = 1;
    struct sysinfo host = {};
    if (sysinfo(&host) == 0) {
      info_.memory_bytes =
          static_cast<int64_t>(host.totalram) * static_cast<int64_t>(host.mem_unit);
    }
    info_.cache_bytes = kCacheBytes;
  }

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
    return loader_->Load(image);
  }

  absl::StatusOr<absl::Duration> Run(const Executable& exe, const Launch& launch) override {
    const auto* loaded = dynamic_cast<const emu::EmuExecutable*>(&exe);
    if (loaded == nullptr) return absl::InvalidArgumentError("loaded by another device");
    BEAMD_RETURN_IF_ERROR(CheckLaunch(loaded->image(), launch));
    BEAMD_ASSIGN_OR_RETURN(const emu::LaunchPlan plan,
                           PlanOf(*loaded, launch, caps_.wave_size, options_));
    const std::lock_guard lock(core_.mutex);
    const int64_t start = NowNanoseconds();
    if (launch.begin < launch.end) {
      for (int64_t i = 0; i < launch.repeats; ++i) BEAMD_RETURN_IF_ERROR(core_.run.Run(plan));
    }
    return absl::Nanoseconds(NowNanoseconds() - start);
  }

  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(const Executable& exe,
                                                          const Launch& launch) override {
    const auto* loaded = dynamic_cast<const emu::EmuExecutable*>(&exe);
    if (loaded == nullptr) return absl::InvalidArgumentError("loaded by another device");
    BEAMD_RETURN_IF_ERROR(CheckWholeLaunch(loaded->image(), launch));
    BEAMD_ASSIGN_OR_RETURN(emu::LaunchPlan plan,
                           PlanOf(*loaded, launch, caps_.wave_size, options_));
    return std::make_unique<EmuLaunch>(core_, loaded->image(), std::move(plan));
  }

  absl::Status Wait() override { return absl::OkStatus(); }  // Start waits

  // Nothing of an emulated GPU is cached.
  absl::Status FlushCache(std::span<Buffer* const>) override { return absl::OkStatus(); }

 private:
  const TargetCaps caps_;
  const EmuOptions options_;
  DeviceInfo info_;
  const std::unique_ptr<emu::EmuLoader> loader_;
  Core core_;
};

}  // namespace

absl::StatusOr<TargetCaps> EmuTarget(absl::string_view arch) {
  if (arch == "cuda") return EmuTarget(CorpusTarget(TargetKind::kCuda).arch);
  if (arch == "hip") return EmuTarget(CorpusTarget(TargetKind::kHip).arch);
  absl::StatusOr<TargetCaps> caps = GpuByName(arch);
  if (!caps.ok()) {
    return absl::NotFoundError(
        absl::StrCat("no GPU \"", arch, "\" can be emulated: an arch like sm_80 or gfx1100"));
  }
  caps->code_form = CodeForm::kBitcode;
  return caps;
}

absl::StatusOr<std::unique_ptr<Device>> OpenEmuDevice(TargetCaps caps, const EmuOptions& options) {
  if (caps.kind == TargetKind::kCpu) return absl::InvalidArgumentError("a CPU isn't emulated");
  caps.code_form = CodeForm::kBitcode;
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<emu::EmuLoader> loader, emu::EmuLoader::Create(caps));
  return std::make_unique<EmuDevice>(std::move(caps), options, std::move(loader));
}

}  // namespace beamd

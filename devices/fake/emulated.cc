#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "devices/emu/executable.h"
#include "devices/emu/group_run.h"
#include "devices/fake/machine.h"

namespace beamd::fake {
namespace {

// What a GPU would have called what the emulator found.
int CodeOf(const absl::Status& found) {
  if (found.ok()) return kSuccess;
  if (absl::StartsWith(found.message(), "out of bounds")) return kIllegalAddress;
  if (absl::StartsWith(found.message(), "misaligned")) return kMisalignedAddress;
  return kLaunchFailed;
}

class Emulated final : public Module, public Kernel {
 public:
  Emulated(std::unique_ptr<emu::EmuLoader> loader, std::unique_ptr<emu::EmuExecutable> executable,
           int wave)
      : loader_(std::move(loader)), executable_(std::move(executable)), wave_(wave) {}

  Kernel* Find(const std::string& name) override {
    return name == executable_->image().entry ? this : nullptr;
  }

  int Run(const Grid& grid, void** parameters, std::string& why) override {
    const KernelImage& image = executable_->image();
    emu::LaunchPlan plan;
    plan.kernel = &executable_->kernel();
    plan.entry = executable_->entry();
    plan.constants = executable_->constants();
    plan.name = image.entry;
    plan.wave = wave_;
    for (int i = 0; i < 3; ++i) {
      plan.groups[i] = grid.groups[i];
      plan.items[i] = grid.items[i];
    }
    for (const KernelImage::Buffer& want : image.buffers) {
      uint64_t address = 0;
      std::memcpy(&address, *parameters++, sizeof(address));
      plan.buffers.push_back(
          {.address = address,
           .bytes = static_cast<uint64_t>(want.size_elements) * SizeBytes(want.scalar),
           .slot = want.slot,
           .read = want.read,
           .written = want.written});
    }
    plan.variables.resize(image.variables.size());
    for (int64_t& variable : plan.variables)
      std::memcpy(&variable, *parameters++, sizeof(variable));
    const absl::Status found = run_.Run(plan);
    why = std::string(found.message());
    return CodeOf(found);
  }

 private:
  const std::unique_ptr<emu::EmuLoader> loader_;
  const std::unique_ptr<emu::EmuExecutable> executable_;
  const int wave_;
  emu::GroupRun run_;
};

}  // namespace

std::unique_ptr<Module> LoadEmulated(const KernelImage& image, const TargetCaps& caps,
                                     std::string& log) {
  absl::StatusOr<std::unique_ptr<emu::EmuLoader>> loader = emu::EmuLoader::Create(caps);
  if (!loader.ok()) {
    log = std::string(loader.status().message());
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<emu::EmuExecutable>> executable = (*loader)->Load(image);
  if (!executable.ok()) {
    log = std::string(executable.status().message());
    return nullptr;
  }
  return std::make_unique<Emulated>(*std::move(loader), *std::move(executable), caps.wave_size);
}

}  // namespace beamd::fake

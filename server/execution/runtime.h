// Realises lazy buffers in this process: schedules, plans memory, compiles, runs.
//
//   LazyContext context;
//   auto runtime = Runtime::Create();
//   context.set_realizer(runtime->get());
//
// DEBUG prints to RuntimeOptions::log: 2: a line a kernel with its time and rates; 3: its opts; 5:
// its graph; 6: its assembly. NOOPT and BEAM choose opts (kernel_cache.h), NO_MEMORY_PLANNER gives
// every buffer memory of its own.
//
// Answers to tinygrad 0.10.0 engine/realize.py. Differs: every kernel of a schedule is compiled
// before the first one runs, so that an error leaves nothing half done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/device.h"
#include "engine/base/counters.h"
#include "engine/base/profile.h"
#include "engine/lazy/lazy_context.h"
#include "engine/schedule/memory_plan.h"
#include "engine/schedule/schedule.h"
#include "engine/uop/view_index.h"
#include "server/execution/device_memory.h"
#include "server/execution/kernel_cache.h"

namespace beamd {

struct RuntimeOptions {
  OptsFor opts_for;             // may be empty
  std::ostream* log = nullptr;  // null: stderr; outlives the runtime
};

struct RuntimeDevice {
  std::string name;  // as tensors call it
  std::unique_ptr<Device> device;
};

// What a plan is made of: an item of a schedule that ran, its kernel, its buffers by kernel slot.
struct RecordedItem {
  ScheduleItem item;                             // without ast and outputs
  std::shared_ptr<const CompiledKernel> kernel;  // of a kKernel
};

struct Recording {
  std::vector<RecordedItem> items;
  // Buffers that had no memory before: what they hold is computed by the items, or unspecified.
  absl::flat_hash_set<const TensorBuffer*> fresh;
};

// Not thread-safe, but for counters(). Buffers may outlive it.
class Runtime final : public Realizer {
 public:
  // Devices of the registry (devices/registry.h), which the binary links; its errors.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const std::vector<std::string>& names = {
                                                             "cpu:0"});
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(std::vector<RuntimeDevice> devices,
                                                         RuntimeOptions options);

  // Also: NotFound: a device that the runtime hasn't; FailedPrecondition: a variable without a
  // value, by name; the errors of compiling and running, which name the kernel.
  absl::Status Realize(std::span<const LazyBuffer> roots) override;
  absl::Status Write(TensorBuffer& buffer, std::span<const std::byte> bytes) override;
  absl::Status Read(const TensorBuffer& buffer, std::span<std::byte> bytes) override;

  Counters& counters() { return *counters_; }
  // Where compiles, kernels and copies are noted from now on; null: nowhere. It outlives the
  // runtime or is replaced.
  void set_profile(Profile* profile) { profile_ = profile; }
  Profile* profile() const { return profile_; }
  // Of the last Realize that had something to do.
  const MemoryPlan& last_memory_plan() const { return last_memory_plan_; }
  int last_kernel_count() const { return last_kernel_count_; }
  // Since the beginning: kernels that were there already, and that weren't.
  int64_t cache_hits() const;
  int64_t compiles() const;

  // --- for Plan ---
  // What is realised until EndRecording is noted in `recording`; reading is refused meanwhile.
  // FailedPrecondition: one is being made already.
  absl::Status BeginRecording(Recording* recording);
  void EndRecording() { recording_ = nullptr; }
  bool is_recording() const { return recording_ != nullptr; }
  // The buffer's memory, window or not: uploads what the host holds, and allocates what isn't.
  absl::StatusOr<std::shared_ptr<DeviceMemory>> MemoryOf(TensorBuffer& buffer);
  absl::StatusOr<std::shared_ptr<OpenedDevice>> DeviceNamed(absl::string_view name) const;
  bool logs_kernels() const;
  // Counts, prints and notes a kernel, or a copy where `kernel` is null, that ran from `start_ns`
  // for `time`.
  void NoteRun(const CompiledKernel* kernel, const ScheduleItem& item, int64_t start_ns,
               absl::Duration time);

 private:
  struct Opened {
    std::shared_ptr<OpenedDevice> device;
    std::unique_ptr<KernelCache> kernels;
  };
  using Kernels = std::vector<std::shared_ptr<const CompiledKernel>>;  // null: no kernel

  Runtime(RuntimeOptions options, std::shared_ptr<Counters> counters);
  absl::StatusOr<Kernels> CompileAll(const Schedule& schedule);
  absl::Status GiveMemory(const Schedule& schedule, const MemoryPlan& plan,
                          std::vector<TensorBuffer*>& given);
  absl::Status RunAll(const Schedule& schedule, const Kernels& kernels,
                      const VariableValues& variables);
  absl::Status RunKernel(const ScheduleItem& item, const CompiledKernel& kernel,
                         const VariableValues& variables);

  const RuntimeOptions options_;
  std::ostream& log_;
  const std::shared_ptr<Counters> counters_;
  absl::flat_hash_map<std::string, Opened> devices_;
  Profile* profile_ = nullptr;
  Recording* recording_ = nullptr;
  MemoryPlan last_memory_plan_;
  int last_kernel_count_ = 0;
};

// Values in the order of image.variables. FailedPrecondition naming the one that has none.
absl::StatusOr<std::vector<int64_t>> LaunchVariables(const KernelImage& image,
                                                     const VariableValues& variables);

}  // namespace beamd

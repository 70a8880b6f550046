#include "server/execution/runtime.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "devices/registry.h"
#include "engine/base/option.h"
#include "engine/base/status.h"
#include "engine/dtype/dtype.h"

namespace beamd {
namespace {

constexpr int64_t kDebugKernels = 2;

static_assert(kBufferAlignment % kWindowAlignment == 0, "a planned buffer is a device's window");

// The memory itself, not a window.
TensorBuffer& Whole(TensorBuffer& buffer) { return buffer.parent ? *buffer.parent : buffer; }

absl::string_view KindName(ScheduleItem::Kind kind) {
  return kind == ScheduleItem::Kind::kCopy ? "copy" : "view";
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> LaunchVariables(const KernelImage& image,
                                                     const VariableValues& variables) {
  std::vector<int64_t> values;
  values.reserve(image.variables.size());
  for (const KernelImage::Variable& v : image.variables) {
    const auto it = variables.find(v.name);
    if (it == variables.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable \"", v.name, "\" has no value: bind it"));
    }
    values.push_back(it->second);
  }
  return values;
}

Runtime::Runtime(RuntimeOptions options, std::shared_ptr<Counters> counters)
    : options_(std::move(options)),
      log_(options_.log != nullptr ? *options_.log : std::cerr),
      counters_(std::move(counters)) {}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const std::vector<std::string>& names) {
  std::vector<RuntimeDevice> devices;
  for (const std::string& name : names) {
    BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(name));
    devices.push_back({name, std::move(device)});
  }
  return Create(std::move(devices), {});
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(std::vector<RuntimeDevice> devices,
                                                         RuntimeOptions options) {
  auto counters = std::make_shared<Counters>();
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(options), counters));
  for (RuntimeDevice& d : devices) {
    auto opened = std::make_shared<OpenedDevice>(d.name, std::move(d.device), counters);
    BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<KernelCache> kernels,
                           KernelCache::Create(opened, runtime->options_.opts_for, runtime->log_));
    runtime->devices_[d.name] = {std::move(opened), std::move(kernels)};
  }
  return runtime;
}

int64_t Runtime::cache_hits() const {
  int64_t hits = 0;
  for (const auto& [name, opened] : devices_) hits += opened.kernels->hits();
  return hits;
}

int64_t Runtime::compiles() const {
  int64_t compiles = 0;
  for (const auto& [name, opened] : devices_) compiles += opened.kernels->compiles();
  return compiles;
}

absl::StatusOr<std::shared_ptr<OpenedDevice>> Runtime::DeviceNamed(absl::string_view name) const {
  const auto it = devices_.find(name);
  if (it == devices_.end()) {
    return absl::NotFoundError(absl::StrCat("no device \"", name, "\" in this runtime"));
  }
  return it->second.device;
}

bool Runtime::logs_kernels() const { return options::kDebug >= kDebugKernels; }

absl::StatusOr<std::shared_ptr<DeviceMemory>> Runtime::MemoryOf(TensorBuffer& buffer) {
  TensorBuffer& whole = Whole(buffer);
  auto memory = std::dynamic_pointer_cast<DeviceMemory>(whole.memory);
  if (memory == nullptr) {
    BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<OpenedDevice> device, DeviceNamed(whole.device));
    BEAMD_ASSIGN_OR_RETURN(memory, device->Allocate(whole.size_bytes()));
    if (const auto* const host = dynamic_cast<const HostMemory*>(whole.memory.get())) {
      BEAMD_RETURN_IF_ERROR(memory->buffer().Write(0, host->bytes));
    }
    whole.memory = memory;
  }
  if (&whole == &buffer) return memory;
  return DeviceMemory::Window(std::move(memory), buffer.offset_bytes, buffer.size_bytes());
}

absl::Status Runtime::Write(TensorBuffer& buffer, std::span<const std::byte> bytes) {
  BEAMD_CHECK(static_cast<int64_t>(bytes.size()) == buffer.size_bytes(), "sizes are equal");
  BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<DeviceMemory> memory, MemoryOf(Whole(buffer)));
  return memory->buffer().Write(static_cast<size_t>(buffer.offset_bytes), bytes);
}

absl::Status Runtime::Read(const TensorBuffer& buffer, std::span<std::byte> bytes) {
  BEAMD_CHECK(static_cast<int64_t>(bytes.size()) == buffer.size_bytes(), "sizes are equal");
  if (recording_ != nullptr) {
    return absl::FailedPreconditionError(
        "a value is read while a plan is captured: the plan could not read it again");
  }
  if (!buffer.allocated()) {
    return absl::FailedPreconditionError("a value is read that was never computed");
  }
  const BufferMemory* const memory = (buffer.parent ? buffer.parent->memory : buffer.memory).get();
  if (const auto* const host = dynamic_cast<const HostMemory*>(memory)) {
    std::copy_n(host->bytes.begin() + buffer.offset_bytes, bytes.size(), bytes.begin());
    return absl::OkStatus();
  }
  const auto* const held = dynamic_cast<const DeviceMemory*>(memory);
  BEAMD_CHECK(held != nullptr, "memory is a host's or a device's");
  return held->buffer().Read(static_cast<size_t>(buffer.offset_bytes), bytes);
}

absl::Status Runtime::Realize(std::span<const LazyBuffer> roots) {
  if (roots.empty()) return absl::OkStatus();
  absl::StatusOr<Schedule> created;
  {
    const ProfileScope scope(profile_, "schedule");
    created = CreateSchedule(roots);
  }
  if (!created.ok()) return created.status();
  Schedule& schedule = *created;
  if (schedule.items.empty()) return absl::OkStatus();
  const VariableValues& variables = roots[0].context().bindings();
  for (const std::string& name : schedule.variables) {
    if (variables.contains(name)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("variable \"", name, "\" has no value: bind it"));
  }
  BEAMD_ASSIGN_OR_RETURN(const Kernels kernels, CompileAll(schedule));
  const MemoryPlan plan = PlanMemory(schedule);

  std::vector<TensorBuffer*> given;
  absl::Status status = GiveMemory(schedule, plan, given);
  if (status.ok()) status = RunAll(schedule, kernels, variables);
  if (!status.ok()) {
    for (TensorBuffer* const buffer : given) buffer->memory.reset();
    return status;
  }

  absl::flat_hash_set<const TensorBuffer*> internal;
  for (const std::shared_ptr<TensorBuffer>& buffer : schedule.internal) {
    buffer->memory.reset();
    internal.insert(buffer.get());
  }
  for (const ScheduleItem& item : schedule.items) {
    for (const LazyBuffer& output : item.outputs) {
      if (!internal.contains(output.buffer().get())) output.MarkRealized();
    }
  }
  last_memory_plan_ = plan;
  last_kernel_count_ = schedule.kernel_count();
  if (recording_ != nullptr) {
    for (size_t i = 0; i < schedule.items.size(); ++i) {
      schedule.items[i].ast = UOp();
      schedule.items[i].outputs.clear();
      recording_->items.push_back({std::move(schedule.items[i]), kernels[i]});
    }
    recording_->fresh.insert(given.begin(), given.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<Runtime::Kernels> Runtime::CompileAll(const Schedule& schedule) {
  const ProfileScope scope(profile_, "compile all");
  Kernels kernels(schedule.items.size());
  // Equal kernels of a schedule are one node.
  absl::flat_hash_map<std::pair<UOp, std::string>, std::shared_ptr<const CompiledKernel>> done;
  for (size_t i = 0; i < schedule.items.size(); ++i) {
    const ScheduleItem& item = schedule.items[i];
    const auto opened = devices_.find(item.device());
    if (opened == devices_.end()) return DeviceNamed(item.device()).status();
    if (item.kind != ScheduleItem::Kind::kKernel) continue;
    std::shared_ptr<const CompiledKernel>& kernel = done[{item.ast, item.device()}];
    if (kernel == nullptr) {
      BEAMD_ASSIGN_OR_RETURN(kernel, opened->second.kernels->Get(item.ast, profile_));
    }
    kernels[i] = kernel;
  }
  return kernels;
}

absl::Status Runtime::GiveMemory(const Schedule& schedule, const MemoryPlan& plan,
                                 std::vector<TensorBuffer*>& given) {
  std::vector<std::shared_ptr<DeviceMemory>> arenas;
  for (const MemoryPlan::Arena& arena : plan.arenas) {
    BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<OpenedDevice> device, DeviceNamed(arena.device));
    BEAMD_ASSIGN_OR_RETURN(arenas.emplace_back(), device->Allocate(arena.size_bytes));
  }
  for (const std::shared_ptr<TensorBuffer>& buffer : schedule.internal) {
    const auto it = plan.places.find(buffer.get());
    if (it == plan.places.end()) continue;
    BEAMD_ASSIGN_OR_RETURN(buffer->memory,
                           DeviceMemory::Window(arenas[static_cast<size_t>(it->second.arena)],
                                                it->second.offset_bytes, buffer->size_bytes()));
    given.push_back(buffer.get());
  }
  for (const ScheduleItem& item : schedule.items) {
    for (const std::shared_ptr<TensorBuffer>& buffer : item.buffers) {
      TensorBuffer& whole = Whole(*buffer);
      if (!whole.allocated()) given.push_back(&whole);
      BEAMD_RETURN_IF_ERROR(MemoryOf(whole).status());
    }
  }
  return absl::OkStatus();
}

absl::Status Runtime::RunAll(const Schedule& schedule, const Kernels& kernels,
                             const VariableValues& variables) {
  for (size_t i = 0; i < schedule.items.size(); ++i) {
    const ScheduleItem& item = schedule.items[i];
    switch (item.kind) {
      case ScheduleItem::Kind::kKernel: {
        const absl::Status status = RunKernel(item, *kernels[i], variables);
        if (!status.ok()) return Annotated(status, absl::StrCat("kernel ", kernels[i]->name));
        break;
      }
      case ScheduleItem::Kind::kCopy: {
        BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<DeviceMemory> to, MemoryOf(*item.buffers[0]));
        BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<DeviceMemory> from,
                               MemoryOf(*item.buffers[1]));
        const int64_t start_ns = MonotonicNanoseconds();
        BEAMD_RETURN_IF_ERROR(CopyMemory(*to, *from, item.buffers[0]->size_bytes()));
        NoteRun(nullptr, item, start_ns, absl::Nanoseconds(MonotonicNanoseconds() - start_ns));
        break;
      }
      case ScheduleItem::Kind::kView:
        break;  // its buffer names its parent
    }
  }
  return absl::OkStatus();
}

absl::Status Runtime::RunKernel(const ScheduleItem& item, const CompiledKernel& kernel,
                                const VariableValues& variables) {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                         LaunchVariables(kernel.image, variables));
  std::vector<std::shared_ptr<DeviceMemory>> held;
  std::vector<Buffer*> buffers;
  for (const KernelImage::Buffer& use : kernel.image.buffers) {
    BEAMD_ASSIGN_OR_RETURN(held.emplace_back(),
                           MemoryOf(*item.buffers[static_cast<size_t>(use.slot)]));
    buffers.push_back(&held.back()->buffer());
  }
  Launch launch;
  launch.buffers = buffers;
  launch.variables = values;
  launch.end = kernel.image.slices;
  const int64_t start_ns = MonotonicNanoseconds();
  BEAMD_ASSIGN_OR_RETURN(const absl::Duration time,
                         kernel.device->device().Run(*kernel.executable, launch));
  NoteRun(&kernel, item, start_ns, time);
  return absl::OkStatus();
}

void Runtime::NoteRun(const CompiledKernel* kernel, const ScheduleItem& item, int64_t start_ns,
                      absl::Duration time) {
  const double ops = kernel != nullptr ? kernel->image.compute_ops : 0;
  const double bytes =
      kernel != nullptr ? kernel->image.bytes : static_cast<double>(item.buffers[0]->size_bytes());
  if (kernel != nullptr) counters_->AddKernels(1, ops, bytes, time);
  if (profile_ == nullptr && !logs_kernels()) return;
  const std::string name(kernel != nullptr ? kernel->name : KindName(item.kind));
  if (profile_ != nullptr) {
    profile_->Add({.name = name,
                   .category = kernel != nullptr ? "kernel" : "copy",
                   .start_ns = start_ns,
                   .duration_ns = absl::ToInt64Nanoseconds(time),
                   .ops = ops,
                   .bytes = bytes});
  }
  if (!logs_kernels()) return;
  const Counts counts = counters_->Get();
  const double ns = std::max(absl::ToDoubleNanoseconds(time), 1.0);
  log_ << absl::StrFormat(
      "*** %-8s %5d %-36s arg %2d mem %7.3f GB tm %10.2f us / %10.2f ms (%8.2f GFLOPS %8.2f "
      "GB/s)\n",
      item.device(), counts.kernels, name, item.buffers.size(),
      static_cast<double>(counts.memory_bytes) * 1e-9, ns * 1e-3,
      absl::ToDoubleMilliseconds(counts.time), ops / ns, bytes / ns);
}

absl::Status Runtime::BeginRecording(Recording* recording) {
  if (recording_ != nullptr) {
    return absl::FailedPreconditionError("a plan is captured already: plans don't nest");
  }
  recording_ = recording;
  return absl::OkStatus();
}

}  // namespace beamd

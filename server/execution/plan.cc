#include "server/execution/plan.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/option.h"
#include "engine/base/status.h"
#include "engine/lazy/fresh_values.h"

namespace beamd {
namespace {

// Notes what a runtime does for as long as it lives.
class RecordingScope {
 public:
  explicit RecordingScope(Runtime& runtime) : runtime_(runtime) {}
  ~RecordingScope() { runtime_.EndRecording(); }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  Runtime& runtime_;
};

absl::Status InputError(size_t i, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("input ", i, " of the plan ", what));
}

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("(",
                      absl::StrJoin(shape, ", ",
                                    [](std::string* out, const SInt& size) {
                                      absl::StrAppend(out, ToString(size));
                                    }),
                      ")");
}

// What only the plan sees: computed by it before it is read, and held by nothing but the recording.
// A window keeps what it is a window of.
std::vector<std::shared_ptr<TensorBuffer>> InternalBuffers(const Recording& recording) {
  absl::flat_hash_map<const TensorBuffer*, int64_t> handles;
  absl::flat_hash_set<const TensorBuffer*> taken;
  for (const RecordedItem& recorded : recording.items) {
    for (const std::shared_ptr<TensorBuffer>& buffer : recorded.item.buffers) {
      ++handles[buffer.get()];
      if (buffer->parent != nullptr) taken.insert(buffer->parent.get());
    }
  }
  std::vector<std::shared_ptr<TensorBuffer>> internal;
  for (const RecordedItem& recorded : recording.items) {
    for (const std::shared_ptr<TensorBuffer>& buffer : recorded.item.buffers) {
      if (recording.fresh.contains(buffer.get()) && taken.insert(buffer.get()).second &&
          buffer.use_count() == handles.at(buffer.get())) {
        internal.push_back(buffer);
      }
    }
  }
  return internal;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> Plan::Capture(Runtime& runtime,
                                                    std::span<const LazyBuffer> inputs,
                                                    const Function& function) {
  if (runtime.is_recording()) {
    return absl::FailedPreconditionError("a plan is captured already: plans don't nest");
  }
  BEAMD_RETURN_IF_ERROR(runtime.Realize(inputs));
  std::unique_ptr<Plan> plan(new Plan(runtime));
  BEAMD_RETURN_IF_ERROR(plan->AddInputs(inputs));
  Recording recording;
  {
    BEAMD_RETURN_IF_ERROR(runtime.BeginRecording(&recording));
    const RecordingScope scope(runtime);
    // What the caller holds from an earlier call is computed again: it is part of the plan.
    std::optional<FreshValuesScope> fresh;
    if (!inputs.empty()) fresh.emplace(inputs[0].context());
    BEAMD_ASSIGN_OR_RETURN(plan->outputs_, function());
    BEAMD_RETURN_IF_ERROR(runtime.Realize(plan->outputs_));
  }
  BEAMD_RETURN_IF_ERROR(plan->Resolve(std::move(recording), inputs));
  return plan;
}

absl::Status Plan::AddInputs(std::span<const LazyBuffer> inputs) {
  absl::flat_hash_map<const TensorBuffer*, size_t> seen;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const LazyBuffer& input = inputs[i];
    const std::shared_ptr<TensorBuffer>& buffer = input.base().buffer();
    if (input.base().op() == Op::kConst || buffer == nullptr) {
      return InputError(i, "is a constant, which a plan can't exchange: make it contiguous");
    }
    if (const auto [it, fresh] = seen.emplace(buffer.get(), i); !fresh) {
      return InputError(i, absl::StrCat("lies in the buffer of input ", it->second,
                                        ": which of them a kernel reads can't be told"));
    }
    inputs_.push_back({.st = input.st(),
                       .dtype = input.dtype(),
                       .device = input.device(),
                       .pointer = buffer->pointer(),
                       .size_elements = buffer->size_elements});
  }
  next_.resize(inputs.size());
  return absl::OkStatus();
}

absl::Status Plan::Resolve(Recording recording, std::span<const LazyBuffer> inputs) {
  Schedule whole;
  whole.internal =
      InternalBuffers(recording);  // before there are more handles than the recording's
  for (const RecordedItem& recorded : recording.items) whole.items.push_back(recorded.item);
  memory_plan_ = PlanMemory(whole);

  absl::flat_hash_map<const TensorBuffer*, size_t> input_of;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorBuffer& buffer = *inputs[i].base().buffer();
    input_of[&buffer] = i;
    BEAMD_ASSIGN_OR_RETURN(inputs_[i].source, runtime_.MemoryOf(buffer));
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const auto it = input_of.find(outputs_[k].base().buffer().get());
    if (it != input_of.end()) inputs_[it->second].outputs.push_back(k);
  }

  // What was computed in memory of its own moves into the arenas.
  std::vector<std::shared_ptr<DeviceMemory>> arenas;
  for (const MemoryPlan::Arena& arena : memory_plan_.arenas) {
    BEAMD_ASSIGN_OR_RETURN(const std::shared_ptr<OpenedDevice> device,
                           runtime_.DeviceNamed(arena.device));
    BEAMD_ASSIGN_OR_RETURN(arenas.emplace_back(), device->Allocate(arena.size_bytes));
  }
  for (const std::shared_ptr<TensorBuffer>& buffer : whole.internal) {
    const auto it = memory_plan_.places.find(buffer.get());
    if (it == memory_plan_.places.end()) continue;
    BEAMD_ASSIGN_OR_RETURN(buffer->memory,
                           DeviceMemory::Window(arenas[static_cast<size_t>(it->second.arena)],
                                                it->second.offset_bytes, buffer->size_bytes()));
  }

  // Finds the memory of a buffer and notes, where it is an input's, that `use` is one.
  const auto locate = [&](TensorBuffer& buffer, bool written,
                          Use use) -> absl::StatusOr<std::shared_ptr<DeviceMemory>> {
    BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<DeviceMemory> memory, runtime_.MemoryOf(buffer));
    auto it = input_of.find(&buffer);
    if (it == input_of.end() && buffer.parent != nullptr) {
      it = input_of.find(buffer.parent.get());
      use.offset_bytes = buffer.offset_bytes;
    }
    if (it == input_of.end()) {
      own_[&memory->whole()] |= written;
      held_.push_back(memory);
    } else {
      inputs_[it->second].uses.push_back(use);
      inputs_[it->second].written |= written;
    }
    return memory;
  };
  std::map<std::string, std::vector<Use>> variables;
  for (RecordedItem& recorded : recording.items) {
    const ScheduleItem& item = recorded.item;
    Step step;
    step.item = items_.size();
    if (item.kind == ScheduleItem::Kind::kKernel) {
      step.kernel = recorded.kernel.get();
      const KernelImage& image = step.kernel->image;
      std::vector<std::shared_ptr<DeviceMemory>> memories;
      std::vector<Buffer*> buffers;
      for (size_t i = 0; i < image.buffers.size(); ++i) {
        BEAMD_ASSIGN_OR_RETURN(
            memories.emplace_back(),
            locate(*item.buffers[static_cast<size_t>(image.buffers[i].slot)],
                   image.buffers[i].written, {.step = steps_.size(), .index = i}));
        buffers.push_back(&memories.back()->buffer());
      }
      std::vector<int64_t> values;  // any within the bounds: each run sets its own
      for (size_t i = 0; i < image.variables.size(); ++i) {
        values.push_back(image.variables[i].min);
        variables[image.variables[i].name].push_back({.step = steps_.size(), .index = i});
      }
      Launch launch;
      launch.buffers = buffers;
      launch.variables = values;
      launch.end = image.slices;
      absl::StatusOr<std::unique_ptr<PreparedLaunch>> prepared =
          step.kernel->device->device().Prepare(*step.kernel->executable, launch);
      if (!prepared.ok()) {
        return Annotated(prepared.status(), absl::StrCat("kernel ", step.kernel->name));
      }
      step.launch = *std::move(prepared);
      if (!std::ranges::count(devices_, step.kernel->device)) {
        devices_.push_back(step.kernel->device);
      }
      ++kernel_count_;
      ops_ += image.compute_ops;
      bytes_ += image.bytes;
    } else if (item.kind == ScheduleItem::Kind::kCopy) {
      BEAMD_ASSIGN_OR_RETURN(step.to,
                             locate(*item.buffers[0], true, {.step = steps_.size(), .index = 0}));
      BEAMD_ASSIGN_OR_RETURN(step.from,
                             locate(*item.buffers[1], false, {.step = steps_.size(), .index = 1}));
      step.size_bytes = item.buffers[0]->size_bytes();
    } else {
      continue;
    }
    steps_.push_back(std::move(step));
    items_.push_back(std::move(recorded));
  }
  if (steps_.empty()) {
    return absl::FailedPreconditionError("the function computed nothing: there is no plan of it");
  }
  // Windows of inputs are gone: the inputs' own memory takes their place.
  for (const Input& input : inputs_) BEAMD_RETURN_IF_ERROR(SetUses(input, input.source));
  for (auto& [name, uses] : variables) variables_.push_back({.name = name, .uses = uses});
  return absl::OkStatus();
}

absl::Status Plan::CheckInput(size_t i, const LazyBuffer& input) const {
  const Input& want = inputs_[i];
  if (input.dtype() != want.dtype) {
    return InputError(i, absl::StrCat("is ", Name(want.dtype), ", not ", Name(input.dtype())));
  }
  if (input.device() != want.device) {
    return InputError(i, absl::StrCat("is on ", want.device, ", not ", input.device()));
  }
  if (input.shape() != want.st.shape()) {
    return InputError(i, absl::StrCat("has the shape ", ShapeText(want.st.shape()), ", not ",
                                      ShapeText(input.shape())));
  }
  if (input.base().op() == Op::kConst || input.base().buffer() == nullptr) {
    return InputError(i, "is no constant: make it contiguous");
  }
  if (const DType pointer = input.base().buffer()->pointer(); pointer != want.pointer) {
    return InputError(
        i, absl::StrCat("lies in ", ToString(want.pointer), ", not ", ToString(pointer)));
  }
  if (!(input.st() == want.st) || input.base().buffer()->size_elements != want.size_elements) {
    return InputError(i, "is another view of its buffer: make it contiguous");
  }
  return absl::OkStatus();
}

absl::Status Plan::CheckOverlap(size_t i) const {
  const Input& input = inputs_[i];
  const DeviceMemory& whole = next_[i]->whole();
  if (input.written && own_.contains(&whole)) {
    return InputError(i, "is written, and is memory that the plan uses otherwise: clone it");
  }
  for (size_t j = 0; j < inputs_.size(); ++j) {
    if (j != i && &next_[j]->whole() == &whole && (input.written || inputs_[j].written)) {
      return InputError(i, absl::StrCat("shares memory with input ", j,
                                        ", and one of them is written: clone it"));
    }
  }
  return absl::OkStatus();
}

absl::Status Plan::SetUses(const Input& input, const std::shared_ptr<DeviceMemory>& memory) {
  for (const Use& use : input.uses) {
    Step& step = steps_[use.step];
    if (step.launch != nullptr) {
      BEAMD_RETURN_IF_ERROR(step.launch->SetBuffer(use.index, memory->buffer(),
                                                   static_cast<size_t>(use.offset_bytes)));
      continue;
    }
    std::shared_ptr<DeviceMemory>& end = use.index == 0 ? step.to : step.from;
    end = memory;
    if (use.offset_bytes != 0) {
      BEAMD_ASSIGN_OR_RETURN(end, DeviceMemory::Window(memory, use.offset_bytes, step.size_bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status Plan::SetInput(size_t i) {
  Input& input = inputs_[i];
  const int64_t size_bytes = input.size_elements * SizeBytes(input.pointer.scalar);
  if (next_[i] != input.source) {
    const auto own = own_.find(&next_[i]->whole());
    const bool stage = own != own_.end() && own->second;
    if (stage && input.staged == nullptr) {
      BEAMD_ASSIGN_OR_RETURN(input.staged, next_[i]->device().Allocate(size_bytes));
    }
    if (!stage || !input.is_staged) {
      BEAMD_RETURN_IF_ERROR(SetUses(input, stage ? input.staged : next_[i]));
    }
    input.is_staged = stage;
    input.source = next_[i];
  }
  if (!input.is_staged) return absl::OkStatus();
  return CopyMemory(*input.staged, *input.source, size_bytes);
}

absl::Status Plan::SetVariables(const VariableValues& variables) {
  for (Variable& variable : variables_) {
    const auto it = variables.find(variable.name);
    if (it == variables.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable \"", variable.name, "\" has no value: bind it"));
    }
    if (variable.value == it->second) continue;
    variable.value.reset();
    for (const Use& use : variable.uses) {
      BEAMD_RETURN_IF_ERROR(steps_[use.step].launch->SetVariable(use.index, it->second));
    }
    variable.value = it->second;
  }
  return absl::OkStatus();
}

absl::Status Plan::RunStep(Step& step) {
  if (step.launch != nullptr) {
    absl::Status status = step.launch->Start();
    return status.ok() ? status : Annotated(status, absl::StrCat("kernel ", step.kernel->name));
  }
  BEAMD_RETURN_IF_ERROR(step.from->device().device().Wait());
  return CopyMemory(*step.to, *step.from, step.size_bytes);
}

absl::Status Plan::Run(std::span<const LazyBuffer> inputs, const VariableValues& variables) {
  if (runtime_.is_recording()) {
    return absl::FailedPreconditionError("a plan is run while one is captured: plans don't nest");
  }
  if (inputs.size() != inputs_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan takes ", inputs_.size(), " inputs, not ", inputs.size()));
  }
  bool changed = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_realized()) BEAMD_RETURN_IF_ERROR(runtime_.Realize({&inputs[i], 1}));
    BEAMD_RETURN_IF_ERROR(CheckInput(i, inputs[i]));
    BEAMD_ASSIGN_OR_RETURN(next_[i], runtime_.MemoryOf(*inputs[i].base().buffer()));
    changed |= next_[i] != inputs_[i].source;
  }
  for (size_t i = 0; changed && i < inputs.size(); ++i) BEAMD_RETURN_IF_ERROR(CheckOverlap(i));
  BEAMD_RETURN_IF_ERROR(SetVariables(variables));
  for (size_t i = 0; i < inputs.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(SetInput(i));
    if (!changed) continue;
    for (const size_t k : inputs_[i].outputs) {
      outputs_[k] = inputs[i].base().WithView(outputs_[k].st());
    }
  }
  if (runtime_.profile() != nullptr || runtime_.logs_kernels()) {
    for (Step& step : steps_) {
      const int64_t start_ns = MonotonicNanoseconds();
      BEAMD_RETURN_IF_ERROR(RunStep(step));
      if (step.kernel != nullptr) {
        BEAMD_RETURN_IF_ERROR(step.kernel->device->device().Wait());
      }
      runtime_.NoteRun(step.kernel, items_[step.item].item, start_ns,
                       absl::Nanoseconds(MonotonicNanoseconds() - start_ns));
    }
    return absl::OkStatus();
  }
  for (Step& step : steps_) BEAMD_RETURN_IF_ERROR(RunStep(step));
  for (const std::shared_ptr<OpenedDevice>& device : devices_) {
    BEAMD_RETURN_IF_ERROR(device->device().Wait());
  }
  runtime_.counters().AddKernels(kernel_count_, ops_, bytes_, absl::ZeroDuration());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LazyBuffer>> CapturedFunction::Call(std::span<const LazyBuffer> inputs) {
  if (!ran_ || options::kJit == 0) {
    BEAMD_ASSIGN_OR_RETURN(std::vector<LazyBuffer> outputs, function_(inputs));
    BEAMD_RETURN_IF_ERROR(runtime_.Realize(outputs));
    ran_ = true;
    return outputs;
  }
  if (plan_ == nullptr) {
    BEAMD_ASSIGN_OR_RETURN(plan_,
                           Plan::Capture(runtime_, inputs, [&] { return function_(inputs); }));
    return plan_->outputs();
  }
  const LazyBuffer* const any = !inputs.empty()             ? inputs.data()
                                : !plan_->outputs().empty() ? plan_->outputs().data()
                                                            : nullptr;
  BEAMD_RETURN_IF_ERROR(
      plan_->Run(inputs, any != nullptr ? any->context().bindings() : no_variables_));
  return plan_->outputs();
}

void CapturedFunction::Reset() {
  plan_.reset();
  ran_ = false;
}

}  // namespace beamd

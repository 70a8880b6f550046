#include "server/execution/graph_plan.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/profile.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/schedule/memory_plan.h"
#include "engine/shape/verify_tensor.h"
#include "engine/tensor/graph.h"
#include "engine/tensor/graph_gradient.h"
#include "engine/uop/verify.h"
#include "server/execution/kernel_cache.h"

namespace beamd {
namespace {

// A holder of the device gives its turn up after a kernel that ends past this. Where kernels are
// started and not waited for, they count by what each took when the plan first ran.
constexpr int64_t kTurnNanoseconds = 1'000'000;

// Nodes of a graph with its gradients, over those without: engine/tensor/graph_gradient.h.
constexpr int kGradientNodes = 9;

// What stands for the memory of an input until a run brings it.
struct GivenLater final : BufferMemory {};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedKernels>> LoadedKernels::Create(Device& device) {
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<KernelCompiler> compiler,
                         KernelCompiler::Create(device.caps()));
  return std::unique_ptr<LoadedKernels>(new LoadedKernels(device, std::move(compiler)));
}

absl::StatusOr<std::shared_ptr<const LoadedKernels::Loaded>> LoadedKernels::Get(
    const GraphKernel& kernel, const std::vector<Opt>& opts, const KernelImage* image,
    std::optional<KernelImage>& compiled) {
  const std::pair<Digest, std::string> key(kernel.hash, ToString(opts));
  if (const auto it = loaded_.find(key); it != loaded_.end()) {
    if (std::shared_ptr<const Loaded> there = it->second.lock()) return there;
  }
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(Kernel opted, Kernel::Create(graph.Import(kernel.ast), device_.caps()));
  if (!opted.ApplyAll(opts).ok()) {
    BEAMD_ASSIGN_OR_RETURN(opted, Kernel::Create(graph.Import(kernel.ast), device_.caps()));
    BEAMD_RETURN_IF_ERROR(opted.ApplyAll(kernel.heuristic_opts));
    image = nullptr;
  }
  auto loaded = std::make_shared<Loaded>();
  loaded->name = opted.name();
  loaded->opts = opted.applied_opts();
  const std::string what = absl::StrCat("kernel ", loaded->name);
  absl::StatusOr<std::unique_ptr<Executable>> executable = absl::NotFoundError("no image");
  if (image != nullptr) {
    executable = device_.Load(*image);
    if (executable.ok()) loaded->image = *image;
  }
  // An image that doesn't load is as none.
  if (!executable.ok()) {
    absl::StatusOr<CompileResult> result = compiler_->Compile(opted, {});
    if (!result.ok()) return Annotated(result.status(), what);
    executable = device_.Load(result->image);
    if (!executable.ok()) return Annotated(executable.status(), what);
    loaded->image = result->image;
    compiled = std::move(result->image);
  }
  loaded->executable = *std::move(executable);
  loaded->image.code.clear();
  loaded_[key] = loaded;
  return loaded;
}

namespace {

// The BUFFER that an output is: named itself, or by what assigns to it or to a part of it.
UOp InputOf(UOp output) {
  UOp u = output;
  while (u.is(Op::kAssign) ||
         (output.is(Op::kAssign) && u.is(Op::kReshape | Op::kPermute | Op::kShrink | Op::kFlip))) {
    u = u.src(0);
  }
  return u.is(Op::kBuffer) ? u : UOp();
}

// Whether an output is a BUFFER in other shapes only.
bool IsReshaped(UOp output) {
  while (output.is(Op::kReshape)) output = output.src(0);
  return output.is(Op::kBuffer);
}

// The ids of the BUFFERs that the graph writes.
absl::flat_hash_set<uint64_t> Assigned(UOp root) {
  absl::flat_hash_set<uint64_t> ids;
  for (const UOp u : Toposort(root)) {
    if (!u.is(Op::kAssign)) continue;
    if (const UOp target = InputOf(u)) ids.insert(target.data<BufferArg>().id);
  }
  return ids;
}

// The memory that a value shows, through windows, as it was before anything was computed.
const TensorBuffer* ReadBefore(const LazyBuffer& value) {
  LazyBuffer base = value.base();
  while (base.op() == Op::kBufferView) base = base.srcs()[0].base();
  return base.op() == Op::kBuffer ? base.buffer().get() : nullptr;
}

// The same value, computed by a kernel of its own.
LazyBuffer SameBits(const LazyBuffer& value) {
  const Scalar dtype = value.dtype();
  if (dtype == Scalar::kBool) return value.Cast(Scalar::kUint8).Cast(Scalar::kBool).Contiguous();
  const int64_t size = SizeBytes(dtype);
  const Scalar bits = size == 1   ? Scalar::kUint8
                      : size == 2 ? Scalar::kUint16
                      : size == 4 ? Scalar::kUint32
                                  : Scalar::kUint64;
  const Scalar other = size == 1   ? Scalar::kInt8
                       : size == 2 ? Scalar::kInt16
                       : size == 4 ? Scalar::kInt32
                                   : Scalar::kInt64;
  return value.Bitcast(dtype == bits ? other : bits).Bitcast(dtype);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GraphPlan>> GraphPlan::Create(LoadedKernels& kernels,
                                                             const std::string& device, UOp root,
                                                             size_t inputs,
                                                             std::span<const uint64_t> gradients,
                                                             std::span<const UOp> wire_nodes) {
  std::unique_ptr<GraphPlan> plan(new GraphPlan(kernels, device));
  BEAMD_RETURN_IF_ERROR(plan->Schedule(root, inputs, gradients, wire_nodes));
  return plan;
}

absl::Status GraphPlan::Schedule(UOp root, size_t inputs, std::span<const uint64_t> gradients,
                                 std::span<const UOp> wire_nodes) {
  absl::flat_hash_map<uint64_t, Tensor> given;
  std::vector<UOp> nodes(wire_nodes.begin(), wire_nodes.end());
  if (nodes.empty()) nodes = Toposort(root);
  // Shapes of inputs are what their nodes say: the graph is verified before they are looked at.
  TensorGraphLimits limits;
  limits.max_nodes = std::max<int>(limits.max_nodes, static_cast<int>(nodes.size()));
  if (gradients.empty()) {
    BEAMD_RETURN_IF_ERROR(VerifyTensorGraph(root, nodes, limits, context_.device()).status());
  } else {
    BEAMD_ASSIGN_OR_RETURN(root, GradientGraph(root, gradients, nodes, limits, context_.device()));
    limits.max_nodes *= kGradientNodes;
  }
  held_.resize(inputs);
  for (const UOp u : nodes) {
    if (!u.is(Op::kBuffer)) continue;
    const auto& arg = u.data<BufferArg>();
    if (arg.id >= inputs) {
      return absl::InvalidArgumentError(absl::StrCat("BUFFER ", arg.id, " is none of ", inputs));
    }
    if (held_[arg.id] != nullptr) continue;
    auto buffer = std::make_shared<TensorBuffer>();
    buffer->device = context_.device();
    buffer->dtype = u.scalar();
    buffer->size_elements = 1;
    Shape shape;
    for (const IntOrSrc& size : arg.shape) {
      if (size.src >= 0) {
        return InvalidArgument("the shape of a BUFFER is numbers",
                               {.reason = "SYMBOLIC_BUFFER", .field = "buffer_arg.shape"});
      }
      shape.emplace_back(size.value);
      buffer->size_elements *= size.value;
    }
    buffer->memory = std::make_shared<GivenLater>();
    given.emplace(arg.id, Tensor(LazyBuffer::FromBuffer(context_, buffer, shape)));
    memory_of_[buffer.get()] = arg.id;
    held_[arg.id] = std::move(buffer);
  }
  memory_count_ = inputs;
  std::vector<LazyBuffer> roots;
  {
    BEAMD_ASSIGN_OR_RETURN(const GraphTensors tensors,
                           TensorsFromGraph(context_, root, given, nodes, limits));
    for (const Tensor& output : tensors.outputs) {
      if (!output.ok()) return output.status();
      roots.push_back(output.lazydata());
    }
  }
  BEAMD_RETURN_IF_ERROR(FindOutputs(roots, nodes, root));
  BEAMD_ASSIGN_OR_RETURN(schedule_, CreateSchedule(roots));
  roots.clear();
  BEAMD_ASSIGN_OR_RETURN(kernels_, KernelsOf(schedule_, loaded_.device().caps(), graph_,
                                             UntunedOpts, &kernel_of_item_));
  const MemoryPlan plan = PlanMemory(schedule_);
  for (const MemoryPlan::Arena& arena : plan.arenas) scratch_bytes_ += arena.size_bytes;
  absl::flat_hash_set<const TensorBuffer*> counted;
  for (const ScheduleItem& item : schedule_.items) {
    launches_ += item.kind == ScheduleItem::Kind::kKernel ? 1 : 0;
    if (item.kind == ScheduleItem::Kind::kCopy) {
      return absl::UnimplementedError("a copy to another device: a session has one");
    }
    for (const std::shared_ptr<TensorBuffer>& buffer : item.buffers) {
      const TensorBuffer& whole = buffer->parent != nullptr ? *buffer->parent : *buffer;
      if (memory_of_.contains(&whole) || plan.places.contains(&whole)) continue;
      if (counted.insert(&whole).second) scratch_bytes_ += whole.size_bytes();
    }
  }
  return absl::OkStatus();
}

bool GraphPlan::IsMemory(const TensorBuffer& buffer) const { return memory_of_.contains(&buffer); }

absl::Status GraphPlan::FindOutputs(std::vector<LazyBuffer>& roots, std::span<const UOp> nodes,
                                    UOp root) {
  const std::span<const UOp> sources = root.is(Op::kSink) ? root.src() : std::span(&root, 1);
  absl::flat_hash_set<const TensorBuffer*> overwritten;
  for (const uint64_t id : Assigned(root)) overwritten.insert(held_[id].get());
  for (size_t i = 0; i < roots.size(); ++i) {
    const auto fault = [&](absl::string_view reason, absl::string_view what) {
      const auto at = std::find(nodes.begin(), nodes.end(), sources[i]);
      return NodeError(at - nodes.begin(), sources[i].op(),
                       absl::StrCat("is output ", i, ", ", what),
                       {.reason = std::string(reason), .field = "src"});
    };
    LazyBuffer& value = roots[i];
    Output output{.dtype = value.dtype()};
    if (const UOp input = InputOf(sources[i])) {
      const auto& arg = input.data<BufferArg>();
      output.memory = arg.id;
      output.elements = 1;
      for (const IntOrSrc& size : arg.shape) {
        output.shape.push_back(size.value);
        output.elements *= size.value;
      }
      value = value.base();
      outputs_.push_back(std::move(output));
      continue;
    }
    bool symbolic = false;
    for (const SInt& size : value.shape()) {
      symbolic |= !size.is_number();
      output.shape.push_back(size.max());
    }
    if (symbolic) output.sizes.assign(value.shape().begin(), value.shape().end());
    output.elements = value.size().max();
    if (output.elements == 0) return fault("EMPTY_OUTPUT", "which has no element");
    const bool whole = value.st().contiguous() && value.size() == value.base().size() &&
                       value.base().op() != Op::kConst;
    if (!whole) {
      value = value.Contiguous();
      if (value.base().op() == Op::kBufferView && !IsMemory(*value.base().buffer()->parent)) {
        value = SameBits(value);  // a part of what the plan keeps for itself
      }
    }
    // Only the memory itself is what it holds in the end.
    if (!IsReshaped(sources[i]) && overwritten.contains(ReadBefore(value))) value = SameBits(value);
    // What lies in an input or in another output gets memory of its own, and that content in the
    // end.
    const TensorBuffer& buffer = *value.base().buffer();
    const TensorBuffer& from = buffer.parent != nullptr ? *buffer.parent : buffer;
    if (IsMemory(from)) {
      copies_.push_back({.from = memory_of_.at(&from),
                         .offset_bytes = static_cast<size_t>(buffer.offset_bytes),
                         .to = memory_count_,
                         .size_bytes = static_cast<size_t>(buffer.size_bytes())});
    } else {
      memory_of_.emplace(&buffer, memory_count_);
      held_.push_back(value.base().buffer());
    }
    output.memory = memory_count_++;
    outputs_.push_back(std::move(output));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GraphPlan::Built>> GraphPlan::Build(std::span<const Choice> choices) {
  BEAMD_CHECK(choices.size() == kernels_.size(), "a choice a kernel");
  BEAMD_CHECK(code_.empty(), "a plan is built once");
  std::vector<Built> built;
  std::vector<std::shared_ptr<const LoadedKernels::Loaded>> code;
  for (size_t i = 0; i < kernels_.size(); ++i) {
    Built& one = built.emplace_back();
    BEAMD_ASSIGN_OR_RETURN(code.emplace_back(), loaded_.Get(kernels_[i], choices[i].opts,
                                                            choices[i].image, one.compiled));
    one.name = code.back()->name;
    one.opts = code.back()->opts;
  }

  Device& device = loaded_.device();
  const MemoryPlan plan = PlanMemory(schedule_);
  std::vector<Buffer*> arenas;
  for (const MemoryPlan::Arena& arena : plan.arenas) {
    BEAMD_ASSIGN_OR_RETURN(scratch_.emplace_back(),
                           device.Allocate(static_cast<size_t>(arena.size_bytes)));
    arenas.push_back(scratch_.back().get());
  }
  absl::flat_hash_map<const TensorBuffer*, Buffer*> own;
  // Memory of the plan's own, `offset_bytes` into the buffer.
  const auto find_own = [&](const TensorBuffer& whole, int64_t offset_bytes,
                            int64_t size_bytes) -> absl::StatusOr<Buffer*> {
    if (const auto place = plan.places.find(&whole); place != plan.places.end()) {
      BEAMD_ASSIGN_OR_RETURN(
          windows_.emplace_back(),
          device.View(*arenas[static_cast<size_t>(place->second.arena)],
                      static_cast<size_t>(place->second.offset_bytes + offset_bytes),
                      static_cast<size_t>(size_bytes)));
      return windows_.back().get();
    }
    Buffer*& memory = own[&whole];
    if (memory == nullptr) {
      BEAMD_ASSIGN_OR_RETURN(scratch_.emplace_back(),
                             device.Allocate(static_cast<size_t>(whole.size_bytes())));
      memory = scratch_.back().get();
    }
    if (offset_bytes == 0) return memory;
    BEAMD_ASSIGN_OR_RETURN(
        windows_.emplace_back(),
        device.View(*memory, static_cast<size_t>(offset_bytes), static_cast<size_t>(size_bytes)));
    return windows_.back().get();
  };
  std::map<std::string, Variable> variables;
  for (size_t i = 0; i < schedule_.items.size(); ++i) {
    const ScheduleItem& item = schedule_.items[i];
    if (item.kind != ScheduleItem::Kind::kKernel) continue;  // a view: its buffer names its parent
    Step step{.kernel = kernel_of_item_[i]};
    const KernelImage& image = code[static_cast<size_t>(step.kernel)]->image;
    for (size_t k = 0; k < image.buffers.size(); ++k) {
      const TensorBuffer& buffer = *item.buffers[static_cast<size_t>(image.buffers[k].slot)];
      const TensorBuffer& whole = buffer.parent != nullptr ? *buffer.parent : buffer;
      const int64_t offset = buffer.parent != nullptr ? buffer.offset_bytes : 0;
      Buffer*& memory = step.buffers.emplace_back();
      if (const auto given = memory_of_.find(&whole); given != memory_of_.end()) {
        uses_.push_back({.step = steps_.size(),
                         .index = k,
                         .memory = given->second,
                         .offset_bytes = static_cast<size_t>(offset)});
      } else {
        BEAMD_ASSIGN_OR_RETURN(memory, find_own(whole, offset, buffer.size_bytes()));
      }
    }
    for (size_t k = 0; k < image.variables.size(); ++k) {
      Variable& variable = variables[image.variables[k].name];
      variable.name = image.variables[k].name;
      variable.uses.emplace_back(steps_.size(), k);
    }
    steps_.push_back(std::move(step));
  }
  for (auto& [name, variable] : variables) variables_.push_back(std::move(variable));
  code_ = std::move(code);
  return built;
}

absl::Status GraphPlan::PrepareAll(std::span<Buffer* const> memories) {
  std::vector<std::vector<std::unique_ptr<Buffer>>> windows(steps_.size());
  for (const Use& use : uses_) {
    Step& step = steps_[use.step];
    step.buffers[use.index] = memories[use.memory];
    if (use.offset_bytes == 0) continue;
    BEAMD_ASSIGN_OR_RETURN(
        windows[use.step].emplace_back(),
        loaded_.device().View(*memories[use.memory], use.offset_bytes,
                              memories[use.memory]->size_bytes() - use.offset_bytes));
    step.buffers[use.index] = windows[use.step].back().get();
  }
  for (Step& step : steps_) {
    const LoadedKernels::Loaded& code = *code_[static_cast<size_t>(step.kernel)];
    std::vector<int64_t> values;
    for (const KernelImage::Variable& variable : code.image.variables) {
      values.push_back(variable.min);
    }
    Launch launch;
    launch.buffers = step.buffers;
    launch.variables = values;
    launch.end = code.image.slices;
    absl::StatusOr<std::unique_ptr<PreparedLaunch>> prepared =
        loaded_.device().Prepare(*code.executable, launch);
    if (!prepared.ok()) return Annotated(prepared.status(), absl::StrCat("kernel ", code.name));
    step.launch = *std::move(prepared);
  }
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status GraphPlan::SetVariables(const VariableValues& variables) {
  for (Variable& variable : variables_) {
    std::optional<int64_t> value;
    if (const auto given = variables.find(variable.name); given != variables.end()) {
      value = given->second;
    } else if (const auto bound = context_.bindings().find(variable.name);
               bound != context_.bindings().end()) {
      value = bound->second;
    } else {
      return WithDetail(absl::FailedPreconditionError(
                            absl::StrCat("variable \"", variable.name, "\" has no value")),
                        {.reason = "NO_VALUE", .field = "variables"});
    }
    if (variable.value == value) continue;
    variable.value.reset();
    for (const auto& [step, index] : variable.uses) {
      BEAMD_RETURN_IF_ERROR(steps_[step].launch->SetVariable(index, *value));
    }
    variable.value = value;
  }
  return absl::OkStatus();
}

absl::Status GraphPlan::FindShapes(const VariableValues& variables, Result& result) const {
  const bool symbolic = std::any_of(outputs_.begin(), outputs_.end(),
                                    [](const Output& output) { return !output.sizes.empty(); });
  if (!symbolic) return absl::OkStatus();
  VariableValues values = context_.bindings();
  for (const auto& [name, value] : variables) values[name] = value;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    std::vector<int64_t>& shape = result.shapes.emplace_back(outputs_[i].shape);
    for (size_t axis = 0; axis < outputs_[i].sizes.size(); ++axis) {
      const SInt& size = outputs_[i].sizes[axis];
      if (size.is_number()) continue;
      BEAMD_ASSIGN_OR_RETURN(shape[axis], SizeValue(size.expr(), values));
      if (shape[axis] > 0) continue;
      return InvalidArgument(
          absl::StrCat("output ", i, " has no element with these values of its variables"),
          {.reason = "EMPTY_OUTPUT", .field = "variables"});
    }
  }
  return absl::OkStatus();
}

absl::Status GraphPlan::Run(std::span<Buffer* const> memories, const VariableValues& variables,
                            const RunOptions& options, Result& result) {
  result = {};
  DeviceTurn* const turn = options.turn;
  if (memories.size() != memory_count_) return absl::InternalError("a plan's memories are amiss");
  if (!prepared_) BEAMD_RETURN_IF_ERROR(PrepareAll(memories));
  for (const Use& use : uses_) {
    BEAMD_RETURN_IF_ERROR(
        steps_[use.step].launch->SetBuffer(use.index, *memories[use.memory], use.offset_bytes));
  }
  BEAMD_RETURN_IF_ERROR(SetVariables(variables));
  BEAMD_RETURN_IF_ERROR(FindShapes(variables, result));

  Device& device = loaded_.device();
  const bool waits =
      device.caps().kind != TargetKind::kCpu;  // launches may return before their end
  int64_t began_ns = 0;
  const auto take = [&] {
    if (turn != nullptr && !turn->TryTake()) {
      const int64_t start_ns = MonotonicNanoseconds();
      turn->Take();
      result.wait_s += static_cast<double>(MonotonicNanoseconds() - start_ns) * 1e-9;
    }
    began_ns = MonotonicNanoseconds();
  };
  const auto give = [&]() -> absl::Status {
    absl::Status done = waits ? device.Wait() : absl::OkStatus();
    result.run_s += static_cast<double>(MonotonicNanoseconds() - began_ns) * 1e-9;
    if (turn != nullptr) turn->Give();
    return done;
  };
  const auto check = [&]() -> absl::Status {
    if (!options.stops || !options.stops()) return absl::OkStatus();
    return absl::CancelledError("nobody waits for the run any more");
  };
  if (options.profile) result.launches.reserve(steps_.size());
  take();
  double started_s = 0;  // of kernels that are not waited for
  absl::Status status = check();
  result.began = status.ok();
  for (size_t i = 0; i < steps_.size() && status.ok(); ++i) {
    Step& step = steps_[i];
    if (options.profile || (waits && step.seconds < 0)) {
      const absl::StatusOr<absl::Duration> took = step.launch->Run();
      status = took.status();
      if (took.ok()) {
        step.seconds = absl::ToDoubleSeconds(*took);
        if (options.profile) {
          result.launches.push_back({.kernel = step.kernel, .seconds = step.seconds});
        }
      }
    } else {
      status = step.launch->Start();
      if (waits) started_s += step.seconds;
    }
    if (!status.ok()) {
      status = Annotated(status, absl::StrCat("kernel ", code_[step.kernel]->name));
      break;
    }
    const int64_t held_ns =
        std::max(MonotonicNanoseconds() - began_ns, static_cast<int64_t>(started_s * 1e9));
    if (i + 1 == steps_.size()) break;
    if (held_ns > kTurnNanoseconds) {
      status = give();
      take();
      started_s = 0;
    }
    if (status.ok()) status = check();
  }
  for (const Copy& copy : copies_) {
    if (status.ok()) status = CopyBytes(copy, memories);
  }
  const absl::Status done = give();
  return status.ok() ? done : status;
}

absl::Status GraphPlan::CopyBytes(const Copy& copy, std::span<Buffer* const> memories) {
  Buffer &from = *memories[copy.from], &to = *memories[copy.to];
  if (loaded_.device().caps().kind != TargetKind::kCpu) {
    BEAMD_RETURN_IF_ERROR(loaded_.device().Wait());
  }
  if (from.mapped() != nullptr && to.mapped() != nullptr) {
    const auto* const source = static_cast<const std::byte*>(from.mapped()) + copy.offset_bytes;
    std::memcpy(to.mapped(), source, copy.size_bytes);
    return absl::OkStatus();
  }
  std::vector<std::byte> bytes(copy.size_bytes);
  BEAMD_RETURN_IF_ERROR(from.Read(copy.offset_bytes, bytes));
  return to.Write(0, bytes);
}

}  // namespace beamd

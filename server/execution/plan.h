// What a function computed from its inputs, kept for computing it again from others: the same
// kernels on the same memory, without making lazy buffers, scheduling or looking anything up.
//
//   CapturedFunction step(runtime, [&](std::span<const LazyBuffer> in) { ... return outputs; });
//   for (...) step.Call({x, y});  // runs; captures; replays from the third call on
//
// What the function assigns to (weights, its inputs) is assigned in each run. What it reads that is
// no input is read from where it lay when the plan was captured; decisions that it takes and data
// that it makes from host memory stay as they were then.
//
// Answers to tinygrad 0.10.0 engine/jit.py, TinyJit. Differs: memory between several realisations in
// the function is planned as one; an input that is an output of the run before is copied first
// (there it is overwritten while it is read); reading a value inside is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/dtype/dtype.h"
#include "engine/lazy/lazy_buffer.h"
#include "engine/schedule/memory_plan.h"
#include "engine/shape/shape_tracker.h"
#include "engine/uop/view_index.h"
#include "server/execution/runtime.h"

namespace beamd {

// Not thread-safe. The runtime outlives it, and so does the inputs' context.
class Plan {
 public:
  using Function = std::function<absl::StatusOr<std::vector<LazyBuffer>>()>;

  // Realises `inputs`, calls `function`, which uses them, realises what it returns, and keeps what
  // was run for all that. The run counts: what is assigned is assigned.
  // InvalidArgument: an input is a constant, or is there twice; FailedPrecondition: nothing was
  // computed, or a value was read; what the function returns, and what realising it says.
  static absl::StatusOr<std::unique_ptr<Plan>> Capture(Runtime& runtime,
                                                       std::span<const LazyBuffer> inputs,
                                                       const Function& function);

  // Runs all again on `inputs`, realised where they aren't, with these values of the variables.
  // outputs() hold the results then.
  // InvalidArgument, before anything is run: the number, shape, dtype or device of the inputs, a
  // variable outside its bounds, an input that the plan writes and that is other memory of the
  // plan; FailedPrecondition: a variable without a value.
  absl::Status Run(std::span<const LazyBuffer> inputs, const VariableValues& variables);

  // Of the function; their buffers are the same in each run. One that is an input, or a view of it,
  // is that of the last run.
  const std::vector<LazyBuffer>& outputs() const { return outputs_; }
  int kernel_count() const { return kernel_count_; }
  // Of all that only the plan sees.
  const MemoryPlan& memory_plan() const { return memory_plan_; }

 private:
  // Where an input or a variable goes.
  struct Use {
    size_t step = 0, index = 0;
    int64_t offset_bytes = 0;
  };
  struct Step {
    const CompiledKernel* kernel = nullptr;  // null: a copy
    std::unique_ptr<PreparedLaunch> launch;
    std::shared_ptr<DeviceMemory> to, from;  // of a copy
    int64_t size_bytes = 0;
    size_t item = 0;
  };
  struct Input {
    ShapeTracker st;
    Scalar dtype = Scalar::kVoid;
    std::string device;
    DType pointer;              // of the whole buffer: an image's texels aren't of dtype
    int64_t size_elements = 0;  // likewise
    bool written = false;
    std::vector<Use> uses;
    std::vector<size_t> outputs;           // that are this input, or views of it
    std::shared_ptr<DeviceMemory> source;  // what the last run was given
    std::shared_ptr<DeviceMemory> staged;  // where a source that the plan writes is copied to
    bool is_staged = false;
  };
  struct Variable {
    std::string name;
    std::optional<int64_t> value;
    std::vector<Use> uses;
  };

  explicit Plan(Runtime& runtime) : runtime_(runtime) {}
  absl::Status AddInputs(std::span<const LazyBuffer> inputs);
  absl::Status Resolve(Recording recording, std::span<const LazyBuffer> inputs);
  absl::Status CheckInput(size_t i, const LazyBuffer& input) const;
  // InvalidArgument where input i shares memory that is written.
  absl::Status CheckOverlap(size_t i) const;
  absl::Status SetInput(size_t i);
  absl::Status SetUses(const Input& input, const std::shared_ptr<DeviceMemory>& memory);
  absl::Status SetVariables(const VariableValues& variables);
  absl::Status RunStep(Step& step);

  Runtime& runtime_;
  std::vector<Input> inputs_;
  std::vector<std::shared_ptr<DeviceMemory>> next_;  // what this run is given, an input
  std::vector<Variable> variables_;
  std::vector<LazyBuffer> outputs_;
  // Memory that is used and no input's, windows counted as the whole: whether it is written.
  absl::flat_hash_map<const DeviceMemory*, bool> own_;
  std::vector<std::shared_ptr<DeviceMemory>> held_;
  std::vector<std::shared_ptr<OpenedDevice>> devices_;
  std::vector<RecordedItem> items_;  // keeps kernels; says what to print
  std::vector<Step> steps_;          // goes before what it runs on
  MemoryPlan memory_plan_;
  int kernel_count_ = 0;
  double ops_ = 0, bytes_ = 0;
};

// A function that runs as it is at first, is captured at its second call, and is replayed from then
// on (0.10.0: TinyJit). The first call is for what only happens once: making weights and state.
// JIT 0: it runs as it is each time.
class CapturedFunction {
 public:
  using Function =
      std::function<absl::StatusOr<std::vector<LazyBuffer>>(std::span<const LazyBuffer>)>;

  CapturedFunction(Runtime& runtime, Function function)
      : runtime_(runtime), function_(std::move(function)) {}

  // What the function returns, realised. From the third call on they are Plan::outputs: they hold
  // the results until the next call. Variables have the values that their context binds.
  absl::StatusOr<std::vector<LazyBuffer>> Call(std::span<const LazyBuffer> inputs);
  // Forgets what it captured.
  void Reset();
  // Null until there is one.
  const Plan* plan() const { return plan_.get(); }

 private:
  Runtime& runtime_;
  const Function function_;
  bool ran_ = false;
  std::unique_ptr<Plan> plan_;
  const VariableValues no_variables_;
};

}  // namespace beamd

// A client's tensor graph, scheduled and compiled once, then run as often as is wished on memory
// that it is given: what a session's runner keeps for each structure.
//
//   GraphPlan::Create -> kernels() -> Build (opts, or images that are there) -> Run, Run, ...
//
// A run makes no lazy buffers, schedules nothing and looks nothing up: for each kernel it sets the
// addresses that changed, and calls.
//
// The choice not taken, Plan (plan.h) captured from a run that counts, can't tell what is to be
// compiled before it runs, and gives its outputs in memory of its own.
#pragma once

#include <cstddef>
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
#include "absl/time/time.h"
#include "devices/device.h"
#include "devices/device_turn.h"
#include "engine/base/hash.h"
#include "engine/dtype/dtype.h"
#include "engine/kernel/opt.h"
#include "engine/lazy/lazy_context.h"
#include "engine/llvm/compiler.h"
#include "engine/llvm/kernel_image.h"
#include "engine/schedule/schedule.h"
#include "engine/shape/sint.h"
#include "engine/uop/uop.h"
#include "engine/uop/view_index.h"
#include "server/execution/schedule_graph.h"

namespace beamd {

// Kernels that are loaded, for plans that share some. Not thread-safe.
class LoadedKernels {
 public:
  // `device` outlives it.
  static absl::StatusOr<std::unique_ptr<LoadedKernels>> Create(Device& device);

  struct Loaded {
    std::string name;
    std::vector<Opt> opts;
    KernelImage image;  // without its code
    std::unique_ptr<Executable> executable;
  };
  // The kernel under these opts, or the untuned ones where those don't apply. Loads `image` where
  // it isn't null; else compiles, and leaves the image there.
  absl::StatusOr<std::shared_ptr<const Loaded>> Get(const GraphKernel& kernel,
                                                    const std::vector<Opt>& opts,
                                                    const KernelImage* image,
                                                    std::optional<KernelImage>& compiled);
  Device& device() const { return device_; }

 private:
  LoadedKernels(Device& device, std::unique_ptr<KernelCompiler> compiler)
      : device_(device), compiler_(std::move(compiler)) {}

  Device& device_;
  const std::unique_ptr<KernelCompiler> compiler_;
  absl::flat_hash_map<std::pair<Digest, std::string>, std::weak_ptr<const Loaded>> loaded_;
};

// Not thread-safe.
class GraphPlan {
 public:
  struct Output {
    // Which memory of Run holds it, row-major: an input where the graph's output is a BUFFER or
    // assigns to one, then all of it; else one of its own.
    size_t memory = 0;
    Scalar dtype = Scalar::kVoid;
    // Where a variable gives a size: the largest.
    std::vector<int64_t> shape;
    // Empty where the shape is numbers; else what gives each.
    std::vector<SInt> sizes;
    int64_t elements = 0;  // of the memory, which is dense from its beginning
    int64_t size_bytes() const { return elements * SizeBytes(dtype); }
  };

  // `root` is a tensor graph whose BUFFER ids are below `inputs`; behind its outputs come the
  // gradients of the first with respect to the inputs that `gradients` names (GradientGraph).
  // `wire_nodes` as TensorsFromGraph's. InvalidArgument naming the node: what TensorsFromGraph
  // refuses; an output that has no element; FailedPrecondition:
  // what CreateSchedule refuses. `device` is the name that the graph's tensors call theirs by.
  static absl::StatusOr<std::unique_ptr<GraphPlan>> Create(LoadedKernels& kernels,
                                                           const std::string& device, UOp root,
                                                           size_t inputs,
                                                           std::span<const uint64_t> gradients,
                                                           std::span<const UOp> wire_nodes);

  const std::vector<GraphKernel>& kernels() const { return kernels_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Memories of Run: inputs first.
  size_t memory_count() const { return memory_count_; }
  // That the plan makes for itself in Build.
  int64_t scratch_bytes() const { return scratch_bytes_; }
  int launches() const { return launches_; }

  struct Choice {
    std::vector<Opt> opts;
    const KernelImage* image = nullptr;  // null: to be compiled
  };
  struct Built {
    std::string name;
    std::vector<Opt> opts;
    std::optional<KernelImage> compiled;  // where there was no image
  };
  // Once, with a choice a kernel. ResourceExhausted where the scratch memory doesn't fit; the
  // errors of compiling and loading, which name the kernel.
  absl::StatusOr<std::vector<Built>> Build(std::span<const Choice> choices);

  struct Launched {
    int kernel = 0;
    double seconds = 0;
  };
  struct Result {
    bool began = false;  // memories may have changed
    double run_s = 0;    // of the kernels
    double wait_s = 0;   // for the device's turn
    std::vector<Launched> launches;
    // Of the outputs, with these variables; empty where the outputs say it themselves.
    std::vector<std::vector<int64_t>> shapes;
  };
  struct RunOptions {
    // Taken a millisecond of kernels at a time; null: the device is ours alone.
    DeviceTurn* turn = nullptr;
    // Asked before each kernel: true ends the run. Empty: nothing does.
    std::function<bool()> stops;
    // Result::launches is filled in.
    bool profile = false;
  };
  // Runs it on memories of the sizes that graph and outputs say, which stay where they are until it
  // returns. InvalidArgument, with nothing begun: a variable's value that is outside its bounds, or
  // leaves an output without an element; FailedPrecondition likewise: one without a value.
  // Cancelled: it was stopped. `result` is filled in whatever is returned.
  absl::Status Run(std::span<Buffer* const> memories, const VariableValues& variables,
                   const RunOptions& options, Result& result);

 private:
  struct Use {
    size_t step = 0, index = 0, memory = 0;
    size_t offset_bytes = 0;
  };
  struct Step {
    int kernel = -1;
    double seconds = -1;           // that it took when it was timed; negative: it never was
    std::vector<Buffer*> buffers;  // of the first run; null: a memory of Run
    std::unique_ptr<PreparedLaunch> launch;
  };
  struct Copy {
    size_t from = 0, offset_bytes = 0;  // memories
    size_t to = 0, size_bytes = 0;
  };
  struct Variable {
    std::string name;
    std::optional<int64_t> value;
    std::vector<std::pair<size_t, size_t>> uses;  // step, index
  };

  GraphPlan(LoadedKernels& kernels, std::string device)
      : loaded_(kernels), context_(std::move(device)) {}
  absl::Status Schedule(UOp root, size_t inputs, std::span<const uint64_t> gradients,
                        std::span<const UOp> wire_nodes);
  absl::Status FindOutputs(std::vector<LazyBuffer>& roots, std::span<const UOp> nodes, UOp root);
  // Whether Run is given this memory.
  bool IsMemory(const TensorBuffer& buffer) const;
  absl::Status CopyBytes(const Copy& copy, std::span<Buffer* const> memories);
  absl::Status PrepareAll(std::span<Buffer* const> memories);
  absl::Status SetVariables(const VariableValues& variables);
  absl::Status FindShapes(const VariableValues& variables, Result& result) const;

  LoadedKernels& loaded_;
  LazyContext context_;
  UOpGraph graph_;  // of kernels_
  std::vector<GraphKernel> kernels_;
  std::vector<Output> outputs_;
  beamd::Schedule schedule_;
  std::vector<int> kernel_of_item_;
  absl::flat_hash_map<const TensorBuffer*, size_t> memory_of_;
  std::vector<std::shared_ptr<TensorBuffer>> held_;  // keys of memory_of_
  size_t memory_count_ = 0;
  int64_t scratch_bytes_ = 0;
  int launches_ = 0;

  std::vector<std::shared_ptr<const LoadedKernels::Loaded>> code_;  // by kernel
  std::vector<std::unique_ptr<Buffer>> scratch_;
  std::vector<std::unique_ptr<Buffer>> windows_;  // of scratch
  std::vector<Use> uses_;
  std::vector<Copy> copies_;  // after the kernels
  std::vector<Variable> variables_;
  std::vector<Step> steps_;  // goes before what it runs on
  bool prepared_ = false;
};

}  // namespace beamd

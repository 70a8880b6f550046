// Kernels compiled for a device, each once: what computes the same is looked up by its canonical
// form.
//
// Answers to tinygrad 0.10.0 engine/realize.py, get_kernel and method_cache. Differs: no tensor
// cores; reductions on a CPU get larger tiles than its heuristics'; a search's winner is chosen among the heuristics' and the unoptimised kernel by the search.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "engine/base/profile.h"
#include "engine/kernel/kernel.h"
#include "engine/llvm/compiler.h"
#include "engine/llvm/kernel_image.h"
#include "engine/uop/uop.h"
#include "server/execution/device_memory.h"

namespace beamd {

struct CompiledKernel {
  std::string name;  // Kernel::name: "r_16_4_32"
  std::vector<Opt> opts;
  KernelImage image;  // without its code
  std::shared_ptr<OpenedDevice> device;
  std::unique_ptr<Executable> executable;  // goes before its device
};

// Opts that someone tuned for a kernel without opts, by its hash; nullopt: none known. A list that
// doesn't apply counts as none.
using OptsFor =
    std::function<std::optional<std::vector<Opt>>(const Kernel& kernel, const Digest& hash)>;

// Keeps every kernel until destroyed. Not thread-safe.
class KernelCache {
 public:
  // `opts_for` may be empty, `log` outlives the cache.
  static absl::StatusOr<std::unique_ptr<KernelCache>> Create(std::shared_ptr<OpenedDevice> device,
                                                             OptsFor opts_for, std::ostream& log);

  // The kernel of a graph that schedules and clients make (engine/uop/verify.h), of any UOpGraph.
  // Its opts are OptsFor's; else, by NOOPT and BEAM, none, a search's, CpuOptimizations'. The errors
  // of the compiler and the device, which name the kernel.
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> Get(UOp ast, Profile* profile);

  int64_t hits() const { return hits_; }
  int64_t compiles() const { return compiles_; }

 private:
  KernelCache(std::shared_ptr<OpenedDevice> device, std::unique_ptr<KernelCompiler> compiler,
              OptsFor opts_for, std::ostream& log)
      : device_(std::move(device)),
        compiler_(std::move(compiler)),
        opts_for_(std::move(opts_for)),
        log_(log) {}
  absl::StatusOr<Kernel> Optimize(const Kernel& kernel, UOp canonical);
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> Compile(UOp canonical, Profile* profile);

  const std::shared_ptr<OpenedDevice> device_;
  const std::unique_ptr<KernelCompiler> compiler_;
  const OptsFor opts_for_;
  std::ostream& log_;
  // Holds the canonical form of every kernel, so that equal ones are one node.
  UOpGraph graph_;
  // By kernel and how its opts were chosen: NOOPT's -1, or the width BEAM.
  absl::flat_hash_map<std::pair<UOp, int64_t>, std::shared_ptr<const CompiledKernel>> kernels_;
  int64_t hits_ = 0, compiles_ = 0;
};

// `status` with "<what>: " before its message, payloads kept.
absl::Status Annotated(const absl::Status& status, absl::string_view what);

}  // namespace beamd

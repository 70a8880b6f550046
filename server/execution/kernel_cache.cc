#include "server/execution/kernel_cache.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/base/option.h"
#include "engine/base/status.h"
#include "engine/kernel/vector_products.h"
#include "engine/search/beam.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/text.h"
#include "server/execution/local_pipeline.h"

namespace beamd {
namespace {

// What DEBUG prints as kernels are compiled.
constexpr int64_t kDebugOpts = 3, kDebugAst = 5, kDebugAsm = 6;

}  // namespace

absl::Status Annotated(const absl::Status& status, absl::string_view what) {
  absl::Status annotated(status.code(), absl::StrCat(what, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

absl::StatusOr<std::unique_ptr<KernelCache>> KernelCache::Create(
    std::shared_ptr<OpenedDevice> device, OptsFor opts_for, std::ostream& log) {
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<KernelCompiler> compiler,
                         KernelCompiler::Create(device->device().caps()));
  return std::unique_ptr<KernelCache>(
      new KernelCache(std::move(device), std::move(compiler), std::move(opts_for), log));
}

absl::StatusOr<std::shared_ptr<const CompiledKernel>> KernelCache::Get(UOp ast, Profile* profile) {
  const UOp canonical = CanonicalKernel(ast, graph_);
  const int64_t choice = options::kNoOpt != 0 ? -1 : options::kBeam;
  const std::pair<UOp, int64_t> key(canonical, choice);
  if (const auto it = kernels_.find(key); it != kernels_.end()) {
    ++hits_;
    return it->second;
  }
  ++compiles_;
  BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledKernel> compiled,
                         Compile(canonical, profile));
  kernels_[key] = compiled;
  return compiled;
}

absl::StatusOr<Kernel> KernelCache::Optimize(const Kernel& kernel, UOp canonical) {
  if (options::kNoOpt != 0) return RequiredOptimizations(kernel);
  if (opts_for_) {
    const std::optional<std::vector<Opt>> opts = opts_for_(kernel, KernelHash(canonical));
    Kernel tuned = kernel;
    if (opts && tuned.ApplyAll(*opts).ok()) return tuned;
  }
  if (options::kBeam == 0) return CpuOptimizations(kernel);
  LocalPipeline pipeline(kernel, *compiler_, device_->device());
  BeamOptions beam;
  beam.width = static_cast<int>(options::kBeam);
  beam.known.push_back(CpuOptimizations(kernel).applied_opts());
  BEAMD_ASSIGN_OR_RETURN(const BeamResult found,
                         BeamSearch(kernel, beam, pipeline, [](const BeamProgress&) {}));
  Kernel best = kernel;
  BEAMD_RETURN_IF_ERROR(best.ApplyAll(found.opts));
  return best;
}

absl::StatusOr<std::shared_ptr<const CompiledKernel>> KernelCache::Compile(UOp canonical,
                                                                           Profile* profile) {
  UOpGraph graph;  // what opts make of symbolic sizes goes with it
  BEAMD_ASSIGN_OR_RETURN(const Kernel plain,
                         Kernel::Create(graph.Import(canonical), device_->device().caps()));
  const absl::StatusOr<Kernel> kernel = Optimize(plain, canonical);
  if (!kernel.ok()) return Annotated(kernel.status(), absl::StrCat("kernel ", plain.name()));
  auto compiled = std::make_shared<CompiledKernel>();
  compiled->name = kernel->name();
  compiled->opts = kernel->applied_opts();
  compiled->device = device_;
  const std::string what = absl::StrCat("kernel ", compiled->name);
  const ProfileScope scope(profile, compiled->name, "compile");
  if (options::kDebug >= kDebugOpts) log_ << what << ": " << ToString(compiled->opts) << "\n";
  if (options::kDebug >= kDebugAst) log_ << ToText(canonical);
  CompileOptions compile;
  if (options::kDebug >= kDebugAsm) compile.dump = "asm";
  absl::StatusOr<CompileResult> result = compiler_->Compile(*kernel, compile);
  if (!result.ok()) return Annotated(result.status(), what);
  log_ << result->dump;
  absl::StatusOr<std::unique_ptr<Executable>> executable = device_->device().Load(result->image);
  if (!executable.ok()) return Annotated(executable.status(), what);
  compiled->executable = *std::move(executable);
  compiled->image = std::move(result->image);
  compiled->image.code.clear();
  return compiled;
}

}  // namespace beamd

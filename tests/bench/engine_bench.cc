// What one candidate costs: each step from wire form to LLVM IR, over the corpus,
// heuristics' opts applied.
//
//   engine_bench --corpus DIR [--sample N] [--arch sm_80]
//
// Prints {"pass","median_us","p99_us","kernels"} a step, and for "candidate": opts applied, lowered
// and emitted, which is what a beam pays a candidate besides LLVM's passes and code generation;
// "lower_emit" and "lower_generate" are lowering and emission without and with those.
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/gpu_target.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/llvm/codegen.h"
#include "engine/llvm/emit.h"
#include "engine/llvm/host.h"
#include "engine/lower/pipeline.h"
#include "engine/search/actions.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/verify.h"
#include "engine/uop/wire.h"
#include "tests/testing/corpus.h"

ABSL_FLAG(std::string, corpus, "", "folder of the corpus");
ABSL_FLAG(std::string, arch, "", "a GPU, sm_80 or gfx1100; empty: this CPU");
ABSL_FLAG(int, sample, 2000, "kernels, evenly spread; 0: all");

namespace beamd {
namespace {

class Steps {
 public:
  template <typename F>
  auto Time(const std::string& step, F f) {
    const absl::Time start = absl::Now();
    auto result = f();
    Add(step, absl::Now() - start);
    return result;
  }
  void Add(const std::string& step, absl::Duration took) {
    if (!times_.contains(step)) order_.push_back(step);
    times_[step].push_back(absl::ToDoubleMicroseconds(took));
  }
  void Print() {
    for (const std::string& step : order_) {
      std::vector<double>& t = times_[step];
      std::sort(t.begin(), t.end());
      std::printf("{\"pass\":\"%s\",\"median_us\":%.1f,\"p99_us\":%.1f,\"kernels\":%zu}\n",
                  step.c_str(), t[t.size() / 2], t[t.size() * 99 / 100], t.size());
    }
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> times_;
};

// The steps of one kernel; whatever refuses it ends them.
absl::Status Measure(const v1::Graph& message, const TargetCaps& caps, CodeGenerator& generator,
                     Steps& steps) {
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(const UOp ast,
                         steps.Time("parse", [&] { return FromProto(message, graph); }));
  BEAMD_RETURN_IF_ERROR(steps.Time("verify", [&] { return VerifyKernel(ast); }));
  steps.Time("hash", [&] { return KernelHash(ast); });
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel,
                         steps.Time("kernel", [&] { return Kernel::Create(ast, caps); }));
  const Kernel scheduled = steps.Time("heuristics", [&] { return HandCodedOptimizations(kernel); });
  steps.Time("actions", [&] { return LegalActions(kernel, ActionOptions()).size(); });

  const absl::Time start = absl::Now();
  Kernel candidate = kernel;
  BEAMD_RETURN_IF_ERROR(
      steps.Time("opts", [&] { return candidate.ApplyAll(scheduled.applied_opts()); }));
  UOpGraph nodes;
  std::vector<std::pair<absl::string_view, absl::Duration>> passes;
  LowerOptions options;
  options.timings = &passes;
  const absl::Time lowering = absl::Now();
  BEAMD_ASSIGN_OR_RETURN(const LinearProgram program, Lower(candidate, nodes, options));
  const absl::Duration lowered = absl::Now() - lowering;
  for (const auto& [pass, took] : passes) steps.Add(std::string(pass), took);
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  BEAMD_RETURN_IF_ERROR(steps.Time("emit", [&] { return EmitModule(program, caps, module); }));
  steps.Add("candidate", absl::Now() - start);
  steps.Add("lower_emit", absl::Now() - lowering);
  const absl::Time generating = absl::Now();
  BEAMD_RETURN_IF_ERROR(generator.Generate(program).status());
  steps.Add("lower_generate", lowered + (absl::Now() - generating));
  return absl::OkStatus();
}

int Main() {
  const auto kernels = testing::ReadCorpusKernels(absl::GetFlag(FLAGS_corpus));
  if (!kernels.ok() || kernels->empty()) {
    std::fprintf(stderr, "engine_bench: no kernels in --corpus %s\n",
                 absl::GetFlag(FLAGS_corpus).c_str());
    return 2;
  }
  const size_t sample = absl::GetFlag(FLAGS_sample);
  const size_t step = sample == 0 ? 1 : std::max<size_t>(1, kernels->size() / sample);
  const std::string arch = absl::GetFlag(FLAGS_arch);
  const absl::StatusOr<TargetCaps> caps = arch.empty() ? HostCaps() : GpuByName(arch);
  const auto generator = caps.ok() ? CodeGenerator::Create(*caps) : caps.status();
  if (!generator.ok()) {
    std::fprintf(stderr, "engine_bench: %s\n", std::string(generator.status().message()).c_str());
    return 2;
  }
  Steps steps;
  int refused = 0;
  for (size_t i = 0; i < kernels->size(); i += step) {
    if (!Measure((*kernels)[i].graph, *caps, **generator, steps).ok()) ++refused;
  }
  steps.Print();
  std::fprintf(stderr, "%d kernels refused by a step (images)\n", refused);
  return 0;
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return beamd::Main();
}

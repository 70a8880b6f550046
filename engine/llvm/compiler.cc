#include "engine/llvm/compiler.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/llvm/codegen.h"
#include "engine/lower/pipeline.h"

namespace beamd {
namespace {

class Compiler final : public KernelCompiler {
 public:
  explicit Compiler(std::unique_ptr<CodeGenerator> generator) : generator_(std::move(generator)) {}

  absl::StatusOr<CompileResult> Compile(const Kernel& kernel,
                                        const CompileOptions& options) override {
    UOpGraph graph;
    CompileResult result;
    LowerOptions lower;
    lower.max_uops = options.max_uops;
    lower.dump = options.dump;
    lower.dump_text = &result.dump;
    BEAMD_ASSIGN_OR_RETURN(const LinearProgram program, Lower(kernel, graph, lower));
    BEAMD_ASSIGN_OR_RETURN(result.image, generator_->Generate(program, options.dump, &result.dump));
    return result;
  }

 private:
  std::unique_ptr<CodeGenerator> generator_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelCompiler>> KernelCompiler::Create(const TargetCaps& caps) {
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<CodeGenerator> generator, CodeGenerator::Create(caps));
  return std::make_unique<Compiler>(std::move(generator));
}

}  // namespace beamd

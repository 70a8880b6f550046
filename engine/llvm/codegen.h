// From a linear program to machine code: emit, optimise, generate.
//
// A candidate that LLVM can't compile costs that candidate, not the process: errors that LLVM
// reports become a Status, and a crash inside it is caught (what the crash left behind is leaked).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/lower/program.h"

namespace beamd {

// What EmitModule's IR goes through before instruction selection. kDefault is the one to use: what
// its target is best served by. kMerge: merging of equal values alone. kShort: also combines and
// hoists. kO2: LLVM's own.
enum class PassPipeline { kDefault, kMerge, kShort, kO2 };

struct CodegenOptions {
  PassPipeline passes = PassPipeline::kDefault;
  int level = -1;  // of instruction selection and register allocation, 0..3; less: the target's own
};

// Keeps LLVM's TargetMachine between programs. Not thread-safe; several may work side by side.
class CodeGenerator {
 public:
  // Error: as CheckTarget says; InvalidArgument for a CPU that LLVM doesn't know.
  static absl::StatusOr<std::unique_ptr<CodeGenerator>> Create(const TargetCaps& caps,
                                                               const CodegenOptions& options = {});
  virtual ~CodeGenerator() = default;

  // program.image with code and entry filled in. `dump`: "ir" (as emitted), "opt" (optimised IR) or
  // "asm" puts that text into *text; else nothing is written.
  // Error: InvalidArgument where the program breaks its contract, Internal where LLVM fails.
  virtual absl::StatusOr<KernelImage> Generate(const LinearProgram& program, absl::string_view dump,
                                               std::string* text) = 0;
  absl::StatusOr<KernelImage> Generate(const LinearProgram& program) {
    return Generate(program, "", nullptr);
  }
};

}  // namespace beamd

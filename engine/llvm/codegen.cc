#include "engine/llvm/codegen.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/llvm/capability.h"
#include "engine/llvm/emit.h"
#include "engine/llvm/link.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Utils/Cloning.h"

namespace beamd {
namespace {

// Without one, LLVM prints an error and ends the process.
class CollectErrors : public llvm::DiagnosticHandler {
 public:
  explicit CollectErrors(std::string* errors) : errors_(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream stream(*errors_);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    stream << '\n';
    return true;
  }

 private:
  std::string* errors_;
};

// Everything that a crash inside LLVM may leave in an unknown state.
struct Attempt {
  std::string errors;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::string text;
  std::string code;
  absl::Status status;
};

// LLVM's pipeline from IR to a file, built once a machine: building it costs a third of what a
// small kernel takes to compile. Every pass resets itself for the next module; that the bytes are
// those of a fresh pipeline is tested.
struct FilePasses {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream{bytes};
  llvm::legacy::PassManager passes;
};

void Optimise(llvm::Module& module, llvm::TargetMachine& machine, PassPipeline pipeline) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  if (pipeline == PassPipeline::kO2) {
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
    return;
  }
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  if (pipeline == PassPipeline::kShort) {
    passes.addPass(llvm::InstCombinePass());
    passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()),
                                                         /*UseMemorySSA=*/true));
    passes.addPass(llvm::EarlyCSEPass());
  }
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) passes.run(f, functions);
  }
}

// Internal, naming the first symbol that the object wants from outside.
absl::Status CheckSelfContained(llvm::StringRef object) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) return absl::InternalError(llvm::toString(file.takeError()));
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    auto flags = symbol.getFlags();
    if (!flags) return absl::InternalError(llvm::toString(flags.takeError()));
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) == 0) continue;
    // The first entry of an ELF symbol table is undefined and has no name.
    auto name = symbol.getName();
    if (!name) return absl::InternalError(llvm::toString(name.takeError()));
    if (name->empty()) continue;
    return absl::InternalError(absl::StrCat("the code calls ", name->str(), " outside itself"));
  }
  return absl::OkStatus();
}

// How a target's code comes out of LLVM.
struct Machine {
  llvm::Triple triple;
  std::optional<llvm::Reloc::Model> relocation;
  llvm::CodeGenFileType file;
  int level;            // where the options name none
  PassPipeline passes;  // where the options ask for the default
  bool keep_pipeline;   // code generation's passes may be run on module after module
};

Machine MachineOf(const TargetCaps& caps) {
  switch (caps.kind) {
    case TargetKind::kCuda:
      return {llvm::Triple("nvptx64-nvidia-cuda"),
              std::nullopt,
              llvm::CodeGenFileType::AssemblyFile,
              2,
              PassPipeline::kShort,
              false};
    case TargetKind::kHip:
      return {llvm::Triple("amdgcn-amd-amdhsa"),
              llvm::Reloc::PIC_,
              llvm::CodeGenFileType::ObjectFile,
              2,
              PassPipeline::kShort,
              false};
    case TargetKind::kCpu:
      break;
  }
  return {llvm::Triple(llvm::sys::getDefaultTargetTriple()),
          llvm::Reloc::PIC_,
          llvm::CodeGenFileType::ObjectFile,
          1,
          PassPipeline::kMerge,
          true};
}

class LlvmCodeGenerator : public CodeGenerator {
 public:
  LlvmCodeGenerator(const TargetCaps& caps, const CodegenOptions& options)
      : caps_(caps), how_(MachineOf(caps)) {
    if (options.passes != PassPipeline::kDefault) how_.passes = options.passes;
    if (options.level >= 0) how_.level = options.level;
  }

  absl::Status MakeMachine() {
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(how_.triple, error);
    if (target == nullptr) return absl::InvalidArgumentError(error);
    static constexpr llvm::CodeGenOptLevel kLevels[] = {
        llvm::CodeGenOptLevel::None, llvm::CodeGenOptLevel::Less, llvm::CodeGenOptLevel::Default,
        llvm::CodeGenOptLevel::Aggressive};
    llvm::TargetOptions target_options;
    target_options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // fused where MULACC says so
    machine_.reset(target->createTargetMachine(how_.triple, caps_.arch, caps_.features,
                                               target_options, how_.relocation, std::nullopt,
                                               kLevels[how_.level]));
    if (machine_ == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("LLVM knows no CPU \"", caps_.arch, "\""));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<KernelImage> Generate(const LinearProgram& program, absl::string_view dump,
                                       std::string* text) override {
    if (machine_ == nullptr) BEAMD_RETURN_IF_ERROR(MakeMachine());
    auto attempt = std::make_unique<Attempt>();
    llvm::CrashRecoveryContext recovery;
    if (!recovery.RunSafely([&] { Run(program, dump, *attempt); })) {
      const std::string errors = attempt->errors;
      static_cast<void>(attempt.release());
      static_cast<void>(file_passes_.release());
      static_cast<void>(machine_.release());
      return absl::InternalError(absl::StrCat("LLVM crashed on this program. ", errors));
    }
    BEAMD_RETURN_IF_ERROR(attempt->status);
    if (!attempt->errors.empty()) return absl::InternalError(attempt->errors);
    KernelImage image = program.image;
    image.kind = caps_.kind;
    image.entry = kKernelEntry;
    BEAMD_ASSIGN_OR_RETURN(image.code, Finished(std::move(attempt->code)));
    if (text != nullptr && !attempt->text.empty()) *text = std::move(attempt->text);
    return image;
  }

 private:
  void Run(const LinearProgram& program, absl::string_view dump, Attempt& attempt) {
    attempt.context.setDiscardValueNames(true);
    attempt.context.setDiagnosticHandler(std::make_unique<CollectErrors>(&attempt.errors));
    attempt.module = std::make_unique<llvm::Module>("kernel", attempt.context);
    llvm::Module& module = *attempt.module;
    module.setTargetTriple(machine_->getTargetTriple());
    module.setDataLayout(machine_->createDataLayout());
    attempt.status = EmitModule(program, caps_, module);
    if (!attempt.status.ok()) return;
    if (dump == "ir") Print(module, attempt.text);
    llvm::raw_string_ostream errors(attempt.errors);
    if (llvm::verifyModule(module, &errors)) return;
    Optimise(module, *machine_, how_.passes);
    if (dump == "opt") Print(module, attempt.text);
    if (dump == "asm") {
      // Generating code changes the module, so the text comes from a copy.
      const std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
      const std::unique_ptr<FilePasses> assembly = NewPasses(llvm::CodeGenFileType::AssemblyFile);
      assembly->passes.run(*copy);
      attempt.text.assign(assembly->bytes.data(), assembly->bytes.size());
    }
    if (caps_.code_form == CodeForm::kBitcode) {
      llvm::raw_string_ostream stream(attempt.code);
      llvm::WriteBitcodeToFile(module, stream);
      return;
    }
    if (file_passes_ == nullptr) file_passes_ = NewPasses(how_.file);
    file_passes_->bytes.clear();
    file_passes_->passes.run(module);
    attempt.code.assign(file_passes_->bytes.data(), file_passes_->bytes.size());
    if (!how_.keep_pipeline) file_passes_.reset();
  }

  // What a device loads, of what LLVM wrote.
  absl::StatusOr<std::string> Finished(std::string code) const {
    if (caps_.code_form == CodeForm::kBitcode) return code;
    if (caps_.kind == TargetKind::kHip) return LinkCodeObject(code);
    if (caps_.kind == TargetKind::kCpu) BEAMD_RETURN_IF_ERROR(CheckSelfContained(code));
    return code;
  }

  static void Print(const llvm::Module& module, std::string& text) {
    llvm::raw_string_ostream stream(text);
    module.print(stream, nullptr);
  }

  std::unique_ptr<FilePasses> NewPasses(llvm::CodeGenFileType type) {
    auto passes = std::make_unique<FilePasses>();
    const bool refused =
        machine_->addPassesToEmitFile(passes->passes, passes->stream, nullptr, type);
    BEAMD_CHECK(!refused, "every target writes what MachineOf says, and assembly");
    return passes;
  }

  const TargetCaps caps_;
  Machine how_;
  // Null after a crash: the next program makes new ones.
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::unique_ptr<FilePasses> file_passes_;  // of machine_
};

}  // namespace

absl::StatusOr<std::unique_ptr<CodeGenerator>> CodeGenerator::Create(
    const TargetCaps& caps, const CodegenOptions& options) {
  BEAMD_CHECK(options.level <= 3, "a level of 0 to 3");
  BEAMD_RETURN_IF_ERROR(CheckTarget(caps));
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
    llvm::CrashRecoveryContext::Enable();
  });
  auto generator = std::make_unique<LlvmCodeGenerator>(caps, options);
  BEAMD_RETURN_IF_ERROR(generator->MakeMachine());
  return generator;
}

}  // namespace beamd

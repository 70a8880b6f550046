#include "devices/emu/translate.h"

#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "devices/emu/instrument.h"
#include "engine/base/status.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"

namespace beamd::emu {
namespace {

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

// What a crash inside LLVM may leave in an unknown state, and is then leaked.
struct Attempt {
  std::string errors;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> host;
  TranslatedKernel kernel;
  absl::Status status;
};

absl::Status BadImage(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the image can't be loaded: ", why));
}

absl::Status CheckSizes(const KernelImage& image, const TargetCaps& caps) {
  if (image.kind != caps.kind) return BadImage("it is of another kind of device");
  int64_t items = 1;
  for (size_t d = 0; d < image.local_size.size(); ++d) {
    const int64_t local = image.local_size[d], global = image.global_size[d];
    const int64_t most = caps.local_max ? (*caps.local_max)[d] : 1024;
    if (local < 1 || local > most) {
      return BadImage(absl::StrCat("groups of ", local, " work-items along axis ", d));
    }
    if (global < 0 || (caps.global_max && global > (*caps.global_max)[d])) {
      return BadImage(absl::StrCat("a grid of ", global, " groups along axis ", d));
    }
    items *= local;
  }
  constexpr int64_t kMostItems = 1024;
  if (items > kMostItems) return BadImage(absl::StrCat("groups of ", items, " work-items"));
  return absl::OkStatus();
}

void Tidy(llvm::Module& module, llvm::TargetMachine& host) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&host);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  // The module went through its target's passes; what the checks compute again is new.
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) passes.run(f, functions);
  }
}

class HostTranslator final : public Translator {
 public:
  HostTranslator(const llvm::Target* target, std::string features)
      : target_(target), features_(std::move(features)) {}

  absl::StatusOr<TranslatedKernel> Translate(const KernelImage& image,
                                             const TargetCaps& caps) override {
    BEAMD_RETURN_IF_ERROR(CheckSizes(image, caps));
    auto attempt = std::make_unique<Attempt>();
    llvm::CrashRecoveryContext recovery;
    if (!recovery.RunSafely([&] { attempt->status = Run(image, caps, *attempt); })) {
      const std::string errors = attempt->errors;
      static_cast<void>(attempt.release());
      return absl::InternalError(absl::StrCat("LLVM crashed on this image. ", errors));
    }
    BEAMD_RETURN_IF_ERROR(attempt->status);
    if (!attempt->errors.empty()) return absl::InternalError(attempt->errors);
    return std::move(attempt->kernel);
  }

 private:
  absl::Status Run(const KernelImage& image, const TargetCaps& caps, Attempt& attempt) const {
    attempt.context.setDiagnosticHandler(std::make_unique<CollectErrors>(&attempt.errors));
    auto parsed =
        llvm::parseBitcodeFile(llvm::MemoryBufferRef(image.code, "kernel"), attempt.context);
    if (!parsed) return BadImage(llvm::toString(parsed.takeError()));
    attempt.module = std::move(*parsed);
    llvm::Module& module = *attempt.module;
    const llvm::Triple& triple = module.getTargetTriple();
    if (caps.kind == TargetKind::kCuda ? !triple.isNVPTX() : !triple.isAMDGCN()) {
      return BadImage(absl::StrCat("its triple is ", triple.str()));
    }
    std::string faults;
    llvm::raw_string_ostream stream(faults);
    if (llvm::verifyModule(module, &stream)) return BadImage(faults);
    // Fused where the module allows it, as its own target would; LLVM's bfloat and half conversions
    // by our own functions, since AVX-512's flush sub-normals.
    attempt.host.reset(target_->createTargetMachine(
        llvm::Triple(llvm::sys::getDefaultTargetTriple()), llvm::sys::getHostCPUName(), features_,
        llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Less));
    module.setTargetTriple(attempt.host->getTargetTriple());
    module.setDataLayout(attempt.host->createDataLayout());
    BEAMD_RETURN_IF_ERROR(Instrument(module, image, caps, attempt.kernel));
    if (llvm::verifyModule(module, &stream)) {
      return absl::InternalError(absl::StrCat("the checked module is broken: ", faults));
    }
    Tidy(module, *attempt.host);
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream object(bytes);
    llvm::legacy::PassManager passes;
    if (attempt.host->addPassesToEmitFile(passes, object, nullptr,
                                          llvm::CodeGenFileType::ObjectFile)) {
      return absl::InternalError("LLVM writes no objects for this host");
    }
    passes.run(module);
    attempt.kernel.object.assign(bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  const llvm::Target* const target_;
  const std::string features_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Translator>> Translator::Create() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::CrashRecoveryContext::Enable();
  });
  std::string error;
  const llvm::Target* const target =
      llvm::TargetRegistry::lookupTarget(llvm::Triple(llvm::sys::getDefaultTargetTriple()), error);
  if (target == nullptr) return absl::InternalError(error);
  return std::make_unique<HostTranslator>(target, "-avx512fp16,-avx512bf16,-avxneconvert");
}

}  // namespace beamd::emu

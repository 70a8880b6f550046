#include "devices/emu/executable.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "devices/cpu/jit.h"
#include "devices/emu/runtime.h"
#include "devices/emu/translate.h"
#include "engine/base/status.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"

namespace beamd::emu {
namespace {

class Loaded final : public EmuExecutable {
 public:
  Loaded(llvm::orc::LLJIT& jit, llvm::orc::JITDylib& library, KernelImage image,
         TranslatedKernel kernel)
      : jit_(jit), library_(library), image_(std::move(image)), kernel_(std::move(kernel)) {}
  ~Loaded() override { llvm::consumeError(jit_.getExecutionSession().removeJITDylib(library_)); }

  // Finds the code and its data.
  absl::Status Link() {
    auto object = llvm::MemoryBuffer::getMemBufferCopy(kernel_.object, "kernel");
    if (llvm::Error error = jit_.addObjectFile(library_, std::move(object))) {
      return Bad(std::move(error));
    }
    auto entry = jit_.lookup(library_, kEmuEntry);
    if (!entry) return Bad(entry.takeError());
    entry_ = entry->toPtr<Entry>();
    for (const ConstantData& data : kernel_.constants) {
      auto symbol = jit_.lookup(library_, data.symbol);
      if (!symbol) return Bad(symbol.takeError());
      constants_.emplace_back(symbol->getValue(), static_cast<uint64_t>(data.bytes));
    }
    kernel_.object.clear();
    kernel_.object.shrink_to_fit();
    return absl::OkStatus();
  }

  Entry entry() const override { return entry_; }
  const KernelImage& image() const override { return image_; }
  const TranslatedKernel& kernel() const override { return kernel_; }
  const std::vector<std::pair<uint64_t, uint64_t>>& constants() const override {
    return constants_;
  }

 private:
  static absl::Status Bad(llvm::Error error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the image can't be loaded: ", llvm::toString(std::move(error))));
  }

  llvm::orc::LLJIT& jit_;
  llvm::orc::JITDylib& library_;
  const KernelImage image_;
  TranslatedKernel kernel_;
  Entry entry_ = nullptr;
  std::vector<std::pair<uint64_t, uint64_t>> constants_;
};

class JitLoader final : public EmuLoader {
 public:
  JitLoader(const TargetCaps& caps, std::unique_ptr<Translator> translator,
            std::unique_ptr<llvm::orc::LLJIT> jit)
      : caps_(caps), translator_(std::move(translator)), jit_(std::move(jit)) {}

  // What kernels may call, in a library that each of theirs is linked to.
  absl::Status DefineRuntime() {
    runtime_ = &jit_->getExecutionSession().createBareJITDylib("runtime");
    llvm::orc::SymbolMap symbols;
    for (const RuntimeFunction& f : RuntimeFunctions()) {
      symbols[jit_->mangleAndIntern(f.name)] = {
          llvm::orc::ExecutorAddr::fromPtr(f.address),
          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    }
    if (llvm::Error error = runtime_->define(llvm::orc::absoluteSymbols(std::move(symbols)))) {
      return absl::InternalError(llvm::toString(std::move(error)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<EmuExecutable>> Load(const KernelImage& image) override {
    BEAMD_ASSIGN_OR_RETURN(TranslatedKernel kernel, translator_->Translate(image, caps_));
    auto& session = jit_->getExecutionSession();
    llvm::orc::JITDylib& library = session.createBareJITDylib(absl::StrCat("k", count_++));
    library.addToLinkOrder(*runtime_);
    KernelImage kept = image;
    kept.code.clear();
    auto loaded = std::make_unique<Loaded>(*jit_, library, std::move(kept), std::move(kernel));
    BEAMD_RETURN_IF_ERROR(loaded->Link());
    return loaded;
  }

 private:
  const TargetCaps caps_;
  const std::unique_ptr<Translator> translator_;
  const std::unique_ptr<llvm::orc::LLJIT> jit_;
  llvm::orc::JITDylib* runtime_ = nullptr;
  std::atomic<uint64_t> count_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<EmuLoader>> EmuLoader::Create(const TargetCaps& caps) {
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Translator> translator, Translator::Create());
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<llvm::orc::LLJIT> jit, MakeJit());
  auto loader = std::make_unique<JitLoader>(caps, std::move(translator), std::move(jit));
  BEAMD_RETURN_IF_ERROR(loader->DefineRuntime());
  return loader;
}

}  // namespace beamd::emu

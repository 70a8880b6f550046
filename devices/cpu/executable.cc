#include "devices/cpu/executable.h"

#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "devices/cpu/jit.h"
#include "engine/base/status.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"

namespace beamd {
namespace {

absl::Status BadImage(llvm::Error error) {
  return absl::InvalidArgumentError(
      absl::StrCat("the image can't be loaded: ", llvm::toString(std::move(error))));
}

class Loaded : public CpuExecutable {
 public:
  Loaded(llvm::orc::LLJIT& jit, llvm::orc::JITDylib& library, CpuEntry entry, KernelImage image)
      : jit_(jit), library_(library), entry_(entry), image_(std::move(image)) {}
  ~Loaded() override { llvm::consumeError(jit_.getExecutionSession().removeJITDylib(library_)); }
  CpuEntry entry() const override { return entry_; }
  const KernelImage& image() const override { return image_; }

 private:
  llvm::orc::LLJIT& jit_;
  llvm::orc::JITDylib& library_;
  const CpuEntry entry_;
  const KernelImage image_;
};

class JitLinkLoader : public CpuLoader {
 public:
  explicit JitLinkLoader(std::unique_ptr<llvm::orc::LLJIT> jit) : jit_(std::move(jit)) {}

  absl::StatusOr<std::unique_ptr<CpuExecutable>> Load(const KernelImage& image) override {
    auto& session = jit_->getExecutionSession();
    // One bare library an image: it sees no symbols but its own.
    llvm::orc::JITDylib& library = session.createBareJITDylib(absl::StrCat("k", count_++));
    auto object = llvm::MemoryBuffer::getMemBufferCopy(image.code, "kernel");
    llvm::Error error = jit_->addObjectFile(library, std::move(object));
    if (!error) {
      auto symbol = jit_->lookup(library, image.entry);
      if (symbol) {
        KernelImage kept = image;
        kept.code.clear();
        return std::make_unique<Loaded>(*jit_, library, symbol->toPtr<CpuEntry>(), std::move(kept));
      }
      error = symbol.takeError();
    }
    llvm::consumeError(session.removeJITDylib(library));
    return BadImage(std::move(error));
  }

 private:
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuLoader>> CpuLoader::Create() {
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<llvm::orc::LLJIT> jit, MakeJit());
  return std::make_unique<JitLinkLoader>(std::move(jit));
}

}  // namespace beamd

#include "devices/cpu/jit.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/Support/TargetSelect.h"

namespace beamd {
namespace {

absl::Status CannotStart(llvm::Error error) {
  return absl::InternalError(
      absl::StrCat("LLVM's loader can't start: ", llvm::toString(std::move(error))));
}

}  // namespace

absl::StatusOr<std::unique_ptr<llvm::orc::LLJIT>> MakeJit() {
  static std::once_flag once;
  std::call_once(once, [] { llvm::InitializeNativeTarget(); });
  auto host = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!host) return CannotStart(host.takeError());
  auto jit =
      llvm::orc::LLJITBuilder()
          .setJITTargetMachineBuilder(std::move(*host))
          .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
          .setLinkProcessSymbolsByDefault(false)
          .setObjectLinkingLayerCreator(
              [](llvm::orc::ExecutionSession& session)
                  -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> {
                auto memory = llvm::jitlink::InProcessMemoryManager::Create();
                if (!memory) return memory.takeError();
                return std::make_unique<llvm::orc::ObjectLinkingLayer>(
                    session,
                    std::unique_ptr<llvm::jitlink::JITLinkMemoryManager>(std::move(*memory)));
              })
          .create();
  if (!jit) return CannotStart(jit.takeError());
  (*jit)->getExecutionSession().setErrorReporter(
      [](llvm::Error error) { llvm::consumeError(std::move(error)); });
  return std::move(*jit);
}

}  // namespace beamd

// What a compile worker does: kernels in, machine code out. Everything that may crash inside LLVM
// or the lowering passes crashes here.
#pragma once

#include <map>
#include <memory>

#include "engine/kernel/kernel.h"
#include "engine/llvm/compiler.h"
#include "server/workers/child_main.h"

namespace beamd {

// Not thread-safe: a child serves one task at a time.
class CompileHandler final : public TaskHandler {
 public:
  absl::Status Start(internal::Hello& hello) override;
  absl::Status AddContext(const internal::AddContext& context) override;
  void DropContext(uint64_t id) override;
  absl::Status Handle(const internal::Frame& request, internal::Frame& reply) override;

 private:
  // A kernel without opts, in its own graph.
  struct Context {
    TargetCaps caps;
    UOpGraph graph;
    std::unique_ptr<Kernel> kernel;
  };
  void Compile(const internal::CompileRequest& request, internal::CompileReply& reply);
  absl::Status Show(const internal::ShowRequest& request, internal::ShowReply& reply);
  absl::StatusOr<KernelCompiler*> CompilerFor(const TargetCaps& caps);

  std::map<uint64_t, std::unique_ptr<Context>> contexts_;
  // The one in use; another target replaces it.
  TargetCaps compiler_caps_;
  std::unique_ptr<KernelCompiler> compiler_;
};

}  // namespace beamd

#include "server/workers/compile_handler.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/lower/pipeline.h"
#include "engine/search/pipeline.h"
#include "engine/uop/text.h"
#include "server/execution/schedule_graph.h"
#include "server/workers/checked_graph.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

// Sums of products, and a sine of each: vectors, loops and a call.
constexpr absl::string_view kFirstKernel = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (30,64,1) strides (64,1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (30,64,96) strides (96,0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (30,64,96) strides (0,1,64) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (2)
%10 = SIN float32 (%9)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))";

}  // namespace

// LLVM's first compile pages code in, fills tables and resolves symbols: more than any candidate
// takes, so none shall pay for it.
absl::Status CompileHandler::Start(internal::Hello&) {
  const TargetCaps caps = HostCaps();
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(const UOp ast, ParseText(kFirstKernel, graph));
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Create(ast, caps));
  BEAMD_ASSIGN_OR_RETURN(KernelCompiler* const compiler, CompilerFor(caps));
  return compiler->Compile(HandCodedOptimizations(kernel), {}).status();
}

absl::Status CompileHandler::AddContext(const internal::AddContext& context) {
  auto added = std::make_unique<Context>();
  added->caps = FromFrame(context.caps());
  BEAMD_ASSIGN_OR_RETURN(const UOp ast, CheckedGraph(context.graph(), added->graph));
  BEAMD_ASSIGN_OR_RETURN(Kernel kernel, Kernel::Create(ast, added->caps));
  added->kernel = std::make_unique<Kernel>(std::move(kernel));
  contexts_[context.id()] = std::move(added);
  return absl::OkStatus();
}

void CompileHandler::DropContext(uint64_t id) { contexts_.erase(id); }

absl::Status CompileHandler::Handle(const internal::Frame& request, internal::Frame& reply) {
  if (request.has_compile()) {
    Compile(request.compile(), *reply.mutable_compiled());
    return absl::OkStatus();
  }
  if (request.has_show()) {
    const absl::Status status = Show(request.show(), *reply.mutable_shown());
    reply.mutable_shown()->set_code(static_cast<int>(status.code()));
    reply.mutable_shown()->set_message(std::string(status.message()));
    return absl::OkStatus();
  }
  if (request.has_plan()) {
    internal::PlanReply& planned = *reply.mutable_planned();
    *planned.mutable_outcome() = ToFrame(ScheduleGraph(request.plan(), planned));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a compile worker was sent a frame that is no compile");
}

absl::StatusOr<KernelCompiler*> CompileHandler::CompilerFor(const TargetCaps& caps) {
  if (!compiler_ || !(compiler_caps_ == caps)) {
    BEAMD_ASSIGN_OR_RETURN(compiler_, KernelCompiler::Create(caps));
    compiler_caps_ = caps;
  }
  return compiler_.get();
}

void CompileHandler::Compile(const internal::CompileRequest& request,
                             internal::CompileReply& reply) {
  const absl::Time start = absl::Now();
  const auto fail = [&](Failure failure, const absl::Status& status) {
    reply.set_failure(static_cast<uint32_t>(failure));
    reply.set_detail(std::string(status.message()));
    reply.set_compile_ns(absl::ToInt64Nanoseconds(absl::Now() - start));
  };
  const auto context = contexts_.find(request.context());
  if (context == contexts_.end()) {
    return fail(Failure::kCompileError, absl::InternalError("the kernel never arrived"));
  }
  Kernel kernel = *context->second->kernel;
  if (const absl::Status status = kernel.ApplyAll(FromWire(request.opts())); !status.ok()) {
    return fail(Failure::kIllegalOpt, status);
  }
  const absl::StatusOr<KernelCompiler*> compiler = CompilerFor(context->second->caps);
  if (!compiler.ok()) return fail(Failure::kCompileError, compiler.status());
  CompileOptions options;
  options.max_uops = request.max_uops();
  const absl::StatusOr<CompileResult> result = (*compiler)->Compile(kernel, options);
  if (!result.ok()) return fail(CompileFailure(result.status()), result.status());
  *reply.mutable_image() = ToFrame(result->image);
  reply.set_compile_ns(absl::ToInt64Nanoseconds(absl::Now() - start));
}

absl::Status CompileHandler::Show(const internal::ShowRequest& request,
                                  internal::ShowReply& reply) {
  const absl::Time start = absl::Now();
  const auto context = contexts_.find(request.context());
  if (context == contexts_.end()) return absl::InternalError("the kernel never arrived");
  Kernel kernel = *context->second->kernel;
  if (request.heuristic()) {
    kernel = HandCodedOptimizations(kernel);
  } else if (const absl::Status status = kernel.ApplyAll(FromWire(request.opts())); !status.ok()) {
    // Here the list is the client's, and so is the mistake.
    return absl::InvalidArgumentError(status.message());
  }
  BEAMD_ASSIGN_OR_RETURN(KernelCompiler* const compiler, CompilerFor(context->second->caps));
  CompileOptions options;
  options.dump = request.pass();
  BEAMD_ASSIGN_OR_RETURN(const CompileResult result, compiler->Compile(kernel, options));
  if (result.dump.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no pass \"", request.pass(), "\"; there are ",
                                                   absl::StrJoin(LowerPassNames(), ", "),
                                                   ", ir, opt, asm"));
  }
  // What nothing was applied to is the client's own graph, which it may submit again.
  const bool as_sent = request.pass() == "ast" && kernel.applied_opts().empty();
  reply.set_text(as_sent ? ToText(kernel.ast()) : result.dump);
  *reply.mutable_opts() = ToWire(kernel.applied_opts());
  reply.set_uop_count(result.image.uop_count);
  reply.set_compile_ns(absl::ToInt64Nanoseconds(absl::Now() - start));
  return absl::OkStatus();
}

}  // namespace beamd

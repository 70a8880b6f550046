#include "server/execution/session_handler.h"

#include <malloc.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/registry.h"
#include "engine/base/status.h"
#include "engine/uop/wire.h"
#include "server/workers/codec.h"
#include "server/workers/spawn.h"

namespace beamd {

absl::Status SessionHandler::Start(internal::Hello& hello) {
  BEAMD_ASSIGN_OR_RETURN(device_, OpenDevice(options_.device));
  BEAMD_ASSIGN_OR_RETURN(kernels_, LoadedKernels::Create(*device_));
  memory_ = std::make_unique<SessionMemory>(*device_);
  hello.mutable_device()->set_id(options_.device);
  return absl::OkStatus();
}

absl::Status SessionHandler::Attach(const internal::Attach& attach, int file) {
  switch (attach.kind()) {
    case internal::Attach::TURN: {
      BEAMD_ASSIGN_OR_RETURN(turn_, DeviceTurn::Open(file));
      memory_->set_turn(turn_.get());
      break;
    }
    case internal::Attach::GROUP_TURN: {
      BEAMD_ASSIGN_OR_RETURN(group_turn_, DeviceTurn::Open(file));
      break;
    }
    case internal::Attach::PAGE: {
      BEAMD_ASSIGN_OR_RETURN(page_, RunPage::Open(file));
      break;
    }
    default:
      return memory_->Attach(attach.id(), file, attach.bytes(), attach.writable());
  }
  if (turn_ != nullptr) {
    turn_->set_page(page_.get());
    turn_->set_group(group_turn_.get());
  }
  return absl::OkStatus();
}

void SessionHandler::MoveTo(const std::vector<int>& cores) {
  if (cores.empty() || cores_ == &cores) return;
  // Advice: where the kernel refuses it, kernels run elsewhere.
  BindToCores(cores).IgnoreError();
  cores_ = &cores;
}

absl::Status SessionHandler::Handle(const internal::Frame& request, internal::Frame& reply) {
  ++tasks_;
  absl::Status status;
  if (request.has_run()) {
    MoveTo(options_.device_cores);
    status = Run(request.run(), *reply.mutable_ran());
    *reply.mutable_ran()->mutable_outcome() = ToFrame(status);
  } else if (request.has_fetch()) {
    MoveTo(options_.device_cores);
    status = Fetch(request.fetch(), *reply.mutable_fetched());
    *reply.mutable_fetched()->mutable_outcome() = ToFrame(status);
  } else if (request.has_plan()) {
    MoveTo(options_.compile_cores);
    status = MakePlan(request.plan(), *reply.mutable_planned());
    *reply.mutable_planned()->mutable_outcome() = ToFrame(status);
    if (!status.ok()) malloc_trim(0);
  } else if (request.has_build()) {
    MoveTo(options_.compile_cores);
    status = Build(request.build(), *reply.mutable_built());
    *reply.mutable_built()->mutable_outcome() = ToFrame(status);
    // What is half built is of no use.
    if (!status.ok()) plans_.erase(request.build().plan());
    // What planning and compiling took is many times what a plan keeps.
    malloc_trim(0);
  } else {
    return absl::InvalidArgumentError("a session's runner was sent a frame that is none of its");
  }
  // A device that is lost is so for this process; the next one opens it anew.
  if (!status.ok() && !device_->Wait().ok()) reply.set_ends("device");
  return absl::OkStatus();
}

absl::Status SessionHandler::MakePlan(const internal::PlanRequest& request,
                                      internal::PlanReply& reply) {
  const absl::Time start = absl::Now();
  plans_.erase(request.replaces());
  auto made = std::make_unique<Plan>();
  std::vector<UOp> nodes;
  GraphLimits limits;
  limits.max_nodes = request.graph().nodes_size();
  limits.max_buffers = request.graph().nodes_size() + 1;
  BEAMD_ASSIGN_OR_RETURN(const UOp root, FromProto(request.graph(), made->graph, limits, &nodes));
  BEAMD_ASSIGN_OR_RETURN(
      made->plan,
      GraphPlan::Create(*kernels_, options_.device, root, request.inputs(),
                        {request.gradients().data(), static_cast<size_t>(request.gradients_size())},
                        nodes));
  for (const GraphKernel& kernel : made->plan->kernels()) ToFrame(kernel, *reply.add_kernels());
  for (const GraphPlan::Output& output : made->plan->outputs()) {
    internal::PlanOutput& to = *reply.add_outputs();
    to.set_memory(static_cast<uint32_t>(output.memory));
    to.set_scalar(static_cast<uint32_t>(output.dtype));
    to.mutable_shape()->Add(output.shape.begin(), output.shape.end());
    to.set_bytes(output.size_bytes());
  }
  reply.set_scratch_bytes(made->plan->scratch_bytes());
  reply.set_launches(static_cast<uint32_t>(made->plan->launches()));
  reply.set_schedule_ns(absl::ToInt64Nanoseconds(absl::Now() - start));
  made->used = tasks_;
  plans_[request.plan()] = std::move(made);
  if (static_cast<int64_t>(plans_.size()) > options_.plans) {
    plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
      return a.second->used < b.second->used;
    }));
  }
  return absl::OkStatus();
}

absl::Status SessionHandler::Build(const internal::BuildRequest& request,
                                   internal::BuildReply& reply) {
  const absl::Time start = absl::Now();
  const auto at = plans_.find(request.plan());
  if (at == plans_.end() || at->second->built) {
    reply.set_unknown(true);
    return absl::OkStatus();
  }
  GraphPlan& plan = *at->second->plan;
  if (static_cast<size_t>(request.kernels_size()) != plan.kernels().size()) {
    return absl::InternalError("a plan is built of other kernels");
  }
  std::vector<KernelImage> images;
  images.reserve(plan.kernels().size());
  std::vector<GraphPlan::Choice> choices;
  for (const internal::BuildRequest::Choice& from : request.kernels()) {
    GraphPlan::Choice& choice = choices.emplace_back();
    choice.opts = FromWire(from.opts());
    if (from.has_image()) choice.image = &images.emplace_back(FromFrame(from.image()));
  }
  BEAMD_ASSIGN_OR_RETURN(const std::vector<GraphPlan::Built> built, plan.Build(choices));
  for (const GraphPlan::Built& from : built) {
    internal::BuildReply::Built& to = *reply.add_kernels();
    to.set_name(from.name);
    *to.mutable_opts() = ToWire(from.opts);
    if (from.compiled) *to.mutable_image() = ToFrame(*from.compiled);
  }
  at->second->built = true;
  reply.set_compile_ns(absl::ToInt64Nanoseconds(absl::Now() - start));
  return absl::OkStatus();
}

absl::Status SessionHandler::Run(const internal::RunPlanRequest& request,
                                 internal::RunPlanReply& reply) {
  const auto at = plans_.find(request.plan());
  if (at == plans_.end() || !at->second->built) {
    reply.set_unknown(true);
    return absl::OkStatus();
  }
  at->second->used = tasks_;
  std::vector<Buffer*> memories;
  memories.reserve(static_cast<size_t>(request.memories_size()));
  for (int i = 0; i < request.memories_size(); ++i) {
    const uint64_t id = request.memories(i);
    const absl::StatusOr<Buffer*> memory =
        memory_->Get(id, i < request.states_size() ? request.states(i) : internal::HELD);
    if (absl::IsNotFound(memory.status())) {
      reply.add_lost(id);
    } else {
      BEAMD_RETURN_IF_ERROR(memory.status());
      memories.push_back(*memory);
    }
  }
  if (reply.lost_size() > 0) return absl::OkStatus();
  const VariableValues variables(request.variables().begin(), request.variables().end());
  GraphPlan::Result result;
  const auto stops = [&] { return page_ != nullptr && page_->IsStopped(request.run()); };
  absl::Status status = at->second->plan->Run(
      memories, variables, {.turn = turn_.get(), .stops = stops, .profile = request.profile()},
      result);
  reply.set_began(result.began);
  reply.set_run_s(result.run_s);
  reply.set_wait_s(result.wait_s);
  for (const GraphPlan::Launched& launched : result.launches) {
    internal::RunPlanReply::Launch& to = *reply.add_launches();
    to.set_kernel(static_cast<uint32_t>(launched.kernel));
    to.set_seconds(launched.seconds);
  }
  uint64_t bytes = 0;
  const std::vector<GraphPlan::Output>& outputs = at->second->plan->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<int64_t>& shape = result.shapes.empty() ? outputs[i].shape : result.shapes[i];
    uint64_t size = SizeBytes(outputs[i].dtype);
    for (const int64_t n : shape) size *= static_cast<uint64_t>(n);
    bytes += size;
  }
  for (const std::vector<int64_t>& shape : result.shapes) {
    reply.add_shapes()->mutable_sizes()->Add(shape.begin(), shape.end());
  }
  if (!status.ok() || bytes > request.fetch_most()) return status;
  for (const uint64_t id : request.fetch()) BEAMD_RETURN_IF_ERROR(memory_->Fetch(id));
  reply.set_fetched(true);
  return absl::OkStatus();
}

absl::Status SessionHandler::Fetch(const internal::FetchRequest& request,
                                   internal::FetchReply& reply) {
  const absl::Status status = memory_->Fetch(request.memory());
  reply.set_lost(absl::IsNotFound(status));
  return reply.lost() ? absl::OkStatus() : status;
}

}  // namespace beamd

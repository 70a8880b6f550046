#include "server/execution/schedule_graph.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/kernel/vector_products.h"
#include "engine/lazy/lazy_context.h"
#include "engine/shape/verify_tensor.h"
#include "engine/tensor/graph.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/wire.h"
#include "server/workers/codec.h"

namespace beamd {

std::vector<Opt> HandCodedOpts(const Kernel& kernel) {
  return HandCodedOptimizations(kernel).applied_opts();
}

std::vector<Opt> UntunedOpts(const Kernel& kernel) {
  if (kernel.caps().kind != TargetKind::kCpu) return HandCodedOpts(kernel);
  return CpuOptimizations(kernel).applied_opts();
}

absl::StatusOr<std::vector<GraphKernel>> KernelsOf(const Schedule& schedule, const TargetCaps& caps,
                                                   UOpGraph& graph, Heuristics heuristics,
                                                   std::vector<int>* of_item) {
  std::vector<GraphKernel> kernels;
  absl::flat_hash_map<UOp, int> known;  // by canonical form
  absl::flat_hash_map<std::string, int> named;
  for (const ScheduleItem& item : schedule.items) {
    if (of_item != nullptr) of_item->push_back(-1);
    if (item.kind != ScheduleItem::Kind::kKernel) continue;
    const UOp canonical = CanonicalKernel(item.ast, graph);
    const auto [at, fresh] = known.try_emplace(canonical, static_cast<int>(kernels.size()));
    if (fresh) {
      GraphKernel& kernel = kernels.emplace_back();
      kernel.ast = canonical;
      kernel.hash = KernelHash(canonical);
      kernel.cost = CostOf(canonical);
      UOpGraph scratch;  // what opts make of symbolic sizes goes with it
      BEAMD_ASSIGN_OR_RETURN(Kernel opted, Kernel::Create(scratch.Import(canonical), caps));
      kernel.heuristic_opts = heuristics(opted);
      BEAMD_RETURN_IF_ERROR(opted.ApplyAll(kernel.heuristic_opts));
      kernel.name = opted.name();
      if (const int same = named[kernel.name]++; same > 0) absl::StrAppend(&kernel.name, "n", same);
    }
    ++kernels[static_cast<size_t>(at->second)].launches;
    if (of_item != nullptr) of_item->back() = at->second;
  }
  return kernels;
}

void ToFrame(const GraphKernel& kernel, internal::PlanKernel& to) {
  to.set_name(kernel.name);
  *to.mutable_graph() = ToProto(kernel.ast);
  to.set_hash(kernel.hash.Hex());
  to.set_launches(static_cast<uint32_t>(kernel.launches));
  to.set_flops(kernel.cost.operations);
  to.set_bytes(kernel.cost.bytes);
  *to.mutable_heuristic_opts() = ToWire(kernel.heuristic_opts);
}

absl::Status ScheduleGraph(const internal::PlanRequest& request, internal::PlanReply& reply) {
  const absl::Time start = absl::Now();
  UOpGraph graph;
  std::vector<UOp> nodes;
  GraphLimits limits;
  limits.max_nodes = request.graph().nodes_size();
  limits.max_buffers = std::max(limits.max_buffers, request.graph().nodes_size() + 1);
  BEAMD_ASSIGN_OR_RETURN(const UOp root, FromProto(request.graph(), graph, limits, &nodes));
  const int64_t last = request.graph().nodes_size() - 1;
  if (IsKernelGraph(root)) {
    return InvalidArgument("a kernel, not a tensor graph",
                           {.reason = "KERNEL", .node = last, .field = "op"});
  }
  TensorGraphLimits tensor_limits;
  tensor_limits.max_nodes = std::max(tensor_limits.max_nodes, limits.max_nodes);
  LazyContext context;
  beamd::Schedule schedule;
  {
    BEAMD_ASSIGN_OR_RETURN(const GraphTensors tensors,
                           TensorsFromGraph(context, root, {}, nodes, tensor_limits));
    std::vector<LazyBuffer> roots;
    for (const Tensor& output : tensors.outputs) roots.push_back(output.lazydata());
    BEAMD_ASSIGN_OR_RETURN(schedule, CreateSchedule(roots));
  }
  if (!root.is(Op::kSink) && schedule.items.empty()) {
    return InvalidArgument(
        absl::StrCat("the last node, ", Name(root.op()),
                     ", computes nothing: end the graph with a SINK of its results"),
        {.reason = "NO_SINK", .node = last, .field = "op"});
  }
  UOpGraph canonical;
  BEAMD_ASSIGN_OR_RETURN(const std::vector<GraphKernel> kernels,
                         KernelsOf(schedule, FromFrame(request.caps()), canonical, HandCodedOpts));
  for (const GraphKernel& kernel : kernels) ToFrame(kernel, *reply.add_kernels());
  reply.set_launches(static_cast<uint32_t>(schedule.kernel_count()));
  reply.set_schedule_ns(absl::ToInt64Nanoseconds(absl::Now() - start));
  return absl::OkStatus();
}

}  // namespace beamd

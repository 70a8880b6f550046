// The kernels that a tensor graph comes to. Nothing here compiles or runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/cost.h"
#include "engine/kernel/kernel.h"
#include "engine/kernel/opt.h"
#include "engine/schedule/schedule.h"
#include "engine/uop/uop.h"
#include "server/workers/frames.pb.h"

namespace beamd {

// A kernel of a schedule; equal ones are one.
struct GraphKernel {
  UOp ast;           // canonical (engine/uop/kernel_hash.h)
  Digest hash;       // of it
  std::string name;  // under these opts: "r_64_64_4", "r_64_64_4n1" the next of that shape
  std::vector<Opt> heuristic_opts;
  KernelCost cost;
  int launches = 0;
};

// The opts of a kernel that nobody tuned: what a session's run takes, and what the tuner's searches
// are compared with (engine/kernel/vector_products.h says why the two differ on CPUs).
using Heuristics = std::vector<Opt> (*)(const Kernel& kernel);
std::vector<Opt> UntunedOpts(const Kernel& kernel);
std::vector<Opt> HandCodedOpts(const Kernel& kernel);

// The kernels of a schedule, in the order in which they first run, made in `graph`; `of_item`, where
// given, gets the place of each item's kernel, -1 for a copy or a view. The errors of
// Kernel::Create.
absl::StatusOr<std::vector<GraphKernel>> KernelsOf(const Schedule& schedule, const TargetCaps& caps,
                                                   UOpGraph& graph, Heuristics heuristics,
                                                   std::vector<int>* of_item = nullptr);

// What stands in a reply of a kernel.
void ToFrame(const GraphKernel& kernel, internal::PlanKernel& to);

// The kernels of the request's graph for the request's target, whose BUFFERs nobody has: for
// Executor.ScheduleModel. InvalidArgument naming the node: what TensorsFromGraph refuses, a kernel's
// graph, one that computes nothing; FailedPrecondition: what CreateSchedule refuses.
absl::Status ScheduleGraph(const internal::PlanRequest& request, internal::PlanReply& reply);

}  // namespace beamd

// A tensor graph as the kernels that it schedules to, found here and without a daemon.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/target_caps.h"
#include "engine/kernel/cost.h"
#include "engine/kernel/opt.h"
#include "engine/lazy/lazy_context.h"
#include "engine/schedule/schedule.h"
#include "engine/shape/view.h"
#include "engine/tensor/graph.h"
#include "engine/uop/uop.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

// A kernel of a schedule; equal ones are one.
struct ModelKernel {
  // Of the heuristics' kernel: "r_64_64_4_4_24_4"; "r_64_64_4_4_24_4n1" is the next of that shape.
  std::string name;
  UOp ast;                // of Schedule::graph
  std::string hash;       // as the daemon names it
  std::vector<Opt> opts;  // that the heuristics choose
  KernelCost cost;
  int uses = 0;
};

struct Model {
  LazyContext context;
  GraphTensors tensors;
  Schedule schedule;
  std::vector<ModelKernel> kernels;  // in the order in which they first run
  std::vector<int> kernel_of_item;   // by item of the schedule; -1: a copy or a view
};

// A message's graph, not verified yet.
struct ParsedGraph {
  UOpGraph graph;
  std::vector<UOp> nodes;  // of each message node
  UOp root;
};

// Whether it claims to be a kernel: a SINK of STOREs.
bool IsKernel(const v1::Graph& graph);
// Whether it has ops that only tensor graphs have.
bool HasTensorOps(const v1::Graph& graph);
// InvalidArgument for a kernel.
absl::Status ParseTensorGraph(const v1::Graph& message, ParsedGraph& parsed);

// The target that `kind` ("cpu", "cuda", "hip"; "" is "cpu") names for the heuristics.
// InvalidArgument for another.
absl::StatusOr<TargetCaps> TargetOfKind(absl::string_view kind);

// InvalidArgument where `graph` is no tensor graph (it may be a kernel's), with the node;
// FailedPrecondition where it can't be put in order.
absl::StatusOr<std::unique_ptr<Model>> ScheduleModel(const v1::Graph& graph,
                                                     const TargetCaps& caps);

// "(64,784)", "(n,3)".
std::string ShapeText(const Shape& shape);

}  // namespace beamd

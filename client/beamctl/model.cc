#include "client/beamctl/model.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/uop/kernel_hash.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

absl::StatusOr<ModelKernel> DescribeKernel(UOp ast, const TargetCaps& caps) {
  ModelKernel described;
  described.ast = ast;
  described.hash = KernelHash(ast).Hex();
  described.cost = CostOf(ast);
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Create(ast, caps));
  const Kernel optimised = HandCodedOptimizations(kernel);
  described.name = optimised.name();
  described.opts = optimised.applied_opts();
  return described;
}

}  // namespace

absl::StatusOr<TargetCaps> TargetOfKind(absl::string_view kind) {
  if (kind.empty() || kind == "cpu") return CorpusTarget(TargetKind::kCpu);
  if (kind == "cuda") return CorpusTarget(TargetKind::kCuda);
  if (kind == "hip") return CorpusTarget(TargetKind::kHip);
  return absl::InvalidArgumentError(absl::StrCat("no kind of device \"", kind, "\""));
}

bool IsKernel(const v1::Graph& graph) {
  if (graph.nodes().empty()) return false;
  const v1::Node& root = graph.nodes(graph.nodes_size() - 1);
  return root.op() == v1::OP_SINK && std::ranges::any_of(root.src(), [&](uint32_t src) {
           return src < static_cast<uint32_t>(graph.nodes_size()) &&
                  graph.nodes(static_cast<int>(src)).op() == v1::OP_STORE;
         });
}

bool HasTensorOps(const v1::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const v1::Node& node) {
    return node.op() >= v1::OP_BUFFER && node.op() <= v1::OP_EMPTY;
  });
}

absl::Status ParseTensorGraph(const v1::Graph& message, ParsedGraph& parsed) {
  if (IsKernel(message)) {
    return InvalidArgument("a kernel, not a tensor graph",
                           {.reason = "KERNEL", .node = message.nodes_size() - 1, .field = "op"});
  }
  BEAMD_ASSIGN_OR_RETURN(parsed.root, FromProto(message, parsed.graph, {}, &parsed.nodes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> ScheduleModel(const v1::Graph& graph,
                                                     const TargetCaps& caps) {
  ParsedGraph parsed;
  BEAMD_RETURN_IF_ERROR(ParseTensorGraph(graph, parsed));
  auto model = std::make_unique<Model>();
  BEAMD_ASSIGN_OR_RETURN(model->tensors,
                         TensorsFromGraph(model->context, parsed.root, {}, parsed.nodes));
  std::vector<LazyBuffer> roots;
  for (const Tensor& output : model->tensors.outputs) roots.push_back(output.lazydata());
  BEAMD_ASSIGN_OR_RETURN(model->schedule, CreateSchedule(roots));
  if (!parsed.root.is(Op::kSink) && model->schedule.items.empty()) {
    return InvalidArgument(
        absl::StrCat("the last node, ", Name(parsed.root.op()),
                     ", computes nothing: end the graph with a SINK of its results"),
        {.reason = "NO_SINK", .node = graph.nodes_size() - 1, .field = "op"});
  }
  absl::flat_hash_map<std::string, int> known, named;
  absl::flat_hash_map<UOp, int> of_ast;
  for (const ScheduleItem& item : model->schedule.items) {
    int& index = model->kernel_of_item.emplace_back(-1);
    if (item.kind != ScheduleItem::Kind::kKernel) continue;
    const auto [at, fresh] = of_ast.try_emplace(item.ast, 0);
    if (fresh) {
      BEAMD_ASSIGN_OR_RETURN(ModelKernel kernel, DescribeKernel(item.ast, caps));
      at->second =
          known.try_emplace(kernel.hash, static_cast<int>(model->kernels.size())).first->second;
      if (at->second == static_cast<int>(model->kernels.size())) {
        const int same = named[kernel.name]++;
        if (same > 0) absl::StrAppend(&kernel.name, "n", same);
        model->kernels.push_back(std::move(kernel));
      }
    }
    index = at->second;
    ++model->kernels[index].uses;
  }
  return model;
}

std::string ShapeText(const Shape& shape) {
  const auto text = [](std::string* out, const SInt& v) { absl::StrAppend(out, ToString(v)); };
  return absl::StrCat("(", absl::StrJoin(shape, ",", text), ")");
}

}  // namespace beamd

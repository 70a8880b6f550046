#include "client/beamctl/picture.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/beamctl/model.h"
#include "engine/base/status.h"
#include "engine/schedule/dot.h"
#include "engine/shape/verify_tensor.h"
#include "engine/uop/dot.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

// What a node's line and its box add: nothing where its argument is the shape, or there are no axes.
std::string ShapeOf(const TensorGraphInfo& info, UOp u) {
  const bool told = u.is(Op::kBuffer | Op::kEmpty | Op::kReshape | Op::kExpand | Op::kSink);
  return told || info.shape(u).empty() ? "" : ShapeText(info.shape(u));
}

}  // namespace

absl::StatusOr<std::string> TensorText(const v1::Graph& graph) {
  ParsedGraph parsed;
  BEAMD_RETURN_IF_ERROR(ParseTensorGraph(graph, parsed));
  BEAMD_ASSIGN_OR_RETURN(const TensorGraphInfo info, VerifyTensorGraph(parsed.root, parsed.nodes));
  // A node a line, in the order of Toposort.
  std::vector<std::string> lines = absl::StrSplit(ToText(parsed.root), '\n', absl::SkipEmpty());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string shape = ShapeOf(info, info.nodes()[i]);
    if (!shape.empty()) absl::StrAppend(&lines[i], "  # ", shape);
  }
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

absl::StatusOr<std::string> Draw(const v1::Graph& graph, PictureOf picture) {
  const auto nothing = [](UOp) { return std::string(); };
  if (picture == PictureOf::kTensors) {
    ParsedGraph parsed;
    BEAMD_RETURN_IF_ERROR(ParseTensorGraph(graph, parsed));
    BEAMD_ASSIGN_OR_RETURN(const TensorGraphInfo info,
                           VerifyTensorGraph(parsed.root, parsed.nodes));
    Dot dot("tensors");
    AddGraph(
        parsed.root, "", [&](UOp u) { return ShapeOf(info, u); }, dot);
    return dot.Finish();
  }
  if (picture == PictureOf::kKernels && IsKernel(graph)) {
    UOpGraph kernel;
    BEAMD_ASSIGN_OR_RETURN(const UOp sink, KernelFromProto(graph, kernel));
    Dot dot("kernel");
    AddGraph(sink, "", nothing, dot);
    return dot.Finish();
  }
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                         ScheduleModel(graph, CorpusTarget(TargetKind::kCpu)));
  if (picture == PictureOf::kSchedule) {
    std::vector<std::string> names;
    for (size_t i = 0; i < model->schedule.items.size(); ++i) {
      const int kernel = model->kernel_of_item[i];
      names.push_back(kernel < 0 ? "" : model->kernels[kernel].name);
    }
    return ScheduleDot(model->schedule, names);
  }
  Dot dot("kernels");
  for (size_t i = 0; i < model->kernels.size(); ++i) {
    const ModelKernel& kernel = model->kernels[i];
    dot.BeginCluster(
        absl::StrCat(kernel.name, kernel.uses > 1 ? absl::StrCat(", used ", kernel.uses) : ""));
    AddGraph(kernel.ast, absl::StrCat("k", i, "_"), nothing, dot);
    dot.EndCluster();
  }
  return dot.Finish();
}

}  // namespace beamd

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/lower/pipeline.h"
#include "tests/conformance/check.h"

namespace beamd::conformance {
namespace {

absl::StatusOr<std::string> Failure(const Kernel& kernel) {
  UOpGraph graph;
  const absl::Status status = Lower(kernel, graph, {}).status();
  return status.ok() ? "" : absl::StrCat(ToString(kernel.applied_opts()), ": ", status.ToString());
}

}  // namespace

absl::StatusOr<Tally> CheckLowering(const CheckInput& input) {
  BEAMD_ASSIGN_OR_RETURN(std::vector<WrittenHeuristics> lines,
                         input.recorded->Heuristics(TargetName(input.target)));
  Tally tally;
  for (const WrittenHeuristics& line : Sampled(std::move(lines), input)) {
    UOpGraph graph;
    const absl::StatusOr<Kernel> kernel = MakeKernel(line.id, input, graph);
    Count(line.id, kernel.ok() ? Failure(HandCodedOptimizations(*kernel)) : kernel.status(), input,
          tally);
  }
  return tally;
}

}  // namespace beamd::conformance

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "tests/conformance/check.h"

namespace beamd::conformance {
namespace {

std::string Difference(const WrittenHeuristics& written, const Kernel& fresh) {
  // Lines of `hot` don't state it.
  if (!written.fresh_shape.empty() &&
      !SameSizes(written.fresh_shape, fresh.full_shape(), fresh.ast())) {
    return absl::StrCat("fresh shape ", ToString(fresh.full_shape()), ", recorded ",
                        ToString(written.fresh_shape));
  }
  const Kernel chosen = HandCodedOptimizations(fresh);
  if (chosen.applied_opts() != written.opts) {
    return absl::StrCat("of ", ToString(fresh.full_shape()), " opts ",
                        ToString(chosen.applied_opts()), ", recorded ", ToString(written.opts));
  }
  return StateDifference(written.state, chosen);
}

}  // namespace

absl::StatusOr<Tally> CheckHeuristics(const CheckInput& input) {
  BEAMD_ASSIGN_OR_RETURN(std::vector<WrittenHeuristics> lines,
                         input.recorded->Heuristics(TargetName(input.target)));
  Tally tally;
  for (const WrittenHeuristics& line : Sampled(std::move(lines), input)) {
    UOpGraph graph;
    const absl::StatusOr<Kernel> kernel = MakeKernel(line.id, input, graph);
    Count(line.id,
          kernel.ok() ? absl::StatusOr<std::string>(Difference(line, *kernel)) : kernel.status(),
          input, tally);
  }
  return tally;
}

}  // namespace beamd::conformance

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/search/actions.h"
#include "tests/conformance/check.h"

namespace beamd::conformance {
namespace {

std::string Difference(const WrittenWalk& written, const Kernel& fresh) {
  Kernel kernel = fresh;
  if (const absl::Status status = kernel.ApplyAll(written.required); !status.ok()) {
    return std::string(status.message());
  }
  for (size_t i = 0; i < written.steps.size(); ++i) {
    const WrittenWalk::Step& step = written.steps[i];
    const auto legal = LegalActions(kernel, {});
    std::string why = LegalDifference(step.legal, legal);
    const auto taken = std::find_if(legal.begin(), legal.end(),
                                    [&](const auto& action) { return action.first == step.take; });
    if (why.empty() && taken == legal.end()) why = "the step is taken but not listed";
    if (why.empty()) why = StateDifference(step.state, taken->second);
    if (!why.empty()) {
      return absl::StrCat("after ", ToString(kernel.applied_opts()), ": ", why);
    }
    kernel = taken->second;
  }
  return "";
}

}  // namespace

absl::StatusOr<Tally> CheckWalks(const CheckInput& input) {
  BEAMD_ASSIGN_OR_RETURN(std::vector<WrittenWalk> lines,
                         input.recorded->Walks(TargetName(input.target)));
  Tally tally;
  for (const WrittenWalk& line : Sampled(std::move(lines), input)) {
    UOpGraph graph;
    const absl::StatusOr<Kernel> kernel = MakeKernel(line.id, input, graph);
    Count(line.id,
          kernel.ok() ? absl::StatusOr<std::string>(Difference(line, *kernel)) : kernel.status(),
          input, tally);
  }
  return tally;
}

}  // namespace beamd::conformance

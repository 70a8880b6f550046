#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/search/actions.h"
#include "tests/conformance/check.h"

namespace beamd::conformance {
namespace {

std::string Difference(const WrittenActions& written, const Kernel& fresh) {
  const Kernel kernel = RequiredOptimizations(fresh);
  const auto legal = LegalActions(kernel, {});
  if (std::string why = LegalDifference(written.legal, legal); !why.empty()) return why;
  if (!written.then) return "";
  for (const auto& [number, next] : legal) {
    if (number != *written.then) continue;
    std::string why = StateDifference(written.state, next);
    if (why.empty()) why = LegalDifference(written.legal_after, LegalActions(next, {}));
    return why.empty() ? "" : absl::StrCat("after ", *written.then, ": ", why);
  }
  return absl::StrCat("action ", *written.then, " is taken but not listed");
}

}  // namespace

absl::StatusOr<Tally> CheckActions(const CheckInput& input) {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<Opt> list,
                         input.recorded->ActionList(TargetName(input.target)));
  if (list != Actions({})) {
    return absl::FailedPreconditionError("the recorded action list is not ours");
  }
  BEAMD_ASSIGN_OR_RETURN(std::vector<WrittenActions> lines,
                         input.recorded->Actions(TargetName(input.target)));
  Tally tally;
  for (const WrittenActions& line : Sampled(std::move(lines), input)) {
    UOpGraph graph;
    const absl::StatusOr<Kernel> kernel = MakeKernel(line.id, input, graph);
    Count(line.id,
          kernel.ok() ? absl::StatusOr<std::string>(Difference(line, *kernel)) : kernel.status(),
          input, tally);
  }
  return tally;
}

}  // namespace beamd::conformance

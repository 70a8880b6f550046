#include "tests/testing/walk.h"

#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "engine/search/actions.h"

namespace beamd::testing {

Kernel RandomWalk(Kernel kernel, uint64_t steps, std::mt19937_64& random) {
  for (uint64_t step = 0; step < steps; ++step) {
    std::vector<std::pair<int, Kernel>> legal = LegalActions(kernel, {});
    if (legal.empty()) break;
    std::set<OptOp> kinds;
    for (const auto& [unused, next] : legal) kinds.insert(next.applied_opts().back().op);
    const OptOp kind = *std::next(kinds.begin(), static_cast<int64_t>(random() % kinds.size()));
    std::erase_if(legal, [&](const auto& l) { return l.second.applied_opts().back().op != kind; });
    kernel = std::move(legal[random() % legal.size()].second);
  }
  return kernel;
}

}  // namespace beamd::testing

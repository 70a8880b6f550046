#include "tests/conformance/variants.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "engine/base/hash.h"
#include "engine/search/actions.h"

namespace beamd::conformance {
namespace {

constexpr int kWalks = 3;
constexpr int kMostSteps = 5;

}  // namespace

std::vector<Kernel> Variants(const Kernel& kernel, const std::string& id) {
  std::vector<Kernel> variants = {kernel, HandCodedOptimizations(kernel)};
  std::mt19937_64 random(HashBytes(id).Prefix());
  for (int walk = 0; walk < kWalks; ++walk) {
    Kernel k = kernel;
    const int steps = 1 + static_cast<int>(random() % kMostSteps);
    for (int step = 0; step < steps; ++step) {
      std::vector<std::pair<int, Kernel>> legal = LegalActions(k, ActionOptions());
      if (legal.empty()) break;
      std::set<OptOp> kinds;
      for (const auto& [unused, next] : legal) kinds.insert(next.applied_opts().back().op);
      const OptOp kind = *std::next(kinds.begin(), static_cast<int64_t>(random() % kinds.size()));
      std::erase_if(legal,
                    [&](const auto& l) { return l.second.applied_opts().back().op != kind; });
      k = std::move(legal[random() % legal.size()].second);
    }
    variants.push_back(std::move(k));
  }
  return variants;
}

}  // namespace beamd::conformance

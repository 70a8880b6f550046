#include "tests/conformance/variants.h"

#include <cstdint>
#include <random>

#include "engine/base/hash.h"
#include "tests/testing/walk.h"

namespace beamd::conformance {
namespace {

constexpr int kWalks = 3;
constexpr int kMostSteps = 5;

}  // namespace

std::vector<Kernel> Variants(const Kernel& kernel, const std::string& id) {
  std::vector<Kernel> variants = {kernel, HandCodedOptimizations(kernel)};
  std::mt19937_64 random(HashBytes(id).Prefix());
  for (int walk = 0; walk < kWalks; ++walk) {
    const uint64_t steps = 1 + random() % kMostSteps;
    variants.push_back(testing::RandomWalk(kernel, steps, random));
  }
  return variants;
}

}  // namespace beamd::conformance

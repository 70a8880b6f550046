// Random tensors in captured programs: each replay draws what running the program anew would.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/option.h"
#include "engine/tensor/tensor.h"
#include "server/execution/plan.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd {
namespace {

using Outputs = absl::StatusOr<std::vector<LazyBuffer>>;

// Two draws of unlike length and a dropout a step.
std::vector<float> RunSteps(bool captures, int steps) {
  const ScopedOption option(options::kJit, captures ? 1 : 0);
  testing::LazyRuntime lazy;
  lazy.context.training = true;
  Tensor::ManualSeed(lazy.context, 5);
  CapturedFunction step(*lazy.runtime, [&](std::span<const LazyBuffer> in) -> Outputs {
    const Tensor dropped = Tensor(in[0]).Dropout(0.5);
    const Tensor noise = Tensor::Rand(lazy.context, {3}), more = Tensor::Rand(lazy.context, {7});
    const Tensor result = dropped.Cat({noise, more});
    if (!result.ok()) return result.status();
    return std::vector<LazyBuffer>{result.lazydata()};
  });
  std::vector<float> all;
  for (int i = 0; i < steps; ++i) {
    const std::vector<LazyBuffer> inputs{lazy.From<float>({1, 2, 3, 4}, {4})};
    const Outputs outputs = step.Call(inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return {};
    const std::vector<float> values = lazy.Values<float>((*outputs)[0]);
    all.insert(all.end(), values.begin(), values.end());
  }
  EXPECT_EQ(step.plan() != nullptr, captures);
  return all;
}

TEST(CapturedRandom, DrawsWhatRunningAnewWould) {
  const std::vector<float> captured = RunSteps(true, 6), anew = RunSteps(false, 6);
  EXPECT_EQ(captured, anew);
  // All of the 6 * 7 numbers of the last draw differ: no step repeats another.
  std::set<float> seen;
  for (size_t i = 0; i < captured.size(); ++i) {
    if (i % 14 >= 7) seen.insert(captured[i]);
  }
  EXPECT_EQ(seen.size(), 42);
}

}  // namespace
}  // namespace beamd

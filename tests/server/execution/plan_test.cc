#include "server/execution/plan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "devices/cpu/device.h"
#include "engine/base/option.h"
#include "engine/base/profile.h"
#include "engine/dtype/image.h"
#include "engine/lazy/lazy_buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LazyRuntime;
using ::testing::SizeIs;

using Outputs = absl::StatusOr<std::vector<LazyBuffer>>;

constexpr std::array<int, 1> kAxis0{0};

absl::StatusOr<std::unique_ptr<Plan>> Capture(LazyRuntime& lazy,
                                              const std::vector<LazyBuffer>& inputs,
                                              const std::function<LazyBuffer()>& function) {
  return Plan::Capture(*lazy.runtime, inputs,
                       [&]() -> Outputs { return std::vector<LazyBuffer>{function()}; });
}

absl::Status Replay(LazyRuntime& lazy, Plan& plan, const std::vector<LazyBuffer>& inputs) {
  return plan.Run(inputs, lazy.context.bindings());
}

TEST(Plan, ReplaysOnOtherInputs) {
  LazyRuntime lazy;
  const LazyBuffer a = lazy.From<float>({1, 2, 3, 4}, {4});
  const LazyBuffer b = lazy.From<float>({1, 1, 1, 1}, {4});
  const auto plan =
      Capture(lazy, {a, b}, [&] { return ((a + b).Contiguous() * 2).Reduce(Op::kAdd, kAxis0); });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->kernel_count(), 2);
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(28));
  const int64_t compiles = lazy.runtime->compiles(), hits = lazy.runtime->cache_hits();
  const TensorBuffer* const buffer = (*plan)->outputs()[0].base().buffer().get();
  for (float i = 0; i < 3; ++i) {
    const LazyBuffer c = lazy.From<float>({i, i, i, i}, {4});
    ASSERT_TRUE(Replay(lazy, **plan, {b, c}).ok());
    EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(8 + 8 * i));
  }
  EXPECT_EQ(lazy.runtime->compiles(), compiles);
  EXPECT_EQ(lazy.runtime->cache_hits(), hits);
  EXPECT_EQ((*plan)->outputs()[0].base().buffer().get(), buffer);
}

TEST(Plan, TakesInputsThatAreNotRealisedYet) {
  LazyRuntime lazy;
  const LazyBuffer x = lazy.From<float>({1, 2}, {2}) + 1;
  const auto plan = Capture(lazy, {x}, [&] { return x * 10; });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(20, 30));
  ASSERT_TRUE(Replay(lazy, **plan, {lazy.From<float>({5, 6}, {2}) + 2}).ok());
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(70, 80));
}

TEST(Plan, ReplaysWithOtherValuesOfVariables) {
  LazyRuntime lazy;
  const UOp n = lazy.context.Variable("n", 1, 8);
  ASSERT_TRUE(lazy.context.Bind(n, 3).ok());
  const LazyBuffer x = lazy.From<int32_t>({10, 20}, {2});
  const auto plan = Capture(lazy, {x}, [&] {
    return x.Alu(Op::kAdd, LazyBuffer::Const(lazy.context, n, {2}, Scalar::kInt32, x.device()));
  });
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<LazyBuffer> inputs{x};
  const LazyBuffer& y = (*plan)->outputs()[0];
  EXPECT_THAT(lazy.Values<int32_t>(y), ElementsAre(13, 23));
  ASSERT_TRUE((*plan)->Run(inputs, {{"n", 7}, {"other", 1}}).ok());
  EXPECT_THAT(lazy.Values<int32_t>(y), ElementsAre(17, 27));
  const absl::Status none = (*plan)->Run(inputs, {});
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(none.message(), HasSubstr("\"n\""));
  EXPECT_TRUE(absl::IsInvalidArgument((*plan)->Run(inputs, {{"n", 9}})));
  // A refused value is not remembered as the one that is set.
  ASSERT_TRUE((*plan)->Run(inputs, {{"n", 7}}).ok());
  EXPECT_THAT(lazy.Values<int32_t>(y), ElementsAre(17, 27));
}

// w -= x * rate, as an optimiser does it; gives the sum of w before.
struct Step {
  LazyRuntime& lazy;
  LazyBuffer w;
  Outputs operator()(std::span<const LazyBuffer> in) {
    const LazyBuffer sum = (w * in[0]).Reduce(Op::kAdd, kAxis0);
    w = w.Assign(w - in[0] * 0.5f);
    const std::array<LazyBuffer, 2> both{w, sum};
    if (const absl::Status status = lazy.runtime->Realize(both); !status.ok()) return status;
    return std::vector<LazyBuffer>{sum};
  }
};

TEST(CapturedFunction, AssignsWeightsInEachRunAsTheFunctionDoes) {
  std::vector<std::vector<float>> sums;
  for (const int64_t jit : {1, 0}) {
    const ScopedOption option(options::kJit, jit);
    LazyRuntime lazy;
    Step step{lazy, lazy.From<float>({8, 8, 8, 8}, {4})};
    CapturedFunction captured(*lazy.runtime, std::ref(step));
    sums.emplace_back();
    for (float i = 0; i < 6; ++i) {
      const std::vector<LazyBuffer> inputs{lazy.From<float>({i, 1, 2, 3}, {4})};
      const Outputs outputs = captured.Call(inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      sums.back().push_back(lazy.Values<float>((*outputs)[0])[0]);
    }
    EXPECT_EQ(captured.plan() != nullptr, jit == 1);
    EXPECT_THAT(lazy.Values<float>(step.w), ElementsAre(0.5f, 5, 2, -1));
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0][0], 48);
}

TEST(CapturedFunction, ComputesAgainWhatTheCallerStillHolds) {
  LazyRuntime lazy;
  CapturedFunction captured(*lazy.runtime, [&](std::span<const LazyBuffer> in) -> Outputs {
    const LazyBuffer hidden = (in[0] * 2).Contiguous();
    return std::vector<LazyBuffer>{hidden, hidden + 1};
  });
  const std::vector<LazyBuffer> x{lazy.From<float>({1, 2}, {2})};
  const Outputs first = captured.Call(x), second = captured.Call(x);
  ASSERT_TRUE(first.ok() && second.ok()) << second.status();
  EXPECT_EQ(captured.plan()->kernel_count(), 2);
  const std::vector<LazyBuffer> y{lazy.From<float>({5, 6}, {2})};
  ASSERT_TRUE(captured.Call(y).ok());
  EXPECT_THAT(lazy.Values<float>((*first)[1]), ElementsAre(3, 5));
  EXPECT_THAT(lazy.Values<float>((*second)[0]), ElementsAre(10, 12));
  EXPECT_THAT(lazy.Values<float>((*second)[1]), ElementsAre(11, 13));
}

TEST(CapturedFunction, StartsAnewAfterReset) {
  LazyRuntime lazy;
  int calls = 0;
  CapturedFunction captured(*lazy.runtime, [&](std::span<const LazyBuffer> in) -> Outputs {
    ++calls;
    return std::vector<LazyBuffer>{in[0] + 1};
  });
  const std::vector<LazyBuffer> two{lazy.From<float>({1, 2}, {2})};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(captured.Call(two).ok());
  EXPECT_EQ(calls, 2);
  const std::vector<LazyBuffer> three{lazy.From<float>({1, 2, 3}, {3})};
  EXPECT_TRUE(absl::IsInvalidArgument(captured.Call(three).status()));
  captured.Reset();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(captured.Call(three).ok());
  EXPECT_EQ(calls, 4);
}

TEST(Plan, FeedsItsOutputBackAsAnInput) {
  LazyRuntime lazy;
  CapturedFunction captured(*lazy.runtime, [&](std::span<const LazyBuffer> in) -> Outputs {
    // Each output element needs another input element.
    const std::array<int, 1> flip{0};
    return std::vector<LazyBuffer>{(in[0].Flip(flip) + 1).Contiguous()};
  });
  std::vector<LazyBuffer> x{lazy.From<float>({0, 10, 20, 30}, {4})};
  for (int i = 0; i < 5; ++i) {
    const Outputs outputs = captured.Call(x);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    x = *outputs;
  }
  EXPECT_THAT(lazy.Values<float>(x[0]), ElementsAre(35, 25, 15, 5));
  // And takes other memory again.
  const std::vector<LazyBuffer> other{lazy.From<float>({1, 2, 3, 4}, {4})};
  ASSERT_TRUE(captured.Call(other).ok());
  EXPECT_THAT(lazy.Values<float>(x[0]), ElementsAre(5, 4, 3, 2));
}

TEST(Plan, AssignsToItsInput) {
  LazyRuntime lazy;
  const LazyBuffer first = lazy.From<float>({1, 2}, {2});
  const auto plan = Capture(lazy, {first}, [&] { return first.Assign(first + 1); });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(lazy.Values<float>(first), ElementsAre(2, 3));
  const LazyBuffer second = lazy.From<float>({7, 8}, {2});
  ASSERT_TRUE(Replay(lazy, **plan, {second}).ok());
  ASSERT_TRUE(Replay(lazy, **plan, {second}).ok());
  EXPECT_THAT(lazy.Values<float>(first), ElementsAre(2, 3));
  EXPECT_THAT(lazy.Values<float>(second), ElementsAre(9, 10));
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(9, 10));
}

TEST(Plan, RefusesInputsThatShareMemoryThatIsWritten) {
  LazyRuntime lazy;
  const LazyBuffer a = lazy.From<float>({1, 2}, {2}), b = lazy.From<float>({3, 4}, {2});
  const auto plan = Plan::Capture(*lazy.runtime, std::vector<LazyBuffer>{a, b}, [&]() -> Outputs {
    const LazyBuffer product = (a * b).Contiguous();
    return std::vector<LazyBuffer>{product, a.Assign(a + product)};
  });
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::Status twice = Replay(lazy, **plan, {b, b});
  EXPECT_TRUE(absl::IsInvalidArgument(twice)) << twice;
  EXPECT_THAT(twice.message(), HasSubstr("shares memory with input 1"));
  const absl::Status output = Replay(lazy, **plan, {(*plan)->outputs()[0], b});
  EXPECT_TRUE(absl::IsInvalidArgument(output)) << output;
  EXPECT_THAT(lazy.Values<float>(b), ElementsAre(3, 4));
}

TEST(Plan, PlansTheMemoryOfAllRealisationsAsOne) {
  LazyRuntime lazy;
  const LazyBuffer x = lazy.From<float>(std::vector<float>(1024, 1), {1024});
  const int64_t before = lazy.runtime->counters().Get().memory_bytes;
  const auto plan = Capture(lazy, {x}, [&] {
    LazyBuffer y = x;
    for (int i = 0; i < 8; ++i) {
      y = y * 2;
      EXPECT_TRUE(lazy.Realize(y).ok());
    }
    return y;
  });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->kernel_count(), 8);
  EXPECT_EQ((*plan)->memory_plan().unshared_bytes, 7 * 4096);
  EXPECT_EQ((*plan)->memory_plan().peak_bytes, 2 * 4096);
  // The input, the output, and the two.
  EXPECT_EQ(lazy.runtime->counters().Get().memory_bytes, before + 4 * 4096);
  ASSERT_TRUE(Replay(lazy, **plan, {lazy.From<float>(std::vector<float>(1024, 3), {1024})}).ok());
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), Each(3 * 256));
}

TEST(Plan, ReadsWindowsOfItsInputs) {
  LazyRuntime lazy;
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(i);
  const LazyBuffer x = lazy.From(values, {2, 16});
  const std::array<std::pair<SInt, SInt>, 2> second{{{1, 2}, {0, 16}}};
  const auto plan = Capture(lazy, {x}, [&] {
    const LazyBuffer window = x.Shrink(second).Contiguous();
    EXPECT_EQ(window.op(), Op::kBufferView);
    return window * 2;
  });
  ASSERT_TRUE(plan.ok()) << plan.status();
  const LazyBuffer& y = (*plan)->outputs()[0];
  EXPECT_EQ(lazy.Values<float>(y)[3], 38);
  for (float& v : values) v += 100;
  ASSERT_TRUE(Replay(lazy, **plan, {lazy.From(values, {2, 16})}).ok());
  EXPECT_EQ(lazy.Values<float>(y)[3], 238);
  ASSERT_TRUE(Replay(lazy, **plan, {x}).ok());
  EXPECT_EQ(lazy.Values<float>(y)[3], 38);
}

TEST(Plan, KeepsDataThatTheFunctionBroughtAlong) {
  LazyRuntime lazy;
  const LazyBuffer x = lazy.From<float>({1, 2}, {2});
  const auto plan = Capture(lazy, {x}, [&] { return x + lazy.From<float>({100, 200}, {2}); });
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Replay(lazy, **plan, {lazy.From<float>({5, 6}, {2})}).ok());
    EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(105, 206));
  }
}

TEST(Plan, SaysWhichInputDoesNotFitAndHow) {
  LazyRuntime lazy;
  const LazyBuffer a = lazy.From<float>({1, 2, 3, 4}, {2, 2});
  const LazyBuffer b = lazy.From<float>({1, 2, 3, 4}, {2, 2});
  const auto plan = Capture(lazy, {a, b}, [&] { return a + b; });
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto refused = [&](const LazyBuffer& input) {
    const absl::Status status = Replay(lazy, **plan, {a, input});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused(lazy.From<float>({1, 2, 3, 4}, {4})),
              HasSubstr("input 1 of the plan has the shape (2, 2), not (4)"));
  EXPECT_THAT(refused(lazy.From<int32_t>({1, 2, 3, 4}, {2, 2})), HasSubstr("float32, not int32"));
  const LazyBuffer image = lazy.From<float>({1, 2, 3, 4}, {4})
                               .CastImage(*ImageOf(Scalar::kFloat16, 1, 1))
                               .Contiguous()
                               .Reshape({2, 2});
  EXPECT_THAT(refused(image), HasSubstr("lies in global float32*, not image(1,1,4) float16"));
  EXPECT_THAT(refused(LazyBuffer::Const(lazy.context, 1.0f, {2, 2}, Scalar::kFloat32, "cpu:0")),
              HasSubstr("constant"));
  const std::array<int, 2> order{1, 0};
  EXPECT_THAT(refused(b.Permute(order)), HasSubstr("another view"));
  EXPECT_THAT(refused(LazyBuffer::Empty(lazy.context, {2, 2}, Scalar::kFloat32, "cpu:1")),
              HasSubstr("on cpu:0, not cpu:1"));
  const absl::Status count = Replay(lazy, **plan, {a});
  EXPECT_TRUE(absl::IsInvalidArgument(count)) << count;
  EXPECT_THAT(count.message(), HasSubstr("takes 2 inputs, not 1"));
}

TEST(Plan, RefusesWhatItCanNotExchange) {
  LazyRuntime lazy;
  const LazyBuffer a = lazy.From<float>({1, 2}, {2});
  const LazyBuffer one = LazyBuffer::Const(lazy.context, 1.0f, {2}, Scalar::kFloat32, "cpu:0");
  const absl::Status constant = Capture(lazy, {a, one}, [&] { return a + one; }).status();
  EXPECT_TRUE(absl::IsInvalidArgument(constant)) << constant;
  EXPECT_THAT(constant.message(), HasSubstr("input 1"));
  const absl::Status twice = Capture(lazy, {a, a}, [&] { return a + a; }).status();
  EXPECT_TRUE(absl::IsInvalidArgument(twice)) << twice;
  EXPECT_THAT(twice.message(), HasSubstr("buffer of input 0"));
}

TEST(Plan, RefusesFunctionsThatCanNotBeReplayed) {
  LazyRuntime lazy;
  LazyBuffer a = lazy.From<float>({1, 2}, {2});
  EXPECT_TRUE(absl::IsFailedPrecondition(Capture(lazy, {a}, [&] { return a; }).status()));

  const std::vector<LazyBuffer> inputs{a};
  const absl::Status reads = Plan::Capture(*lazy.runtime, inputs, [&]() -> Outputs {
                               const LazyBuffer y = a + 1;
                               BEAMD_RETURN_IF_ERROR(lazy.Realize(y));
                               std::array<float, 2> values{};
                               BEAMD_RETURN_IF_ERROR(lazy.runtime->Read(
                                   *y.base().buffer(), std::as_writable_bytes(std::span(values))));
                               return std::vector<LazyBuffer>{y * values[0]};
                             }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(reads)) << reads;
  EXPECT_THAT(reads.message(), HasSubstr("captured"));

  const auto inner = Capture(lazy, {a}, [&] { return a + 1; });
  ASSERT_TRUE(inner.ok()) << inner.status();
  const absl::Status nested = Plan::Capture(*lazy.runtime, inputs, [&]() -> Outputs {
                                return Capture(lazy, {a}, [&] { return a + 1; }).status();
                              }).status();
  EXPECT_THAT(nested.message(), HasSubstr("don't nest"));
  const absl::Status replayed = Plan::Capture(*lazy.runtime, inputs, [&]() -> Outputs {
                                  return Replay(lazy, **inner, {a});
                                }).status();
  EXPECT_THAT(replayed.message(), HasSubstr("don't nest"));
  // Nothing of it stays behind.
  EXPECT_TRUE(Capture(lazy, {a}, [&] { return a * 3; }).ok());
}

TEST(Plan, CopiesBetweenDevices) {
  std::vector<RuntimeDevice> devices;
  devices.push_back({"cpu:0", *OpenCpuDevice()});
  devices.push_back({"cpu:1", *OpenCpuDevice()});
  LazyRuntime lazy(Runtime::Create(std::move(devices), {}));
  const LazyBuffer x = lazy.From<float>({1, 2}, {2});
  const auto plan = Capture(lazy, {x}, [&] { return x.CopyTo("cpu:1") * 2; });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(2, 4));
  ASSERT_TRUE(Replay(lazy, **plan, {lazy.From<float>({4, 5}, {2})}).ok());
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), ElementsAre(8, 10));
}

TEST(Plan, CountsAndProfilesItsKernels) {
  LazyRuntime lazy;
  const LazyBuffer x = lazy.From<float>(std::vector<float>(64, 1), {64});
  const auto plan = Capture(lazy, {x}, [&] { return ((x + 1).Contiguous() * 2).Contiguous(); });
  ASSERT_TRUE(plan.ok()) << plan.status();
  lazy.runtime->counters().Reset();
  ASSERT_TRUE(Replay(lazy, **plan, {x}).ok());
  Counts counts = lazy.runtime->counters().Get();
  EXPECT_EQ(counts.kernels, 2);
  EXPECT_GE(counts.ops, 128);
  EXPECT_EQ(counts.bytes, 2 * 512);
  EXPECT_EQ(counts.time, absl::ZeroDuration());
  Profile profile;
  lazy.runtime->set_profile(&profile);
  ASSERT_TRUE(Replay(lazy, **plan, {x}).ok());
  lazy.runtime->set_profile(nullptr);
  counts = lazy.runtime->counters().Get();
  EXPECT_EQ(counts.kernels, 4);
  EXPECT_GT(counts.time, absl::ZeroDuration());
  EXPECT_THAT(profile.events(), SizeIs(2));
}

TEST(Plan, CostsLessThanFiveMicrosecondsAKernel) {
  constexpr int kKernels = 200;
  LazyRuntime lazy;
  const LazyBuffer x = lazy.From<float>(std::vector<float>(16, 1), {16});
  const auto plan = Capture(lazy, {x}, [&] {
    LazyBuffer y = x;
    for (int i = 0; i < kKernels; ++i) y = (y + 1).Contiguous();
    return y;
  });
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ((*plan)->kernel_count(), kKernels);
  const std::vector<LazyBuffer> inputs{x};
  auto least = std::chrono::nanoseconds::max();
  for (int i = 0; i < 50; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE((*plan)->Run(inputs, {}).ok());
    least = std::min(least, std::chrono::nanoseconds(std::chrono::steady_clock::now() - start));
  }
  // The kernels' own time counted in, some tens of nanoseconds each.
  EXPECT_LT(least.count() / kKernels, 5000);
  RecordProperty("nanoseconds_a_kernel", static_cast<int>(least.count() / kKernels));
  EXPECT_THAT(lazy.Values<float>((*plan)->outputs()[0]), Each(kKernels + 1));
}

}  // namespace
}  // namespace beamd

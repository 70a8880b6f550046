#include "server/execution/runtime.h"

#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "devices/cpu/device.h"
#include "engine/base/option.h"
#include "engine/base/profile.h"
#include "engine/lazy/lazy_buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/json.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JsonValue;
using testing::LazyRuntime;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::array<int, 1> kAxis0{0}, kAxis1{1};

std::vector<float> Count(int n) {
  std::vector<float> values;
  values.reserve(n);
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return values;
}

// The CPU, but for what it is told to refuse.
class FailingDevice final : public Device {
 public:
  explicit FailingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  const TargetCaps& caps() const override { return inner_->caps(); }
  const DeviceInfo& info() const override { return inner_->info(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t size_bytes) override {
    return inner_->Allocate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> View(Buffer& parent, size_t offset_bytes,
                                               size_t size_bytes) override {
    return inner_->View(parent, offset_bytes, size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Load(const KernelImage& image) override {
    if (refuse_load) return absl::InternalError("refused");
    return inner_->Load(image);
  }
  absl::StatusOr<absl::Duration> Run(const Executable& exe, const Launch& launch) override {
    if (refuse_run) return absl::UnavailableError("fell off the bus");
    return inner_->Run(exe, launch);
  }
  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(const Executable& exe,
                                                          const Launch& launch) override {
    return inner_->Prepare(exe, launch);
  }
  absl::Status Wait() override { return inner_->Wait(); }
  absl::Status FlushCache(std::span<Buffer* const> buffers) override {
    return inner_->FlushCache(buffers);
  }

  bool refuse_load = false, refuse_run = false;

 private:
  const std::unique_ptr<Device> inner_;
};

absl::StatusOr<std::unique_ptr<Runtime>> WithOptions(RuntimeOptions options) {
  std::vector<RuntimeDevice> devices;
  devices.push_back({"cpu:0", *OpenCpuDevice()});
  return Runtime::Create(std::move(devices), std::move(options));
}

TEST(Runtime, ComputesElementWiseAndReductions) {
  LazyRuntime lazy;
  const LazyBuffer x = lazy.From(Count(6), {2, 3});
  EXPECT_THAT(lazy.Values<float>(x * 2 + 1), ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_THAT(lazy.Values<float>(x.Reduce(Op::kAdd, kAxis1)), ElementsAre(3, 12));
  EXPECT_THAT(lazy.Values<float>(x.Reduce(Op::kMax, kAxis0)), ElementsAre(3, 4, 5));
  const std::array<int, 2> order{1, 0};
  EXPECT_THAT(lazy.Values<float>(x.Permute(order)), ElementsAre(0, 3, 1, 4, 2, 5));
}

// (rows, inner) times (inner, columns), either one transposed in memory.
LazyBuffer Product(LazyRuntime& lazy, int rows, int columns, int inner, bool a_transposed,
                   bool b_transposed) {
  const std::array<int, 2> swap{1, 0};
  LazyBuffer a = a_transposed ? lazy.From(Count(rows * inner), {inner, rows}).Permute(swap)
                              : lazy.From(Count(rows * inner), {rows, inner});
  LazyBuffer b = b_transposed ? lazy.From(Count(columns * inner), {columns, inner})
                              : lazy.From(Count(columns * inner), {inner, columns}).Permute(swap);
  const Shape whole{rows, columns, inner};
  a = a.Reshape({rows, 1, inner}).Expand(whole);
  b = b.Reshape({1, columns, inner}).Expand(whole);
  const std::array<int, 1> last{2};
  return (a * b).Reduce(Op::kAdd, last);
}

TEST(Runtime, ProductsOfEveryLayoutAreTheSameWithoutOpts) {
  struct Sizes {
    int rows, columns, inner;
  };
  for (const Sizes& s : {Sizes{8, 32, 16}, {10, 48, 24}, {4, 10, 64}, {7, 5, 3}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        LazyRuntime lazy;
        const auto values = [&] {
          return lazy.Values<float>(
              Product(lazy, s.rows, s.columns, s.inner, a_transposed, b_transposed));
        };
        const std::vector<float> got = values();
        const ScopedOption no_opt(options::kNoOpt, 1);
        // Integers that a float32 holds: the order of the sums can't show.
        EXPECT_EQ(got, values()) << s.rows << "x" << s.columns << "x" << s.inner << a_transposed
                                 << b_transposed;
      }
    }
  }
}

TEST(Runtime, KeepsWhatItRealised) {
  LazyRuntime lazy;
  const LazyBuffer y = lazy.From(Count(4), {4}) * 3;
  ASSERT_TRUE(lazy.Realize(y).ok());
  EXPECT_TRUE(y.is_realized());
  const int64_t kernels = lazy.runtime->counters().Get().kernels;
  ASSERT_TRUE(lazy.Realize(y).ok());
  EXPECT_EQ(lazy.runtime->counters().Get().kernels, kernels);
  EXPECT_THAT(lazy.Values<float>(y + 1), ElementsAre(1, 4, 7, 10));
}

TEST(Runtime, CompilesEqualKernelsOnce) {
  LazyRuntime lazy;
  EXPECT_THAT(lazy.Values<float>(lazy.From(Count(4), {4}) + 1), ElementsAre(1, 2, 3, 4));
  const int64_t compiles = lazy.runtime->compiles(), hits = lazy.runtime->cache_hits();
  EXPECT_EQ(compiles, 1);
  EXPECT_THAT(lazy.Values<float>(lazy.From<float>({5, 6, 7, 8}, {4}) + 1), ElementsAre(6, 7, 8, 9));
  EXPECT_EQ(lazy.runtime->compiles(), compiles);
  EXPECT_EQ(lazy.runtime->cache_hits(), hits + 1);
  {
    // Other opts are other code.
    const ScopedOption no_opt(options::kNoOpt, 1);
    EXPECT_THAT(lazy.Values<float>(lazy.From<float>({1, 1, 1, 1}, {4}) + 1), Each(2));
  }
  EXPECT_EQ(lazy.runtime->compiles(), compiles + 1);
}

TEST(Runtime, SharesMemoryBetweenBuffersThatAreNeverNeededAtOnce) {
  LazyRuntime lazy;
  LazyBuffer x = lazy.From(Count(1024), {1024});
  for (int i = 0; i < 6; ++i) x = (x + 1).Contiguous();
  ASSERT_TRUE(lazy.Realize(x).ok());
  EXPECT_EQ(lazy.runtime->last_kernel_count(), 6);
  const MemoryPlan& plan = lazy.runtime->last_memory_plan();
  EXPECT_EQ(plan.unshared_bytes, 5 * 4096);
  EXPECT_EQ(plan.peak_bytes, 2 * 4096);
  std::vector<float> want;
  for (const float v : Count(1024)) want.push_back(v + 6);
  EXPECT_EQ(lazy.Values<float>(x), want);
  // Both the data and the result; nothing of what lay between.
  EXPECT_EQ(lazy.runtime->counters().Get().memory_bytes, 4096);
}

TEST(Runtime, GivesEveryBufferItsOwnMemoryWithoutThePlanner) {
  LazyRuntime lazy;
  const ScopedOption own(options::kNoMemoryPlanner, 1);
  LazyBuffer x = lazy.From(Count(16), {16});
  for (int i = 0; i < 3; ++i) x = (x + 1).Contiguous();
  EXPECT_EQ(lazy.Values<float>(x)[15], 18);
  EXPECT_EQ(lazy.runtime->last_memory_plan().peak_bytes, 0);
}

TEST(Runtime, ReadsComeBeforeAnAssignAndSeeTheOldValue) {
  LazyRuntime lazy;
  const LazyBuffer w = lazy.From(Count(4), {4});
  const LazyBuffer before = w * 10;
  const LazyBuffer after = w.Assign(w + 1);
  const std::array<LazyBuffer, 2> both{after, before};
  ASSERT_TRUE(lazy.runtime->Realize(both).ok());
  EXPECT_THAT(lazy.Values<float>(before), ElementsAre(0, 10, 20, 30));
  EXPECT_THAT(lazy.Values<float>(after), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(lazy.Values<float>(w), ElementsAre(1, 2, 3, 4));
}

TEST(Runtime, AssignsInPlaceManyTimes) {
  LazyRuntime lazy;
  LazyBuffer w = lazy.From<float>({0, 0}, {2});
  for (int i = 0; i < 10; ++i) {
    w = w.Assign(w + 1);
    ASSERT_TRUE(lazy.Realize(w).ok());
  }
  EXPECT_THAT(lazy.Values<float>(w), ElementsAre(10, 10));
  EXPECT_EQ(lazy.runtime->compiles(), 1);
}

TEST(Runtime, TakesValuesOfVariablesFromTheContext) {
  LazyRuntime lazy;
  const UOp n = lazy.context.Variable("n", 1, 8);
  const LazyBuffer x = lazy.From<int32_t>({1, 2, 3}, {3});
  const auto sum = [&] {
    return x.Alu(Op::kAdd,
                 LazyBuffer::Const(lazy.context, n, {3}, Scalar::kInt32, lazy.context.device()));
  };
  const absl::Status unbound = lazy.Realize(sum());
  EXPECT_TRUE(absl::IsFailedPrecondition(unbound)) << unbound;
  EXPECT_THAT(unbound.message(), HasSubstr("\"n\""));
  ASSERT_TRUE(lazy.context.Bind(n, 5).ok());
  EXPECT_THAT(lazy.Values<int32_t>(sum()), ElementsAre(6, 7, 8));
  ASSERT_TRUE(lazy.context.Bind(n, 2).ok());
  EXPECT_THAT(lazy.Values<int32_t>(sum()), ElementsAre(3, 4, 5));
  EXPECT_EQ(lazy.runtime->compiles(), 1);
}

TEST(Runtime, CopiesBetweenDevices) {
  std::vector<RuntimeDevice> devices;
  devices.push_back({"cpu:0", *OpenCpuDevice()});
  devices.push_back({"cpu:1", *OpenCpuDevice()});
  LazyRuntime lazy(Runtime::Create(std::move(devices), {}));
  const LazyBuffer there = (lazy.From(Count(3), {3}) + 1).CopyTo("cpu:1");
  const LazyBuffer back = (there * 2).CopyTo("cpu:0");
  EXPECT_THAT(lazy.Values<float>(back), ElementsAre(2, 4, 6));
  EXPECT_EQ(there.device(), "cpu:1");
}

TEST(Runtime, SaysThatItHasNoSuchDevice) {
  LazyRuntime lazy;
  const absl::Status status = lazy.Realize(lazy.From(Count(3), {3}).CopyTo("gpu:7"));
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("gpu:7"));
}

TEST(Runtime, AfterAnErrorNothingIsRealisedAndItCanBeTriedAgain) {
  auto failing = std::make_unique<FailingDevice>(*OpenCpuDevice());
  FailingDevice& device = *failing;
  std::vector<RuntimeDevice> devices;
  devices.push_back({"cpu:0", std::move(failing)});
  LazyRuntime lazy(Runtime::Create(std::move(devices), {}));
  const LazyBuffer middle = (lazy.From(Count(4), {4}) + 1).Contiguous();
  const LazyBuffer y = middle.Reduce(Op::kAdd, kAxis0);
  const std::array<LazyBuffer, 2> both{middle, y};

  device.refuse_load = true;
  const absl::Status compiling = lazy.runtime->Realize(both);
  EXPECT_TRUE(absl::IsInternal(compiling)) << compiling;
  EXPECT_THAT(compiling.message(), HasSubstr("kernel E_"));
  EXPECT_FALSE(y.is_realized());
  EXPECT_FALSE(middle.is_realized());

  device.refuse_load = false;
  device.refuse_run = true;
  const absl::Status running = lazy.runtime->Realize(both);
  EXPECT_TRUE(absl::IsUnavailable(running)) << running;
  EXPECT_THAT(running.message(), HasSubstr("kernel E_"));
  EXPECT_FALSE(y.is_realized());
  EXPECT_FALSE(middle.base().buffer()->allocated());

  device.refuse_run = false;
  EXPECT_THAT(lazy.Values<float>(y), ElementsAre(10));
}

TEST(Runtime, ReadsAndWritesBuffersAndWindows) {
  LazyRuntime lazy;
  const auto whole = std::make_shared<TensorBuffer>();
  whole->device = "cpu:0";
  whole->dtype = Scalar::kInt32;
  whole->size_elements = 32;
  std::vector<int32_t> values(32, 7);
  std::array<int32_t, 2> two{1, 2};
  EXPECT_TRUE(absl::IsFailedPrecondition(
      lazy.runtime->Read(*whole, std::as_writable_bytes(std::span(values)))));
  ASSERT_TRUE(lazy.runtime->Write(*whole, std::as_bytes(std::span(values))).ok());
  TensorBuffer window = {.device = "cpu:0",
                         .dtype = Scalar::kInt32,
                         .size_elements = 2,
                         .parent = whole,
                         .offset_bytes = 64};
  ASSERT_TRUE(lazy.runtime->Write(window, std::as_bytes(std::span(two))).ok());
  ASSERT_TRUE(lazy.runtime->Read(*whole, std::as_writable_bytes(std::span(values))).ok());
  EXPECT_EQ(values[15], 7);
  EXPECT_EQ(values[16], 1);
  EXPECT_EQ(values[17], 2);
  two = {0, 0};
  ASSERT_TRUE(lazy.runtime->Read(window, std::as_writable_bytes(std::span(two))).ok());
  EXPECT_THAT(two, ElementsAre(1, 2));
}

TEST(Runtime, ReadsHostDataThatWasNeverUsed) {
  LazyRuntime lazy;
  EXPECT_THAT(lazy.Values<float>(lazy.From<float>({1, 2}, {2})), ElementsAre(1, 2));
  EXPECT_EQ(lazy.runtime->counters().Get().memory_bytes, 0);
}

TEST(Runtime, TakesOptsThatSomeoneTuned) {
  std::ostringstream log;
  int asked = 0;
  LazyRuntime lazy(WithOptions({.opts_for =
                                    [&](const Kernel&, const Digest&) {
                                      ++asked;
                                      return std::vector<Opt>{{OptOp::kUpcast, 0, 2}};
                                    },
                                .log = &log}));
  const ScopedOption debug(options::kDebug, 3);
  EXPECT_EQ(lazy.Values<float>(lazy.From(Count(64), {64}) + 1)[63], 64);
  EXPECT_EQ(asked, 1);
  EXPECT_THAT(log.str(), HasSubstr("UPCAST(0, 2)\n"));
  // A list that doesn't apply: the heuristics' it is.
  log.str("");
  EXPECT_EQ(lazy.Values<float>(lazy.From(Count(63), {63}) + 1)[62], 63);
  EXPECT_EQ(asked, 2);
  EXPECT_THAT(log.str(), Not(HasSubstr("UPCAST(0, 2)")));
}

TEST(Runtime, SearchesWhereBeamSaysSo) {
  std::ostringstream log;
  LazyRuntime lazy(WithOptions({.log = &log}));
  const ScopedOption debug(options::kDebug, 3), beam(options::kBeam, 1);
  const LazyBuffer x = lazy.From(Count(4096), {64, 64});
  const std::vector<float> sums = lazy.Values<float>((x * x).Reduce(Op::kAdd, kAxis1));
  EXPECT_EQ(sums[0], 85344);
  EXPECT_THAT(log.str(), HasSubstr("kernel r_"));
  EXPECT_EQ(lazy.runtime->compiles(), 1);
}

TEST(Runtime, DebugPrintsALineAKernel) {
  std::ostringstream log;
  LazyRuntime lazy(WithOptions({.log = &log}));
  lazy.Values<float>(lazy.From(Count(64), {64}) + 1);
  EXPECT_EQ(log.str(), "");
  const ScopedOption debug(options::kDebug, 2);
  lazy.Values<float>(lazy.From(Count(64), {64}) + 1);
  EXPECT_THAT(log.str(), HasSubstr("*** cpu:0"));
  EXPECT_THAT(log.str(), HasSubstr(" E_"));
  EXPECT_THAT(log.str(), HasSubstr("GFLOPS"));
}

TEST(Runtime, DebugPrintsAssembly) {
  std::ostringstream log;
  LazyRuntime lazy(WithOptions({.log = &log}));
  const ScopedOption debug(options::kDebug, 6);
  lazy.Values<float>(lazy.From(Count(64), {64}) + 1);
  EXPECT_THAT(log.str(), HasSubstr("DEFINE_GLOBAL"));
  EXPECT_THAT(log.str(), HasSubstr("ret"));
}

TEST(Runtime, CountsAndProfilesWhatItRuns) {
  LazyRuntime lazy;
  Profile profile;
  lazy.runtime->set_profile(&profile);
  const LazyBuffer y = (lazy.From(Count(256), {256}) * 2 + 1).Contiguous();
  ASSERT_TRUE(lazy.Realize(y).ok());
  lazy.runtime->set_profile(nullptr);
  const Counts counts = lazy.runtime->counters().Get();
  EXPECT_EQ(counts.kernels, 1);
  EXPECT_GE(counts.ops, 512);  // and what indices take
  EXPECT_EQ(counts.bytes, 2048);
  EXPECT_GT(counts.time, absl::ZeroDuration());
  EXPECT_EQ(counts.memory_bytes, 1024);  // the result: the data went with its last reader
  EXPECT_EQ(counts.peak_memory_bytes, 2048);

  std::vector<std::string> categories;
  for (const ProfileEvent& e : profile.events()) categories.push_back(e.category);
  EXPECT_THAT(categories, Contains("kernel").Times(1));
  EXPECT_THAT(categories, Contains("compile").Times(1));
  EXPECT_THAT(categories, Contains("scope"));
  const std::string trace = profile.TraceJson();
  const auto json = JsonValue::Parse(trace);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT((*json)["traceEvents"].items(), SizeIs(categories.size()));
}

}  // namespace
}  // namespace beamd

#include "devices/measure.h"

#include <functional>
#include <limits>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

class NamedExecutable : public Executable {
 public:
  explicit NamedExecutable(int number) : number(number) {}
  const int number;
};

// Takes what a script says, and remembers what it was asked.
class ScriptedDevice : public Device {
 public:
  struct Call {
    int kernel;
    int64_t begin, end, repeats;
  };
  using Script = std::function<absl::StatusOr<absl::Duration>(const Call&)>;
  explicit ScriptedDevice(Script script) : script_(std::move(script)) {}

  const TargetCaps& caps() const override { return caps_; }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t) override {
    return absl::ResourceExhaustedError("");
  }
  absl::StatusOr<std::unique_ptr<Executable>> Load(const KernelImage&) override {
    return absl::InvalidArgumentError("");
  }
  absl::StatusOr<absl::Duration> Run(const Executable& exe, const Launch& launch) override {
    calls.push_back({dynamic_cast<const NamedExecutable&>(exe).number, launch.begin, launch.end,
                     launch.repeats});
    return script_(calls.back());
  }
  absl::StatusOr<std::unique_ptr<Buffer>> View(Buffer&, size_t, size_t) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(const Executable&,
                                                          const Launch&) override {
    return absl::UnimplementedError("");
  }
  absl::Status Wait() override { return absl::UnimplementedError(""); }
  absl::Status FlushCache(std::span<Buffer* const>) override {
    ++flushes;
    return absl::OkStatus();
  }

  bool Disturbed() override { return disturbed != nullptr && disturbed(); }

  std::vector<Call> calls;
  int flushes = 0;
  std::function<bool()> disturbed;

 private:
  const Script script_;
  TargetCaps caps_;
  DeviceInfo info_;
};

KernelImage Image(int64_t slices) {
  KernelImage image;
  image.slices = slices;
  return image;
}

ScriptedDevice::Script PerSlice(absl::Duration slice) {
  return [slice](const ScriptedDevice::Call& call) {
    return slice * (call.end - call.begin) * call.repeats;
  };
}

// One kernel of `slices` slices.
absl::StatusOr<Measurement> MeasureOne(ScriptedDevice& device, int64_t slices,
                                       const MeasureOptions& options) {
  const KernelImage image = Image(slices);
  const NamedExecutable exe(0);
  const Loaded kernel{&exe, &image};
  return Measure(device, {&kernel, 1}, {}, options);
}

TEST(Measure, RepeatsShortKernelsAndDivides) {
  ScriptedDevice device(PerSlice(absl::Nanoseconds(500)));
  const auto m = MeasureOne(device, 4, {});
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_THAT(m->seconds[0], SizeIs(3));
  EXPECT_THAT(m->seconds[0], Each(DoubleNear(2e-6, 1e-12)));
  EXPECT_EQ(device.calls.back().repeats, 15);
}

TEST(Measure, TakesTurns) {
  ScriptedDevice device(PerSlice(absl::Milliseconds(1)));
  const KernelImage image = Image(1);
  const NamedExecutable first(1), second(2);
  const Loaded kernels[] = {{&first, &image}, {&second, &image}};
  MeasureOptions options;
  options.rounds = 2;
  ASSERT_TRUE(Measure(device, kernels, {}, options).ok());
  std::vector<int> order;
  for (const auto& call : device.calls) order.push_back(call.kernel);
  ASSERT_GE(order.size(), 4);
  EXPECT_THAT(std::vector<int>(order.end() - 4, order.end()), ElementsAre(1, 2, 1, 2));
}

TEST(Measure, OneThatIsFarBehindLeavesTheOthersTheirRounds) {
  // The second takes its time, and the bound's.
  ScriptedDevice device([](const ScriptedDevice::Call& call) {
    if (call.kernel == 2) absl::SleepFor(absl::Milliseconds(30));
    return (call.kernel == 2 ? absl::Milliseconds(30) : absl::Milliseconds(1)) * call.repeats;
  });
  const KernelImage image = Image(1);
  const NamedExecutable first(1), second(2), third(3);
  const Loaded kernels[] = {{&first, &image}, {&second, &image}, {&third, &image}};
  MeasureOptions options;
  options.rounds = 10;
  options.partial = false;
  const auto m = Measure(device, kernels, {}, options);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_THAT(m->seconds[0], SizeIs(10));
  EXPECT_THAT(m->seconds[1], SizeIs(2));
  EXPECT_THAT(m->seconds[2], SizeIs(10));
  // Unless there is time for all.
  options.bound_s = std::numeric_limits<double>::infinity();
  const auto all = Measure(device, kernels, {}, options);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->seconds[1], SizeIs(10));
}

TEST(Measure, ScalesPartsThatMoveThroughTheOutermostLoop) {
  ScriptedDevice device(PerSlice(absl::Milliseconds(1)));
  const auto m = MeasureOne(device, 1000, {});
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_THAT(m->seconds[0], Each(DoubleNear(1.0, 1e-9)));
  int64_t sum = 0;
  for (size_t i = 0; i < device.calls.size(); ++i) {
    const auto& call = device.calls[i];
    sum += call.end - call.begin;
    EXPECT_EQ(call.begin, i > 0 ? device.calls[i - 1].end : 0);
  }
  EXPECT_LT(sum, 20);
}

TEST(Measure, RunsTheWholeKernelWhereAsked) {
  ScriptedDevice device(PerSlice(absl::Milliseconds(1)));
  MeasureOptions options;
  options.partial = false;
  ASSERT_TRUE(MeasureOne(device, 20, options).ok());
  for (const auto& call : device.calls) {
    EXPECT_EQ(call.begin, 0);
    EXPECT_EQ(call.end, 20);
  }
}

TEST(Measure, StopsAKernelThatIsCertainToBeTooSlow) {
  ScriptedDevice device(PerSlice(absl::Milliseconds(1)));
  MeasureOptions options;
  options.cut_off_s = 0.01;
  const auto m = MeasureOne(device, 1000, options);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_TRUE(m->cut_off);
  EXPECT_THAT(m->seconds[0], ElementsAre(DoubleNear(1.0, 1e-9)));
  EXPECT_THAT(device.calls, SizeIs(1));
}

TEST(Measure, AColdFirstRunAloneDoesNotCutOff) {
  int run = 0;
  ScriptedDevice device([&](const ScriptedDevice::Call& call) {
    return ++run == 1 ? absl::Microseconds(70) : absl::Microseconds(2) * call.repeats;
  });
  MeasureOptions options;
  options.cut_off_s = 10e-6;
  const auto m = MeasureOne(device, 1, options);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_FALSE(m->cut_off);
  EXPECT_THAT(m->seconds[0], Each(DoubleNear(2e-6, 1e-12)));
}

TEST(Measure, RefusesTimesThatAreNone) {
  for (const absl::Duration time :
       {absl::ZeroDuration(), absl::Milliseconds(-1), absl::InfiniteDuration()}) {
    ScriptedDevice device([&](const ScriptedDevice::Call&) { return time; });
    EXPECT_EQ(MeasureOne(device, 1, {}).status().code(), absl::StatusCode::kInternal) << time;
  }
}

TEST(Measure, TellsTheDevicesOwnErrors) {
  ScriptedDevice device([](const ScriptedDevice::Call&) -> absl::StatusOr<absl::Duration> {
    return absl::UnavailableError("gone");
  });
  EXPECT_EQ(MeasureOne(device, 1, {}).status(), absl::UnavailableError("gone"));
}

TEST(Measure, FlushesBeforeEverySampleWhereAsked) {
  ScriptedDevice device(PerSlice(absl::Microseconds(1)));
  MeasureOptions options;
  options.clear_cache = true;
  const auto m = MeasureOne(device, 1, options);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_THAT(m->seconds[0], SizeIs(3));
  EXPECT_EQ(device.flushes, 3);
  for (const auto& call : device.calls) EXPECT_EQ(call.repeats, 1);
}

TEST(Measure, TakesAgainWhatSomethingElseSlowed) {
  int sleeps = 2;
  bool warm = false;
  ScriptedDevice device([&](const ScriptedDevice::Call&) {
    // As if another had the core: time passes that this thread does not have.
    if (warm && sleeps-- > 0) absl::SleepFor(absl::Milliseconds(20));
    warm = true;
    return absl::Milliseconds(10);
  });
  const auto m = MeasureOne(device, 1, {});
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->spoiled, 2);
  EXPECT_THAT(m->seconds[0], SizeIs(3));
}

TEST(Measure, TakesABatchAgainThatOthersDisturbed) {
  // Asked before and after each batch: it is free, then not, then free.
  std::vector<bool> answers = {false, true, false, false};
  size_t asked = 0;
  int launches = 0;
  ScriptedDevice device([&](const ScriptedDevice::Call&) {
    ++launches;
    return asked < 2 ? absl::Milliseconds(30) : absl::Milliseconds(10);
  });
  device.disturbed = [&] { return asked < answers.size() && answers[asked++]; };
  const auto m = MeasureOne(device, 1, {});
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->spoiled, 1);
  EXPECT_EQ(asked, 4u);
  // Nothing of the spoiled batch is left.
  EXPECT_THAT(m->seconds[0], Each(DoubleNear(0.01, 1e-9)));
  EXPECT_THAT(m->seconds[0], SizeIs(3));
}

TEST(Measure, WaitsForADeviceThatOthersUse) {
  int asked = 0;
  ScriptedDevice device(PerSlice(absl::Milliseconds(1)));
  device.disturbed = [&] {
    EXPECT_TRUE(asked > 2 || device.calls.empty());
    return ++asked <= 2;
  };
  const auto m = MeasureOne(device, 1, {});
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->spoiled, 2);
}

TEST(Measure, TakesWhatItGetsWhereOthersStay) {
  ScriptedDevice device(PerSlice(absl::Milliseconds(1)));
  device.disturbed = [] { return true; };
  const auto m = MeasureOne(device, 1, {});
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->spoiled, 3);
  EXPECT_THAT(m->seconds[0], SizeIs(3));
}

}  // namespace
}  // namespace beamd

// A session's runner, asked as the daemon asks it: on the CPU, on the GPUs of the fake drivers, and
// on emulated ones.
#include "server/execution/session_handler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/substitute.h"
#include "devices/device_turn.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/execution/shared_memory.h"
#include "server/workers/codec.h"
#include "tests/devices/gpu/fake_driver.h"

namespace beamd {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Target {
  const char* device;
  const char* library;  // of the fake driver; null: none
  bool own_memory = true;
};

// y = x * 2 + w; w = w + y.
constexpr char kGraph[] = R"(%0 = BUFFER float32 slot 0 shape (256)
%1 = BUFFER float32 slot 1 shape (256)
%2 = ADD float32 (%0, %0)
%3 = ADD float32 (%2, %1)
%4 = CONTIGUOUS float32 (%3)
%5 = ADD float32 (%1, %4)
%6 = ASSIGN float32 (%1, %5)
%7 = SINK void (%4, %6))";
constexpr uint64_t kX = 11, kW = 12, kY = 13;

class Runner {
 public:
  explicit Runner(const std::string& device)
      : handler_(SessionHandler::Options{.device = device}) {}

  absl::Status Start() {
    internal::Hello hello;
    return handler_.Start(hello);
  }
  // As the daemon attaches what it has.
  SharedMemory& Attach(uint64_t id, const std::vector<float>& values) {
    std::unique_ptr<SharedMemory>& memory = memories_[id];
    memory = SharedMemory::Create(values.size() * sizeof(float)).value();
    std::memcpy(memory->data(), values.data(), memory->size_bytes());
    internal::Attach attach;
    attach.set_id(id);
    attach.set_bytes(memory->size_bytes());
    attach.set_writable(true);
    EXPECT_TRUE(handler_.Attach(attach, dup(memory->file())).ok());
    return *memory;
  }
  void Attach(const DeviceTurn& turn) {
    internal::Attach attach;
    attach.set_kind(internal::Attach::TURN);
    EXPECT_TRUE(handler_.Attach(attach, dup(turn.file())).ok());
  }
  void Detach(uint64_t id) { handler_.Detach(id); }
  internal::Frame Ask(const internal::Frame& request) {
    internal::Frame reply;
    EXPECT_TRUE(handler_.Handle(request, reply).ok());
    if (!reply.ends().empty()) ends_ = reply.ends();
    return reply;
  }
  // Why it is to be replaced.
  const std::string& ends() const { return ends_; }

  absl::Status Plan(uint64_t plan, absl::string_view text, uint32_t inputs) {
    UOpGraph graph;
    internal::Frame request;
    request.mutable_plan()->set_plan(plan);
    *request.mutable_plan()->mutable_graph() = ToProto(ParseText(text, graph).value());
    request.mutable_plan()->set_inputs(inputs);
    const internal::Frame planned = Ask(request);
    BEAMD_RETURN_IF_ERROR(FromFrame(planned.planned().outcome()));
    internal::Frame build;
    build.mutable_build()->set_plan(plan);
    for (const internal::PlanKernel& kernel : planned.planned().kernels()) {
      *build.mutable_build()->add_kernels()->mutable_opts() = kernel.heuristic_opts();
    }
    return FromFrame(Ask(build).built().outcome());
  }

  struct Memory {
    uint64_t id = 0;
    internal::MemoryState state = internal::HELD;
  };
  internal::RunPlanReply Run(uint64_t plan, const std::vector<Memory>& memories,
                             const std::vector<uint64_t>& fetch = {}, bool profile = false) {
    internal::Frame request;
    internal::RunPlanRequest& run = *request.mutable_run();
    run.set_plan(plan);
    for (const Memory& memory : memories) {
      run.add_memories(memory.id);
      run.add_states(memory.state);
    }
    run.mutable_fetch()->Add(fetch.begin(), fetch.end());
    run.set_fetch_most(uint64_t{1} << 40);
    run.set_profile(profile);
    return Ask(request).ran();
  }
  internal::FetchReply Fetch(uint64_t id) {
    internal::Frame request;
    request.mutable_fetch()->set_memory(id);
    return Ask(request).fetched();
  }
  std::vector<float> Floats(uint64_t id) const {
    const SharedMemory& memory = *memories_.at(id);
    std::vector<float> values(memory.size_bytes() / sizeof(float));
    std::memcpy(values.data(), memory.data(), memory.size_bytes());
    return values;
  }

 private:
  std::map<uint64_t, std::unique_ptr<SharedMemory>> memories_;
  SessionHandler handler_;
  std::string ends_;
};

class SessionHandlerTest : public ::testing::TestWithParam<Target> {
 protected:
  SessionHandlerTest() {
    if (GetParam().library != nullptr) fake_.emplace(GetParam().library);
    if (fake_) fake_->Reset();
  }
  ~SessionHandlerTest() override {
    if (fake_) fake_->Reset();
  }

  void Open() {
    runner_ = std::make_unique<Runner>(GetParam().device);
    ASSERT_EQ(runner_->Start(), absl::OkStatus());
  }
  // x is 3, w is 1.
  void OpenWithPlan() {
    Open();
    runner_->Attach(kX, std::vector<float>(256, 3));
    runner_->Attach(kW, std::vector<float>(256, 1));
    runner_->Attach(kY, std::vector<float>(256, -1));
    ASSERT_EQ(runner_->Plan(1, kGraph, 2), absl::OkStatus());
  }

  // All that a runner is asked, once; the first error.
  static absl::Status Everything(Runner& runner) {
    BEAMD_RETURN_IF_ERROR(runner.Start());
    runner.Attach(kX, std::vector<float>(256, 3));
    runner.Attach(kW, std::vector<float>(256, 1));
    runner.Attach(kY, std::vector<float>(256, -1));
    BEAMD_RETURN_IF_ERROR(runner.Plan(1, kGraph, 2));
    const internal::RunPlanReply first =
        runner.Run(1, {{kX, internal::STAGED}, {kW, internal::STAGED}, {kY, internal::NEW}});
    BEAMD_RETURN_IF_ERROR(FromFrame(first.outcome()));
    const internal::RunPlanReply second =
        runner.Run(1, {{kX, internal::STAGED}, {kW, internal::HELD}, {kY, internal::NEW}}, {kY});
    BEAMD_RETURN_IF_ERROR(FromFrame(second.outcome()));
    BEAMD_RETURN_IF_ERROR(FromFrame(runner.Fetch(kW).outcome()));
    // 7 and 8; 14 and 22.
    EXPECT_THAT(runner.Floats(kY), Each(14.0f));
    EXPECT_THAT(runner.Floats(kW), Each(22.0f));
    return absl::OkStatus();
  }

  std::optional<FakeDriver> fake_;
  std::unique_ptr<Runner> runner_;
};

TEST_P(SessionHandlerTest, DoesEverything) {
  Runner runner(GetParam().device);
  EXPECT_EQ(Everything(runner), absl::OkStatus());
  EXPECT_THAT(runner.ends(), IsEmpty());
}

TEST_P(SessionHandlerTest, WhatARunWritesIsTheDevicesUntilItIsFetched) {
  OpenWithPlan();
  const internal::RunPlanReply ran =
      runner_->Run(1, {{kX, internal::STAGED}, {kW, internal::STAGED}, {kY, internal::NEW}}, {},
                   /*profile=*/true);
  ASSERT_EQ(FromFrame(ran.outcome()), absl::OkStatus());
  EXPECT_TRUE(ran.began());
  ASSERT_GT(ran.launches_size(), 0);
  for (const auto& launch : ran.launches()) EXPECT_GT(launch.seconds(), 0);
  const bool own = GetParam().own_memory;
  EXPECT_THAT(runner_->Floats(kY), Each(own ? -1.0f : 7.0f));
  EXPECT_THAT(runner_->Floats(kW), Each(own ? 1.0f : 8.0f));
  // What the shared memory has is old now: the device's copy is what a run reads, and it reads it
  // though it is told that both have it.
  ASSERT_EQ(FromFrame(runner_->Fetch(kW).outcome()), absl::OkStatus());
  EXPECT_THAT(runner_->Floats(kW), Each(8.0f));
  EXPECT_THAT(runner_->Floats(kY), Each(own ? -1.0f : 7.0f));
  const internal::RunPlanReply again = runner_->Run(
      1, {{kX, internal::STAGED}, {kW, internal::STAGED}, {kY, internal::NEW}}, {kY, kW});
  ASSERT_EQ(FromFrame(again.outcome()), absl::OkStatus());
  EXPECT_THAT(runner_->Floats(kY), Each(14.0f));
  EXPECT_THAT(runner_->Floats(kW), Each(22.0f));
}

TEST_P(SessionHandlerTest, SaysWhatTheRunnerBeforeItHad) {
  OpenWithPlan();
  if (!GetParam().own_memory) return;
  const internal::RunPlanReply ran =
      runner_->Run(1, {{kX, internal::HELD}, {kW, internal::HELD}, {kY, internal::NEW}});
  EXPECT_EQ(FromFrame(ran.outcome()), absl::OkStatus());
  EXPECT_FALSE(ran.began());
  EXPECT_THAT(ran.lost(), ElementsAre(kX, kW));
  EXPECT_TRUE(runner_->Fetch(kX).lost());
  EXPECT_TRUE(runner_->Fetch(99).lost());
  // One that was detached is as one that never was.
  ASSERT_EQ(
      FromFrame(
          runner_->Run(1, {{kX, internal::STAGED}, {kW, internal::STAGED}, {kY, internal::NEW}})
              .outcome()),
      absl::OkStatus());
  runner_->Detach(kW);
  EXPECT_TRUE(runner_->Fetch(kW).lost());
  EXPECT_FALSE(runner_->Fetch(kY).lost());
}

// Larger than a transfer.
TEST_P(SessionHandlerTest, LargeMemoriesKeepTheirBytes) {
  Open();
  std::vector<float> values((size_t{17} << 20) / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 65521);
  runner_->Attach(kX, values);
  runner_->Attach(kY, std::vector<float>(values.size()));
  ASSERT_EQ(runner_->Plan(1,
                          absl::Substitute(R"(%0 = BUFFER float32 slot 0 shape ($0)
%1 = ADD float32 (%0, %0)
%2 = SINK void (%1))",
                                           values.size()),
                          1),
            absl::OkStatus());
  ASSERT_EQ(
      FromFrame(runner_->Run(1, {{kX, internal::STAGED}, {kY, internal::NEW}}, {kY}).outcome()),
      absl::OkStatus());
  for (float& value : values) value *= 2;
  EXPECT_EQ(runner_->Floats(kY), values);
}

TEST_P(SessionHandlerTest, NothingHappensOnTheDeviceOutOfTurn) {
  if (!GetParam().own_memory) return;
  OpenWithPlan();
  const std::unique_ptr<DeviceTurn> turn = DeviceTurn::Create().value();
  runner_->Attach(*turn);
  turn->Take();
  std::future<internal::RunPlanReply> ran = std::async(std::launch::async, [&] {
    return runner_->Run(1, {{kX, internal::STAGED}, {kW, internal::STAGED}, {kY, internal::NEW}});
  });
  EXPECT_EQ(ran.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  if (fake_) {
    EXPECT_EQ(fake_->calls("cuMemcpyHtoDAsync_v2") + fake_->calls("hipMemcpyAsync"), 0);
  }
  turn->Give();
  EXPECT_EQ(FromFrame(ran.get().outcome()), absl::OkStatus());
}

std::vector<std::string> EntriesOf(const Target& target) {
  if (std::string(target.device).starts_with("cuda")) {
    return {
#define CUDA_ENTRY(name, ...) #name,
#include "devices/cuda/api.def"
#undef CUDA_ENTRY
    };
  }
  return {
#define HIP_ENTRY(result, name, ...) #name,
#include "devices/hip/api.def"
#undef HIP_ENTRY
  };
}

// Wherever the driver fails, the runner says so in the answer to what it was asked, and that it is
// to be replaced where the device is lost; what it held goes with it.
TEST_P(SessionHandlerTest, EveryFailureOfEveryEntryPointIsAnAnswer) {
  if (!fake_) return;
  const auto everything = [](std::string& ends) {
    Runner runner(GetParam().device);
    absl::Status status = Everything(runner);
    ends = runner.ends();
    return status;
  };
  std::string ends;
  ASSERT_EQ(everything(ends), absl::OkStatus());
  const int64_t before = fake_->alive();
  for (const std::string& entry : EntriesOf(GetParam())) {
    if (entry.find("GetError") != std::string::npos) continue;
    const bool releases =
        entry.find("Free") != std::string::npos || entry.find("Unload") != std::string::npos ||
        entry.find("Destroy") != std::string::npos || entry.find("Release") != std::string::npos;
    if (releases) continue;  // nobody is there to be told
    const bool pinned = entry == "cuMemAllocHost_v2" || entry == "hipHostMalloc";
    const bool enters = entry == "cuCtxSetCurrent" || entry == "hipSetDevice";
    fake_->Fail(entry, -1, 0);  // counts alone
    ASSERT_EQ(everything(ends), absl::OkStatus());
    const int64_t calls = fake_->calls(entry);
    // Of many, some at the beginning and some at the end.
    for (int64_t call = 1; call <= calls; ++call) {
      if (call == 6 && calls > 12) call = calls - 5;
      for (const int code : {2, 700}) {
        fake_->Fail(entry, static_cast<int>(call), code);
        const absl::Status status = everything(ends);
        EXPECT_EQ(fake_->alive(), before) << entry << " " << call;
        if (status.ok()) {
          EXPECT_TRUE(pinned || enters) << entry << " " << call;
          continue;
        }
        EXPECT_EQ(status.code(),
                  code == 2 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable)
            << entry << " " << call << ": " << status;
        // Opening it is no answer to anybody.
        EXPECT_TRUE(ends == (code == 700 ? "device" : "") || ends.empty()) << ends;
      }
    }
    fake_->Fail(entry, -1, 0);
  }
}

TEST_P(SessionHandlerTest, ARunThatFindsNoMemoryHasNotBegunAndCanBeTriedAgain) {
  if (!fake_) return;
  OpenWithPlan();
  fake_->Fail("cuMemAlloc_v2", 3, 2);
  fake_->Fail("hipMalloc", 3, 2);
  const std::vector<Runner::Memory> memories = {
      {kX, internal::STAGED}, {kW, internal::STAGED}, {kY, internal::NEW}};
  const internal::RunPlanReply full = runner_->Run(1, memories);
  const absl::Status status = FromFrame(full.outcome());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("1024 bytes"));
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason, "DEVICE_MEMORY");
  EXPECT_EQ(detail->value, 1024);
  EXPECT_GT(*detail->limit, int64_t{3} << 30);
  EXPECT_FALSE(full.began());
  EXPECT_THAT(runner_->ends(), IsEmpty());
  EXPECT_EQ(FromFrame(runner_->Run(1, memories, {kY}).outcome()), absl::OkStatus());
  EXPECT_THAT(runner_->Floats(kY), Each(7.0f));
}

INSTANTIATE_TEST_SUITE_P(Devices, SessionHandlerTest,
                         ::testing::Values(Target{"cpu:0", nullptr, /*own_memory=*/false},
                                           Target{"cuda:0", "libcuda.so.1"},
                                           Target{"hip:0", "libamdhip64.so.6"},
                                           Target{"emu:sm_80", nullptr},
                                           Target{"emu:gfx1100", nullptr}),
                         [](const auto& info) {
                           std::string name = info.param.device;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace beamd

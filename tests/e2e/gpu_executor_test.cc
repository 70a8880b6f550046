// Sessions on devices with memory of their own: the GPUs of the fake drivers and an emulated one,
// beside the CPU's session that computes the same.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"
#include "tests/testing/executor_client.h"

namespace beamd {
namespace {

using ::beamd::testing::AddOne;
using ::beamd::testing::AddOneInPlace;
using ::beamd::testing::Daemon;
using ::beamd::testing::ExecutorClient;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::GraphOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// The mean square of t + relu(x . w1) . w2, over 16 rows of 8.
std::string Loss(uint64_t x, uint64_t w1, uint64_t w2, uint64_t t) {
  return absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (16,8)
%1 = RESHAPE float32 (%0) ints (16,8,1)
%2 = EXPAND float32 (%1) ints (16,8,16)
%3 = BUFFER float32 slot $1 shape (8,16)
%4 = RESHAPE float32 (%3) ints (1,8,16)
%5 = EXPAND float32 (%4) ints (16,8,16)
%6 = MUL float32 (%2, %5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (1)
%8 = RESHAPE float32 (%7) ints (16,16)
%9 = CONST float32 0.0
%10 = RESHAPE float32 (%9) ints (1,1)
%11 = EXPAND float32 (%10) ints (16,16)
%12 = MAX float32 (%8, %11)
%13 = BUFFER float32 slot $2 shape (16)
%14 = RESHAPE float32 (%13) ints (1,16)
%15 = EXPAND float32 (%14) ints (16,16)
%16 = MUL float32 (%12, %15)
%17 = REDUCE_AXIS float32 (%16) ADD axes (1)
%18 = RESHAPE float32 (%17) ints (16)
%19 = BUFFER float32 slot $3 shape (16)
%20 = ADD float32 (%18, %19)
%21 = MUL float32 (%20, %20)
%22 = REDUCE_AXIS float32 (%21) ADD axes (0)
%23 = RESHAPE float32 (%22) ints ()
%24 = SINK void (%23))",
                          x, w1, w2, t);
}

// w = w - g / 256; the axes are in `ones` one each.
std::string Step(uint64_t w, uint64_t g, const std::string& shape, const std::string& ones) {
  return absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape ($2)
%1 = BUFFER float32 slot $1 shape ($2)
%2 = CONST float32 -0.00390625
%3 = RESHAPE float32 (%2) ints ($3)
%4 = EXPAND float32 (%3) ints ($2)
%5 = MUL float32 (%1, %4)
%6 = ADD float32 (%0, %5)
%7 = ASSIGN float32 (%0, %6)
%8 = SINK void (%7))",
                          w, g, shape, ones);
}

std::vector<float> Values(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int>(seed >> 59) - 16) / 16;
  }
  return values;
}

// The runners of sessions on this device.
std::vector<pid_t> RunnersOf(const Daemon& daemon, const std::string& device) {
  std::vector<pid_t> found = daemon.Children("session");
  std::erase_if(found, [&](pid_t child) {
    std::ifstream command(absl::StrCat("/proc/", child, "/cmdline"));
    const std::string text{std::istreambuf_iterator<char>(command), {}};
    const std::vector<std::string> argv = absl::StrSplit(text, '\0');
    return std::find(argv.begin(), argv.end(), absl::StrCat("--device=", device)) == argv.end();
  });
  return found;
}

class GpuExecutorTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    daemon_ = new Daemon("server/beamd", FreshDirectory() + "/store",
                         {"--devices=cpu:0,cuda:0,hip:0,emu:sm_80", "--session_mb=8192",
                          "--sessions_mb=8192", "--session_run_timeout=20s"});
  }
  static void TearDownTestSuite() {
    delete daemon_;
    daemon_ = nullptr;
  }
  void SetUp() override {
    client_ = std::make_unique<ExecutorClient>(daemon_->address());
    ASSERT_TRUE(client_->Open(0, GetParam())) << client_->status().error_message();
    cpu_ = std::make_unique<ExecutorClient>(daemon_->address());
    ASSERT_TRUE(cpu_->Open(0, "cpu:0")) << cpu_->status().error_message();
  }
  void TearDown() override {
    client_->Close();
    cpu_->Close();
  }

  std::string Reason() const { return client_->detail().reason(); }

  // The first output; empty where the run failed.
  static std::vector<float> Output(ExecutorClient& client, const std::string& graph) {
    const std::optional<v1::RunResponse> ran = client.Run(graph);
    EXPECT_TRUE(ran) << client.status().error_message();
    return ran ? client.Floats(ran->outputs(0).buffer().handle()) : std::vector<float>();
  }

  static Daemon* daemon_;
  std::unique_ptr<ExecutorClient> client_, cpu_;
};
Daemon* GpuExecutorTest::daemon_ = nullptr;

TEST_P(GpuExecutorTest, ComputesWhatTheCpuDoes) {
  const std::vector<std::string> graphs = {// elementwise
                                           R"(%0 = BUFFER float32 slot 1 shape (32,48)
%1 = BUFFER float32 slot 2 shape (32,48)
%2 = MUL float32 (%0, %1)
%3 = ADD float32 (%2, %0)
%4 = EXP2 float32 (%3)
%5 = SINK void (%4))",
                                           // sums of rows, the largest of columns
                                           R"(%0 = BUFFER float32 slot 1 shape (32,48)
%1 = REDUCE_AXIS float32 (%0) ADD axes (1)
%2 = SINK void (%1))",
                                           R"(%0 = BUFFER float32 slot 1 shape (32,48)
%1 = REDUCE_AXIS float32 (%0) MAX axes (0)
%2 = SINK void (%1))",
                                           // a product of matrices
                                           R"(%0 = BUFFER float32 slot 1 shape (32,48)
%1 = RESHAPE float32 (%0) ints (32,48,1)
%2 = EXPAND float32 (%1) ints (32,48,32)
%3 = BUFFER float32 slot 2 shape (32,48)
%4 = PERMUTE float32 (%3) ints (1,0)
%5 = RESHAPE float32 (%4) ints (1,48,32)
%6 = EXPAND float32 (%5) ints (32,48,32)
%7 = MUL float32 (%2, %6)
%8 = REDUCE_AXIS float32 (%7) ADD axes (1)
%9 = SINK void (%8))",
                                           // two kernels, and what lies between them
                                           R"(%0 = BUFFER float32 slot 1 shape (32,48)
%1 = REDUCE_AXIS float32 (%0) ADD axes (1)
%2 = EXPAND float32 (%1) ints (32,48)
%3 = MUL float32 (%2, %0)
%4 = REDUCE_AXIS float32 (%3) ADD axes (0,1)
%5 = SINK void (%4))"};
  for (ExecutorClient* const client : {client_.get(), cpu_.get()}) {
    ASSERT_EQ(client->Upload({32, 48}, Values(32 * 48, 1)), 1);
    ASSERT_EQ(client->Upload({32, 48}, Values(32 * 48, 2)), 2);
  }
  for (const std::string& graph : graphs) {
    const std::vector<float> want = Output(*cpu_, graph);
    ASSERT_FALSE(want.empty());
    EXPECT_THAT(Output(*client_, graph), Pointwise(FloatNear(1e-4f), want)) << graph;
  }
}

TEST_P(GpuExecutorTest, TrainsAsTheCpuDoes) {
  std::vector<std::vector<float>> losses, weights;
  for (ExecutorClient* const client : {client_.get(), cpu_.get()}) {
    const uint64_t x = client->Upload({16, 8}, Values(128, 3));
    const uint64_t w1 = client->Upload({8, 16}, Values(128, 4));
    const uint64_t w2 = client->Upload({16}, Values(16, 5));
    const uint64_t t = client->Upload({16}, Values(16, 6));
    std::vector<float>& of_steps = losses.emplace_back();
    for (int step = 0; step < 6; ++step) {
      v1::RunRequest request;
      *request.mutable_graph() = GraphOf(Loss(x, w1, w2, t));
      request.add_gradients(w1);
      request.add_gradients(w2);
      const std::optional<v1::RunResponse> ran = client->Run(request);
      ASSERT_TRUE(ran) << client->status().error_message();
      EXPECT_EQ(ran->statistics().captured(), step > 0);
      of_steps.push_back(client->Floats(ran->outputs(0).buffer().handle()).at(0));
      const uint64_t g1 = ran->outputs(1).buffer().handle();
      const uint64_t g2 = ran->outputs(2).buffer().handle();
      ASSERT_TRUE(client->Run(Step(w1, g1, "8,16", "1,1"))) << client->status().error_message();
      ASSERT_TRUE(client->Run(Step(w2, g2, "16", "1"))) << client->status().error_message();
      ASSERT_TRUE(client->Free({ran->outputs(0).buffer().handle(), g1, g2}));
    }
    weights.push_back(client->Floats(w1));
    // What was read can be written again.
    ASSERT_TRUE(client->Run(AddOneInPlace(t, 16)));
    EXPECT_FLOAT_EQ(client->Floats(t).at(7), Values(16, 6)[7] + 1);
  }
  EXPECT_THAT(losses[0], Pointwise(FloatNear(1e-4f), losses[1]));
  EXPECT_LT(losses[0].back(), 0.8f * losses[0].front());
  EXPECT_THAT(weights[0], Pointwise(FloatNear(1e-5f), weights[1]));
}

TEST_P(GpuExecutorTest, VariablesTakeValuesWithinTheirBounds) {
  const uint64_t x = client_->Upload({8}, {1, 2, 3, 4, 5, 6, 7, 8});
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (8)
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = CAST int64 (%1)
%3 = SHRINK float32 (%0, %2) ints (0,$$1)
%4 = REDUCE_AXIS float32 (%3) ADD axes (0)
%5 = SINK void (%4))",
                                                      x));
  for (const auto& [n, sum] : {std::pair(3, 6.0f), std::pair(8, 36.0f), std::pair(1, 1.0f)}) {
    (*request.mutable_variables())["n"] = n;
    const std::optional<v1::RunResponse> ran = client_->Run(request);
    ASSERT_TRUE(ran) << client_->status().error_message();
    EXPECT_THAT(client_->Floats(ran->outputs(0).buffer().handle()), ElementsAre(sum));
  }
  (*request.mutable_variables())["n"] = 9;
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(Reason(), "VARIABLE_BOUNDS");
}

TEST_P(GpuExecutorTest, VariablesGiveTheShapesOfOutputs) {
  for (ExecutorClient* const client : {client_.get(), cpu_.get()}) {
    const uint64_t x = client->Upload({8}, {1, 2, 3, 4, 5, 6, 7, 8});
    v1::RunRequest request;
    request.set_inline_bytes(12);
    *request.mutable_graph() = GraphOf(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (8)
%1 = DEFINE_VAR int32 var "n" 0..8
%2 = CAST int64 (%1)
%3 = SHRINK float32 (%0, %2) ints (0,$$1)
%4 = ADD float32 (%3, %3)
%5 = SINK void (%4))",
                                                        x));
    for (const int n : {3, 8, 1}) {
      (*request.mutable_variables())["n"] = n;
      const std::optional<v1::RunResponse> ran = client->Run(request);
      ASSERT_TRUE(ran) << client->status().error_message();
      const v1::BufferInfo& y = ran->outputs(0).buffer();
      EXPECT_THAT(y.shape(), ElementsAre(n));
      EXPECT_EQ(y.bytes(), 4 * n);
      EXPECT_EQ(ran->outputs(0).has_data(), n <= 3);
      std::vector<float> want(static_cast<size_t>(n));
      for (size_t i = 0; i < want.size(); ++i) want[i] = 2.0f * static_cast<float>(i + 1);
      EXPECT_EQ(client->Floats(y.handle()), want);
      for (float& value : want) ++value;
      EXPECT_EQ(Output(*client, AddOne(y.handle(), n)), want);
      EXPECT_FALSE(client->Run(AddOne(y.handle(), n + 1)));
      EXPECT_EQ(client->detail().reason(), "BUFFER");
      EXPECT_FALSE(client->Download(y.handle(), 4 * static_cast<uint64_t>(n) + 1));
      EXPECT_EQ(client->detail().reason(), "RANGE");
    }
    (*request.mutable_variables())["n"] = 0;
    EXPECT_FALSE(client->Run(request));
    EXPECT_EQ(client->detail().reason(), "EMPTY_OUTPUT");
    // Memory is counted whole.
    EXPECT_EQ(client->KeepAlive()->bytes(), 32 + 3 * 32 + 12 + 32 + 4);
  }
}

TEST_P(GpuExecutorTest, ReturnsContentAndStatisticsWhereAsked) {
  const uint64_t x = client_->Upload({256}, std::vector<float>(256, 2));
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(AddOne(x, 256));
  request.set_profile(true);
  request.set_inline_bytes(1024);
  for (int i = 0; i < 2; ++i) {
    const std::optional<v1::RunResponse> ran = client_->Run(request);
    ASSERT_TRUE(ran) << client_->status().error_message();
    ASSERT_EQ(ran->outputs(0).data().size(), 1024);
    std::vector<float> y(256);
    std::memcpy(y.data(), ran->outputs(0).data().data(), 1024);
    EXPECT_THAT(y, Each(3.0f));
    EXPECT_EQ(client_->Floats(ran->outputs(0).buffer().handle()), y);
    ASSERT_EQ(ran->kernels_size(), 1);
    EXPECT_GT(ran->kernels(0).seconds(), 0);
    EXPECT_GT(ran->statistics().run_s(), 0);
    ASSERT_TRUE(client_->Free({ran->outputs(0).buffer().handle()}));
  }
  request.set_inline_bytes(1023);
  EXPECT_FALSE(client_->Run(request)->outputs(0).has_data());
  // In place, and an output that is an input.
  *request.mutable_graph() = GraphOf(AddOneInPlace(x, 256));
  request.set_inline_bytes(1024);
  for (float want = 3; want < 6; ++want) {
    const std::optional<v1::RunResponse> ran = client_->Run(request);
    ASSERT_TRUE(ran) << client_->status().error_message();
    float first = 0;
    std::memcpy(&first, ran->outputs(0).data().data(), sizeof(first));
    EXPECT_EQ(first, want);
  }
  EXPECT_THAT(client_->Floats(x), Each(5.0f));
}

TEST_P(GpuExecutorTest, AssignsInPlaceButNotIntoWhatOthersHold) {
  std::vector<float> values(1024, 1);
  const auto bytes = std::as_bytes(std::span(values));
  const uint64_t x = client_->Upload(v1::SCALAR_FLOAT32, {1024}, bytes, /*digest=*/true);
  const uint64_t y = client_->Upload(v1::SCALAR_FLOAT32, {1024}, bytes, /*digest=*/true);
  const uint64_t cpu = cpu_->Upload(v1::SCALAR_FLOAT32, {1024}, bytes, /*digest=*/true);
  for (int i = 0; i < 3; ++i) {
    const std::optional<v1::RunResponse> ran = client_->Run(AddOneInPlace(x, 1024));
    ASSERT_TRUE(ran) << client_->status().error_message();
    EXPECT_EQ(ran->outputs(0).buffer().handle(), x);
  }
  EXPECT_THAT(client_->Floats(x), Each(4.0f));
  EXPECT_THAT(client_->Floats(y), Each(1.0f));
  EXPECT_THAT(Output(*client_, AddOne(y, 1024)), Each(2.0f));
  EXPECT_THAT(Output(*cpu_, AddOne(cpu, 1024)), Each(2.0f));
}

// Memory that was freed comes again: for a run's outputs with what the device has of it, for an
// upload without.
TEST_P(GpuExecutorTest, FreedMemoryComesBackWithoutItsContent) {
  const uint64_t x = client_->Upload({512}, std::vector<float>(512, 1));
  for (int i = 0; i < 4; ++i) {
    const std::optional<v1::RunResponse> ran = client_->Run(AddOne(x, 512));
    ASSERT_TRUE(ran) << client_->status().error_message();
    const uint64_t y = ran->outputs(0).buffer().handle();
    EXPECT_THAT(client_->Floats(y), Each(2.0f));
    ASSERT_TRUE(client_->Free({y}));
    const uint64_t z = client_->Upload({512}, std::vector<float>(512, 10.0f + i));
    EXPECT_THAT(Output(*client_, AddOne(z, 512)), Each(11.0f + i));
    ASSERT_TRUE(client_->Free({z}));
  }
  const std::optional<v1::Session> session = client_->KeepAlive();
  ASSERT_TRUE(session);
  EXPECT_EQ(session->bytes(), 2048 + 4 * 2048);
  EXPECT_EQ(session->buffers(), 5);
}

// Runs that name a common buffer, and reads of it, from many threads.
TEST_P(GpuExecutorTest, RunsAndReadsOfOneBufferAreOrdered) {
  constexpr int kSize = 4096;
  const uint64_t x = client_->Upload({kSize}, std::vector<float>(kSize, 0));
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      v1::RunRequest request;
      request.set_session(client_->session());
      *request.mutable_graph() = GraphOf(AddOneInPlace(x, kSize));
      for (int i = 0; i < 10; ++i) {
        grpc::ClientContext context;
        v1::RunResponse response;
        EXPECT_TRUE(client_->stub().Run(&context, request, &response).ok());
      }
    });
  }
  float last = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> seen = client_->Floats(x);
    ASSERT_EQ(seen.size(), kSize) << client_->status().error_message();
    EXPECT_THAT(seen, Each(seen[0]));
    EXPECT_GE(seen[0], last);
    last = seen[0];
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(client_->Floats(x), Each(30.0f));
}

// What was uploaded or read since it was written outlives the runner; what it alone had is lost.
TEST_P(GpuExecutorTest, AKilledRunnerLosesWhatItAloneHad) {
  const uint64_t x = client_->Upload({4}, {1, 2, 3, 4});
  const uint64_t read = client_->Run(AddOne(x, 4))->outputs(0).buffer().handle();
  EXPECT_THAT(client_->Floats(read), ElementsAre(2, 3, 4, 5));
  const uint64_t unread = client_->Run(AddOne(read, 4))->outputs(0).buffer().handle();
  const uint64_t unread_too = client_->Run(AddOne(read, 4))->outputs(0).buffer().handle();
  ExecutorClient other(daemon_->address());
  const std::vector<pid_t> runners = RunnersOf(*daemon_, GetParam());
  ASSERT_EQ(runners.size(), 1);
  ASSERT_TRUE(other.Open(0, GetParam()));
  const uint64_t others = other.Upload({4}, {1, 2, 3, 4});
  const uint64_t theirs = other.Run(AddOne(others, 4))->outputs(0).buffer().handle();
  ASSERT_EQ(kill(runners[0], SIGKILL), 0);

  EXPECT_FALSE(client_->Download(unread));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(), "LOST");
  EXPECT_EQ(client_->detail().value(), unread);
  EXPECT_THAT(client_->status().error_message(), HasSubstr("runner ended, which alone had it"));
  EXPECT_FALSE(client_->Run(AddOne(unread_too, 4)));
  EXPECT_EQ(Reason(), "LOST");
  EXPECT_EQ(client_->detail().node(), 0);
  EXPECT_THAT(client_->Floats(read), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Output(*client_, AddOne(read, 4)), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(Output(*client_, AddOne(x, 4)), ElementsAre(2, 3, 4, 5));
  EXPECT_TRUE(client_->Free({unread, unread_too}));

  EXPECT_THAT(other.Floats(theirs), ElementsAre(2, 3, 4, 5));
  EXPECT_TRUE(other.Run(AddOne(others, 4))->statistics().captured());
  EXPECT_TRUE(other.Close());
}

TEST_P(GpuExecutorTest, ADeviceThatIsFullIsTold) {
  if (std::string(GetParam()).starts_with("emu")) return;  // it has what the host has
  const uint64_t x = client_->Upload({1}, {3});
  constexpr int64_t kSize = int64_t{640} << 20;  // 2.5 GiB of 4
  EXPECT_FALSE(client_->Run(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (1)
%1 = EXPAND float32 (%0) ints ($1)
%2 = ADD float32 (%1, %1)
%3 = MUL float32 (%1, %1)
%4 = SINK void (%2, %3))",
                                             x, kSize)));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(), "DEVICE_MEMORY");
  EXPECT_EQ(client_->detail().value(), 4 * kSize);
  EXPECT_GT(client_->detail().limit(), int64_t{1} << 30);
  EXPECT_LT(client_->detail().limit(), 4 * kSize);
  // Nothing is lost, and what was taken is back.
  EXPECT_THAT(Output(*client_, AddOne(x, 1)), ElementsAre(4));
  EXPECT_FALSE(client_->Run(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (1)
%1 = EXPAND float32 (%0) ints ($1)
%2 = ADD float32 (%1, %1)
%3 = MUL float32 (%1, %1)
%4 = SINK void (%2, %3))",
                                             x, kSize)));
  EXPECT_GT(client_->detail().limit(), int64_t{1} << 30);
}

INSTANTIATE_TEST_SUITE_P(Devices, GpuExecutorTest,
                         ::testing::Values("cuda:0", "hip:0", "emu:sm_80"), [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

// A driver that fails where it is told to, in every runner anew.
class FailingGpuTest : public ::testing::Test {
 protected:
  ~FailingGpuTest() override { unsetenv("BEAMD_FAKE_ERRORS"); }
  void Start(const char* errors) {
    setenv("BEAMD_FAKE_ERRORS", errors, 1);
    daemon_ = std::make_unique<Daemon>("server/beamd", FreshDirectory() + "/store",
                                       std::vector<std::string>{"--devices=cuda:0,hip:0"});
  }
  std::unique_ptr<ExecutorClient> Open(const std::string& device) {
    auto client = std::make_unique<ExecutorClient>(daemon_->address());
    EXPECT_TRUE(client->Open(0, device)) << client->status().error_message();
    return client;
  }

  std::unique_ptr<Daemon> daemon_;
};

// Its known kernel fails wherever a runner starts: nothing is run there any more, for no session.
TEST_F(FailingGpuTest, ADeviceInQuarantineRunsNothing) {
  Start("cuLaunchKernel:0=700");
  const std::unique_ptr<ExecutorClient> before = Open("cuda:0");
  const std::unique_ptr<ExecutorClient> elsewhere = Open("hip:0");
  const uint64_t x = before->Upload({4}, {1, 2, 3, 4});
  for (const pid_t runner : daemon_->Children("runner")) kill(runner, SIGKILL);
  ExecutorClient after(daemon_->address());
  const absl::Time start = absl::Now();
  while (after.Open(0, "cuda:0") && absl::Now() < start + absl::Seconds(60)) {
    ASSERT_TRUE(after.Close());
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(after.status().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(after.detail().reason(), "DEVICE_QUARANTINED");
  EXPECT_FALSE(before->Run(AddOne(x, 4)));
  EXPECT_EQ(before->status().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(before->detail().reason(), "DEVICE_QUARANTINED");
  EXPECT_THAT(before->status().error_message(), HasSubstr("beamctl devices release"));
  EXPECT_THAT(before->Floats(x), ElementsAre(1, 2, 3, 4));
  const uint64_t y = elsewhere->Upload({4}, {1, 2, 3, 4});
  const std::optional<v1::RunResponse> ran = elsewhere->Run(AddOne(y, 4));
  ASSERT_TRUE(ran) << elsewhere->status().error_message();
  EXPECT_THAT(elsewhere->Floats(ran->outputs(0).buffer().handle()), ElementsAre(2, 3, 4, 5));
}

TEST_F(FailingGpuTest, ALostDeviceEndsOneRunAndItsRunner) {
  Start("cuLaunchKernel:3=700,hipModuleLaunchKernel:3=700");
  for (const char* device : {"cuda:0", "hip:0"}) {
    const std::unique_ptr<ExecutorClient> other = Open(device), client = Open(device);
    const uint64_t theirs = other->Upload({4}, {5, 6, 7, 8});
    ASSERT_TRUE(other->Run(AddOneInPlace(theirs, 4)));
    const uint64_t x = client->Upload({4}, {1, 2, 3, 4});
    const uint64_t w = client->Upload({4}, {1, 2, 3, 4});
    const uint64_t y = client->Run(AddOne(x, 4))->outputs(0).buffer().handle();
    ASSERT_TRUE(client->Run(AddOne(x, 4)));
    EXPECT_FALSE(client->Run(AddOneInPlace(w, 4)));
    EXPECT_EQ(client->status().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(client->detail().reason(), "RUN_CRASHED");
    EXPECT_THAT(client->status().error_message(), HasSubstr(": 700 "));
    // What it assigned to, and what the device alone had; the handles say why.
    for (const uint64_t handle : {w, y}) {
      EXPECT_FALSE(client->Download(handle));
      EXPECT_EQ(client->detail().reason(), "LOST");
      EXPECT_THAT(client->status().error_message(), HasSubstr(": 700 "));
    }
    EXPECT_THAT(client->Floats(x), ElementsAre(1, 2, 3, 4));
    const std::optional<v1::RunResponse> again = client->Run(AddOne(x, 4));
    ASSERT_TRUE(again) << client->status().error_message();
    EXPECT_THAT(client->Floats(again->outputs(0).buffer().handle()), ElementsAre(2, 3, 4, 5));
    // The other session notices nothing.
    const std::optional<v1::RunResponse> ran = other->Run(AddOneInPlace(theirs, 4));
    ASSERT_TRUE(ran) << other->status().error_message();
    EXPECT_TRUE(ran->statistics().captured());
    EXPECT_THAT(other->Floats(theirs), ElementsAre(7, 8, 9, 10));
  }
}

TEST_F(FailingGpuTest, TransfersThatFailAreTold) {
  // The second copy in of a runner; and of the other kind the fourth either way.
  Start("cuMemcpyHtoDAsync_v2:2=700,hipMemcpyAsync:2=700");
  for (const char* device : {"cuda:0", "hip:0"}) {
    const std::unique_ptr<ExecutorClient> client = Open(device);
    const uint64_t x = client->Upload({4}, {1, 2, 3, 4});
    const uint64_t w = client->Upload({4}, {1, 2, 3, 4});
    const uint64_t y = client->Run(AddOne(x, 4))->outputs(0).buffer().handle();
    EXPECT_FALSE(client->Run(AddOneInPlace(w, 4)));
    EXPECT_EQ(client->status().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(client->detail().reason(), "RUN_CRASHED");
    EXPECT_FALSE(client->Download(y));
    EXPECT_EQ(client->detail().reason(), "LOST");
    // It had not begun.
    EXPECT_THAT(client->Floats(w), ElementsAre(1, 2, 3, 4));
    EXPECT_TRUE(client->Run(AddOneInPlace(w, 4))) << client->status().error_message();
    if (std::string(device) == "cuda:0") {
      EXPECT_THAT(client->Floats(w), ElementsAre(2, 3, 4, 5));
      continue;
    }
    // The copy out is the second now.
    EXPECT_FALSE(client->Download(w));
    EXPECT_EQ(client->detail().reason(), "LOST");
    EXPECT_THAT(client->status().error_message(), HasSubstr("a download ended its runner"));
  }
}

TEST(GpuExecutorDaemon, ImagesOutliveTheDaemon) {
  const std::string store = FreshDirectory() + "/store";
  for (int round = 0; round < 2; ++round) {
    Daemon daemon("server/beamd", store, {"--devices=cuda:0,hip:0"});
    for (const char* device : {"cuda:0", "hip:0"}) {
      ExecutorClient client(daemon.address());
      ASSERT_TRUE(client.Open(0, device));
      const uint64_t x = client.Upload({4}, {1, 2, 3, 4});
      const std::optional<v1::RunResponse> ran = client.Run(AddOne(x, 4));
      ASSERT_TRUE(ran) << client.status().error_message();
      EXPECT_EQ(ran->statistics().compiled(), round == 0 ? 1 : 0) << device;
      EXPECT_THAT(client.Floats(ran->outputs(0).buffer().handle()), ElementsAre(2, 3, 4, 5));
    }
    daemon.Signal(SIGTERM);
    EXPECT_EQ(daemon.Wait(), 0);
  }
}

}  // namespace
}  // namespace beamd

// Sessions of a daemon that runs: what a thin client sees.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

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
using ::beamd::testing::LongSum;
using ::beamd::testing::Matmul;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One daemon for the tests that don't change what it is.
class ExecutorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon_ = new Daemon("server/beamd", FreshDirectory() + "/store",
                         {"--session_mb=64", "--sessions_mb=128", "--session_buffers=64",
                          "--session_run_timeout=3s"});
  }
  static void TearDownTestSuite() {
    delete daemon_;
    daemon_ = nullptr;
  }
  void SetUp() override {
    client_ = std::make_unique<ExecutorClient>(daemon_->address());
    ASSERT_TRUE(client_->Open()) << client_->status().error_message();
  }
  void TearDown() override { client_->Close(); }

  std::string Reason() const { return client_->detail().reason(); }

  static Daemon* daemon_;
  std::unique_ptr<ExecutorClient> client_;
};
Daemon* ExecutorTest::daemon_ = nullptr;

TEST_F(ExecutorTest, RunsAGraphAndCapturesItsStructure) {
  const uint64_t x = client_->Upload({4}, {1, 2, 3, 4});
  ASSERT_NE(x, 0) << client_->status().error_message();
  const std::optional<v1::RunResponse> first = client_->Run(AddOne(x, 4));
  ASSERT_TRUE(first) << client_->status().error_message();
  ASSERT_EQ(first->outputs_size(), 1);
  EXPECT_FALSE(first->statistics().captured());
  EXPECT_EQ(first->statistics().kernels(), 1);
  const uint64_t y = first->outputs(0).buffer().handle();
  EXPECT_NE(y, x);
  EXPECT_THAT(client_->Floats(y), ElementsAre(2, 3, 4, 5));
  // Other memory, the same structure.
  const std::optional<v1::RunResponse> second = client_->Run(AddOne(y, 4));
  ASSERT_TRUE(second) << client_->status().error_message();
  EXPECT_TRUE(second->statistics().captured());
  EXPECT_EQ(second->statistics().compiled(), 0);
  EXPECT_THAT(client_->Floats(second->outputs(0).buffer().handle()), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(client_->Floats(x), ElementsAre(1, 2, 3, 4));
}

TEST_F(ExecutorTest, ReturnsContentAndStatisticsWhereAsked) {
  std::vector<float> a(64 * 64), b(64 * 64);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i % 7) - 3;
    b[i] = static_cast<float>(i % 5) - 2;
  }
  v1::RunRequest request;
  *request.mutable_graph() =
      GraphOf(Matmul(client_->Upload({64, 64}, a), client_->Upload({64, 64}, b), 64));
  request.set_profile(true);
  request.set_inline_bytes(1 << 20);
  const std::optional<v1::RunResponse> ran = client_->Run(request);
  ASSERT_TRUE(ran) << client_->status().error_message();
  ASSERT_EQ(ran->outputs(0).data().size(), a.size() * 4);
  std::vector<float> c(a.size());
  std::memcpy(c.data(), ran->outputs(0).data().data(), c.size() * 4);
  for (const size_t i : {0, 63, 77, 4095}) {
    float want = 0;
    for (size_t k = 0; k < 64; ++k) want += a[i / 64 * 64 + k] * b[k * 64 + i % 64];
    EXPECT_EQ(c[i], want) << i;
  }
  ASSERT_EQ(ran->kernels_size(), 1);
  EXPECT_GT(ran->kernels(0).seconds(), 0);
  EXPECT_EQ(ran->kernels(0).flops(), 2.0 * 64 * 64 * 64);
  EXPECT_EQ(ran->kernels(0).match(), v1::MATCH_HEURISTIC);
}

TEST_F(ExecutorTest, AssignsInPlaceButNotIntoWhatOthersHold) {
  std::vector<float> values(1024, 1);
  const auto bytes = std::as_bytes(std::span(values));
  const uint64_t x = client_->Upload(v1::SCALAR_FLOAT32, {1024}, bytes, /*digest=*/true);
  const uint64_t y = client_->Upload(v1::SCALAR_FLOAT32, {1024}, bytes, /*digest=*/true);
  ASSERT_NE(x, y);
  for (int i = 0; i < 3; ++i) {
    const std::optional<v1::RunResponse> ran = client_->Run(AddOneInPlace(x, 1024));
    ASSERT_TRUE(ran) << client_->status().error_message();
    EXPECT_EQ(ran->outputs(0).buffer().handle(), x);
  }
  EXPECT_THAT(client_->Floats(x), Each(4.0f));
  EXPECT_THAT(client_->Floats(y), Each(1.0f));
}

TEST_F(ExecutorTest, GradientsOfAScalar) {
  const uint64_t x = client_->Upload({3}, {1, -2, 3});
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (3)
%1 = MUL float32 (%0, %0)
%2 = REDUCE_AXIS float32 (%1) ADD axes (0)
%3 = RESHAPE float32 (%2) ints ()
%4 = SINK void (%3))",
                                                      x));
  request.add_gradients(x);
  const std::optional<v1::RunResponse> ran = client_->Run(request);
  ASSERT_TRUE(ran) << client_->status().error_message();
  ASSERT_EQ(ran->outputs_size(), 2);
  EXPECT_THAT(client_->Floats(ran->outputs(0).buffer().handle()), ElementsAre(14));
  EXPECT_THAT(client_->Floats(ran->outputs(1).buffer().handle()), ElementsAre(2, -4, 6));
}

TEST_F(ExecutorTest, VariablesTakeValuesWithinTheirBounds) {
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
  EXPECT_EQ(client_->detail().limit(), 8);
  request.mutable_variables()->clear();
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(Reason(), "NO_VALUE");
  (*request.mutable_variables())["m"] = 1;
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(Reason(), "VARIABLE");
}

// Runs that name a common buffer, from many threads, one behind the other; and a Download behind the
// Run before it sees what that wrote.
TEST_F(ExecutorTest, RunsOfOneBufferAreOrdered) {
  constexpr int kSize = 1 << 18;
  const uint64_t x = client_->Upload({kSize}, std::vector<float>(kSize, 0));
  ASSERT_TRUE(client_->Run(AddOneInPlace(x, kSize)));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
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
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(client_->Floats(x), Each(41.0f));
  // The run isn't waited for: whole numbers of runs are seen, at least those that were answered.
  v1::RunRequest request;
  request.set_session(client_->session());
  *request.mutable_graph() = GraphOf(AddOneInPlace(x, kSize));
  for (int i = 0; i < 5; ++i) {
    grpc::ClientContext context;
    v1::RunResponse response;
    std::thread run([&] { client_->stub().Run(&context, request, &response); });
    const std::vector<float> seen = client_->Floats(x);
    run.join();
    ASSERT_EQ(seen.size(), kSize);
    EXPECT_THAT(seen, Each(seen[0]));
    EXPECT_GE(seen[0], 41 + i);
  }
}

TEST_F(ExecutorTest, UploadsGoOnWhereTheyBroke) {
  std::vector<float> values(1 << 20);
  std::iota(values.begin(), values.end(), 0.0f);
  const auto bytes = std::as_bytes(std::span(values));
  v1::BeginUploadRequest request;
  request.set_session(client_->session());
  request.set_dtype(v1::SCALAR_FLOAT32);
  request.add_shape(1 << 20);
  request.set_sha256(std::string(32, 'x'));
  const uint64_t wrong = client_->Begin(request)->handle();
  EXPECT_FALSE(client_->SendChunks(wrong, bytes, 0, 1 << 20));
  EXPECT_EQ(Reason(), "SHA256");

  request.set_sha256("short");
  EXPECT_FALSE(client_->Begin(request));
  EXPECT_EQ(Reason(), "SHA256");

  const uint64_t whole = client_->Upload(v1::SCALAR_FLOAT32, {1 << 20}, bytes, true);
  ASSERT_NE(whole, 0);
  request.clear_sha256();
  const uint64_t broken = client_->Begin(request)->handle();
  EXPECT_FALSE(client_->SendChunks(broken, bytes.first(3 << 20), 0, 1 << 20));
  EXPECT_EQ(Reason(), "NOT_UPLOADED");
  EXPECT_EQ(client_->detail().value(), 3 << 20);
  EXPECT_FALSE(client_->Download(broken));
  EXPECT_EQ(Reason(), "NOT_UPLOADED");
  EXPECT_FALSE(client_->Run(AddOne(broken, 1 << 20)));
  EXPECT_EQ(Reason(), "NOT_UPLOADED");
  EXPECT_EQ(client_->detail().node(), 0);
  // A stream that goes on elsewhere, or is spoiled on its way.
  EXPECT_FALSE(client_->SendChunks(broken, bytes, 2 << 20, 1 << 20));
  EXPECT_EQ(Reason(), "OFFSET");
  EXPECT_FALSE(client_->SendChunks(broken, bytes, 3 << 20, 1 << 20, /*spoil=*/true));
  EXPECT_EQ(Reason(), "CRC32C");
  EXPECT_TRUE(client_->SendChunks(broken, bytes, 3 << 20, 1 << 20));
  const std::optional<std::string> back = client_->Download(broken);
  ASSERT_TRUE(back);
  EXPECT_EQ(std::memcmp(back->data(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(client_->Download(broken, 5, 7), back->substr(5, 7));
  EXPECT_FALSE(client_->Download(broken, 5 << 20));
  EXPECT_EQ(Reason(), "RANGE");
}

TEST_F(ExecutorTest, WhatIsHeldIsNotSentAgain) {
  std::vector<float> values(1 << 16, 7);
  const auto bytes = std::as_bytes(std::span(values));
  ASSERT_NE(client_->Upload(v1::SCALAR_FLOAT32, {1 << 16}, bytes, true), 0);
  // By the same principal, in another session.
  ExecutorClient other(daemon_->address());
  ASSERT_TRUE(other.Open());
  const uint64_t there = other.Upload(v1::SCALAR_FLOAT32, {1 << 16}, bytes, true);
  ASSERT_NE(there, 0);
  EXPECT_TRUE(client_->Close());
  EXPECT_THAT(other.Floats(there), Each(7.0f));
  EXPECT_TRUE(other.Close());
}

TEST_F(ExecutorTest, WrongRequestsAreRefusedAndChangeNothing) {
  const uint64_t x = client_->Upload({4}, {1, 2, 3, 4});
  const uint64_t freed = client_->Upload({4}, {1, 2, 3, 4});
  ASSERT_TRUE(client_->Free({freed}));
  ExecutorClient other(daemon_->address());
  ASSERT_TRUE(other.Open());
  for (int i = 0; i < 3; ++i) other.Upload({4}, {5, 6, 7, 8});
  const uint64_t others = other.Upload({4}, {5, 6, 7, 8});

  EXPECT_FALSE(client_->Run(AddOne(freed, 4)));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Reason(), "HANDLE");
  EXPECT_EQ(client_->detail().node(), 0);
  EXPECT_EQ(client_->detail().value(), freed);
  EXPECT_FALSE(client_->Run(AddOne(others, 4)));
  EXPECT_EQ(Reason(), "HANDLE");
  EXPECT_FALSE(client_->Run(AddOne(x, 5)));
  EXPECT_EQ(Reason(), "BUFFER");
  EXPECT_FALSE(client_->Download(freed));
  EXPECT_EQ(Reason(), "HANDLE");
  EXPECT_FALSE(client_->Free({x, freed}));
  EXPECT_EQ(Reason(), "HANDLE");

  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(AddOne(x, 4));
  request.mutable_graph()->mutable_nodes(4)->set_src(1, 9);  // of a later node
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(client_->detail().node(), 4);
  *request.mutable_graph() = GraphOf(AddOne(x, 4));
  request.mutable_graph()->mutable_nodes(4)->add_src(0);  // one too many
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(client_->detail().node(), 4);
  request.mutable_graph()->Clear();
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  *request.mutable_graph() = GraphOf(AddOne(x, 4));
  request.add_gradients(x);  // output 0 is no scalar
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(client_->detail().node(), 4);
  request.set_gradients(0, others);
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(Reason(), "GRADIENT");
  const std::vector<int32_t> whole = {1, 2, 3, 4};
  const uint64_t integers = client_->Upload(v1::SCALAR_INT32, {4}, std::as_bytes(std::span(whole)));
  *request.mutable_graph() = GraphOf(absl::Substitute(R"(%0 = BUFFER int32 slot $0 shape (4)
%1 = CAST float32 (%0)
%2 = REDUCE_AXIS float32 (%1) ADD axes (0)
%3 = SINK void (%2))",
                                                      integers));
  request.set_gradients(0, integers);
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(client_->detail().field(), HasSubstr("gradients"));

  // Everything is as it was.
  EXPECT_THAT(client_->Floats(x), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(client_->Run(AddOne(x, 4)));
  EXPECT_TRUE(other.Close());
  EXPECT_FALSE(other.KeepAlive());
  EXPECT_EQ(other.detail().reason(), "SESSION");
}

TEST_F(ExecutorTest, NoMoreThanTheLimits) {
  v1::BeginUploadRequest request;
  request.set_session(client_->session());
  request.set_dtype(v1::SCALAR_FLOAT32);
  const auto refused = [&](std::vector<int64_t> shape) {
    request.mutable_shape()->Clear();
    request.mutable_shape()->Add(shape.begin(), shape.end());
    return client_->Begin(request) ? "taken" : Reason();
  };
  EXPECT_EQ(refused({int64_t{10} << 40}), "SESSION_BYTES");
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(client_->detail().limit(), int64_t{64} << 20);
  EXPECT_EQ(refused({int64_t{1} << 40, int64_t{1} << 40}), "SESSION_BYTES");
  EXPECT_EQ(refused({0}), "EMPTY");
  EXPECT_EQ(refused({4, 0, int64_t{1} << 62}), "EMPTY");
  EXPECT_EQ(refused({-1}), "SHAPE");
  EXPECT_EQ(refused(std::vector<int64_t>(100, 1)), "RANK");
  int taken = 0;
  while (refused({1}) == "taken") ASSERT_LT(++taken, 1000);
  EXPECT_EQ(Reason(), "SESSION_BUFFERS");
  EXPECT_EQ(taken, 64);

  // An output that doesn't fit, of inputs that do; one without elements.
  ExecutorClient other(daemon_->address());
  ASSERT_TRUE(other.Open());
  const uint64_t x = other.Upload({1}, {2});
  EXPECT_FALSE(other.Run(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (1)
%1 = EXPAND float32 (%0) ints (1000000000)
%2 = CONTIGUOUS float32 (%1)
%3 = SINK void (%2))",
                                          x)));
  EXPECT_EQ(other.status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(other.detail().reason(), "SESSION_BYTES");
  EXPECT_FALSE(other.Run(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (1)
%1 = SHRINK float32 (%0) ints (1,1)
%2 = SINK void (%1))",
                                          x)));
  EXPECT_EQ(other.status().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(other.Floats(x), ElementsAre(2));
  EXPECT_TRUE(other.Close());
}

TEST_F(ExecutorTest, TakesNoOptsButTunedOnesWhereThatIsAsked) {
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(AddOne(client_->Upload({4}, {1, 2, 3, 4}), 4));
  request.set_opts(v1::OPTS_POLICY_LOOKUP_ONLY);
  EXPECT_FALSE(client_->Run(request));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Reason(), "NO_RECORD");
  // The policy is part of what is captured.
  request.set_opts(v1::OPTS_POLICY_NOW);
  const std::optional<v1::RunResponse> ran = client_->Run(request);
  ASSERT_TRUE(ran) << client_->status().error_message();
  EXPECT_FALSE(ran->statistics().captured());
}

TEST_F(ExecutorTest, SaysWhatAModelComesTo) {
  v1::ScheduleModelRequest request;
  *request.mutable_graph() = GraphOf(R"(%0 = BUFFER float32 slot 7 shape (64,32)
%1 = REDUCE_AXIS float32 (%0) ADD axes (1)
%2 = CONTIGUOUS float32 (%1)
%3 = EXPAND float32 (%2) ints (64,32)
%4 = MUL float32 (%0, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (1)
%6 = REDUCE_AXIS float32 (%5) ADD axes (0)
%7 = SINK void (%6, %5))");
  const auto schedule = [&](v1::ScheduleModelResponse& response) {
    grpc::ClientContext context;
    return client_->stub().ScheduleModel(&context, request, &response);
  };
  v1::ScheduleModelResponse response;
  const grpc::Status status = schedule(response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.device(), "cpu:0");
  EXPECT_EQ(response.launches(), 3);
  ASSERT_EQ(response.kernels_size(), 3);
  EXPECT_EQ(response.kernels(0).launches(), 1);
  EXPECT_EQ(response.kernels(0).flops(), 64 * 32);
  EXPECT_EQ(response.kernels(0).bytes(), 4 * (64 * 32 + 64));
  EXPECT_EQ(response.kernels(0).kernel_hash().size(), 64);
  EXPECT_GT(response.kernels(0).graph().nodes_size(), 0);
  EXPECT_FALSE(response.kernels(0).has_record());

  request.mutable_graph()->mutable_nodes(4)->mutable_src()->Clear();
  const grpc::Status refused = schedule(response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(testing::DetailOf(refused).node(), 4);
  request.mutable_graph()->Clear();
  EXPECT_EQ(schedule(response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  *request.mutable_graph() = testing::AddKernel(4);
  EXPECT_EQ(testing::DetailOf(schedule(response)).reason(), "KERNEL");
}

// --- what goes wrong ---

// A division that is over the integers of a buffer.
std::string Divide(uint64_t x, uint64_t by) {
  return absl::Substitute(R"(%0 = BUFFER int32 slot $0 shape (4)
%1 = BUFFER int32 slot $1 shape (4)
%2 = IDIV int32 (%0, %1)
%3 = SINK void (%2))",
                          x, by);
}

TEST_F(ExecutorTest, DivisionByZeroEndsNoRunner) {
  const std::vector<int32_t> some = {8, 9, std::numeric_limits<int32_t>::min(), 11};
  const std::vector<int32_t> zeros = {1, 0, -1, 3};
  const uint64_t x = client_->Upload(v1::SCALAR_INT32, {4}, std::as_bytes(std::span(some)));
  const uint64_t by = client_->Upload(v1::SCALAR_INT32, {4}, std::as_bytes(std::span(zeros)));
  const std::optional<v1::RunResponse> ran = client_->Run(Divide(x, by));
  ASSERT_TRUE(ran) << client_->status().error_message();
  const std::optional<std::string> content = client_->Download(ran->outputs(0).buffer().handle());
  std::vector<int32_t> quotients(4);
  std::memcpy(quotients.data(), content->data(), content->size());
  EXPECT_THAT(quotients, ElementsAre(8, 0, some[2], 3));
}

TEST_F(ExecutorTest, ARunThatTakesTooLongIsEndedAndSaysWhatIsLost) {
  const uint64_t x = client_->Upload({1}, {1});
  const uint64_t y = client_->Upload({1}, {5});
  EXPECT_FALSE(client_->Run(LongSum(x, 200000)));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Reason(), "RUN_TIMEOUT");
  EXPECT_EQ(client_->detail().limit(), 3000);
  // It may be half written.
  EXPECT_FALSE(client_->Download(x));
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(), "LOST");
  EXPECT_EQ(client_->detail().value(), x);
  EXPECT_FALSE(client_->Run(AddOne(x, 1)));
  EXPECT_EQ(Reason(), "LOST");
  EXPECT_THAT(client_->Floats(y), ElementsAre(5));
  EXPECT_TRUE(client_->Run(AddOne(y, 1)));
}

TEST_F(ExecutorTest, AKilledRunnerIsReplaced) {
  const uint64_t x = client_->Upload({1}, {1});
  const uint64_t y = client_->Upload({4}, {1, 2, 3, 4});
  ASSERT_TRUE(client_->Run(AddOne(y, 4)));
  const std::vector<pid_t> runners = daemon_->Children("session");
  ASSERT_EQ(runners.size(), 1);
  ExecutorClient other(daemon_->address());
  ASSERT_TRUE(other.Open());
  const uint64_t others = other.Upload({4}, {1, 2, 3, 4});
  ASSERT_TRUE(other.Run(AddOneInPlace(others, 4)));
  std::thread killer([&] {
    absl::SleepFor(absl::Milliseconds(800));
    kill(runners[0], SIGKILL);
  });
  EXPECT_FALSE(client_->Run(LongSum(x, 200000)));
  killer.join();
  // The other session notices nothing.
  const std::optional<v1::RunResponse> theirs = other.Run(AddOneInPlace(others, 4));
  ASSERT_TRUE(theirs) << other.status().error_message();
  EXPECT_TRUE(theirs->statistics().captured());
  EXPECT_THAT(other.Floats(others), ElementsAre(3, 4, 5, 6));
  EXPECT_TRUE(other.Close());
  EXPECT_EQ(client_->status().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Reason(), "RUN_CRASHED");
  EXPECT_FALSE(client_->Download(x));
  EXPECT_EQ(Reason(), "LOST");
  EXPECT_THAT(client_->Floats(y), ElementsAre(1, 2, 3, 4));
  const std::optional<v1::RunResponse> ran = client_->Run(AddOne(y, 4));
  ASSERT_TRUE(ran) << client_->status().error_message();
  EXPECT_THAT(client_->Floats(ran->outputs(0).buffer().handle()), ElementsAre(2, 3, 4, 5));
}

TEST_F(ExecutorTest, MemoryIsBackAfterTheLease) {
  constexpr double kLease = 4;
  const std::vector<float> values(14 << 20, 1);  // 56 MB of 128
  ExecutorClient gone(daemon_->address());
  ASSERT_TRUE(gone.Open(kLease));
  ASSERT_NE(gone.Upload({14 << 20}, values), 0);
  ExecutorClient other(daemon_->address());
  ASSERT_TRUE(other.Open());
  ASSERT_NE(other.Upload({14 << 20}, values), 0);
  ASSERT_TRUE(gone.KeepAlive());
  const absl::Time last_seen = absl::Now();
  EXPECT_EQ(client_->Upload({14 << 20}, values), 0);
  EXPECT_EQ(Reason(), "SERVER_BYTES");
  // Half a second is what a lease may end late by.
  absl::SleepFor(last_seen + absl::Seconds(kLease + 1) - absl::Now());
  EXPECT_NE(client_->Upload({14 << 20}, values), 0) << client_->status().error_message();
  EXPECT_FALSE(gone.KeepAlive());
  EXPECT_EQ(gone.status().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(other.Close());
}

// They move no more than they may while another session runs, and as fast as they can after.
TEST(ExecutorDaemon, TransfersGiveWayToOtherSessionsRuns) {
  constexpr int64_t kElements = 1 << 19;  // 2 MB
  Daemon daemon("server/beamd", FreshDirectory() + "/store", {"--shared_transfer_mb=1"});
  ExecutorClient client(daemon.address());
  ExecutorClient other(daemon.address());
  ASSERT_TRUE(client.Open() && other.Open());
  const uint64_t x = other.Upload({4}, {1, 2, 3, 4});
  ASSERT_TRUE(other.Run(AddOne(x, 4)));
  std::atomic<bool> over{false};
  std::thread runner([&] {
    while (!over) {
      const std::optional<v1::RunResponse> ran = other.Run(AddOne(x, 4));
      if (!ran || !other.Free({ran->outputs(0).buffer().handle()})) return;
    }
  });
  std::vector<float> values(kElements);
  std::iota(values.begin(), values.end(), 0.0f);
  const absl::Time start = absl::Now();
  const uint64_t handle = client.Upload({kElements}, values);
  const absl::Duration up = absl::Now() - start;
  const std::vector<float> back = client.Floats(handle);
  const absl::Duration down = absl::Now() - start - up;
  over = true;
  runner.join();
  EXPECT_TRUE(other.status().ok()) << other.status().error_message();
  EXPECT_TRUE(back == values);
  // The rate is for each core that serves, of which there may be as many; runs that a busy machine
  // keeps apart are no reason to wait.
  const absl::Duration least = absl::Seconds(1) / std::thread::hardware_concurrency();
  EXPECT_GT(up, least);
  EXPECT_GT(down, least);
}

// The graph runs at once, is tuned behind it, and runs with what was found once that is known.
TEST(ExecutorDaemon, TunesWhatItRunsWhereThatIsAsked) {
  Daemon daemon("server/beamd", FreshDirectory() + "/store", {"--width=1"});
  ExecutorClient client(daemon.address());
  ASSERT_TRUE(client.Open());
  constexpr int kSize = 32;
  std::vector<float> values(kSize * kSize);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 5);
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(
      Matmul(client.Upload({kSize, kSize}, values), client.Upload({kSize, kSize}, values), kSize));
  request.set_opts(v1::OPTS_POLICY_TUNE);
  request.set_profile(true);
  request.set_inline_bytes(1 << 20);
  const std::optional<v1::RunResponse> first = client.Run(request);
  ASSERT_TRUE(first) << client.status().error_message();
  ASSERT_EQ(first->kernels_size(), 1);
  EXPECT_EQ(first->kernels(0).match(), v1::MATCH_HEURISTIC);

  v1::ScheduleModelRequest model;
  *model.mutable_graph() = request.graph();
  v1::ScheduleModelResponse known;
  const absl::Time end = absl::Now() + absl::Seconds(120);
  do {
    absl::SleepFor(absl::Milliseconds(100));
    grpc::ClientContext context;
    ASSERT_TRUE(client.stub().ScheduleModel(&context, model, &known).ok());
  } while (!known.kernels(0).has_record() && absl::Now() < end);
  ASSERT_TRUE(known.kernels(0).has_record()) << "nothing was tuned";
  const v1::Record& record = known.kernels(0).record();
  EXPECT_EQ(record.kernel_hash(), first->kernels(0).kernel_hash());

  // Within a second or two, in this session.
  absl::SleepFor(absl::Seconds(3));
  const std::optional<v1::RunResponse> tuned = client.Run(request);
  ASSERT_TRUE(tuned) << client.status().error_message();
  EXPECT_FALSE(tuned->statistics().captured());
  EXPECT_EQ(tuned->kernels(0).match(), v1::MATCH_STRICT);
  ASSERT_EQ(tuned->kernels(0).opts_size(), record.opts_size());
  for (int i = 0; i < record.opts_size(); ++i) {
    EXPECT_EQ(tuned->kernels(0).opts(i).SerializeAsString(), record.opts(i).SerializeAsString());
  }
  EXPECT_EQ(tuned->outputs(0).data(), first->outputs(0).data());
  const std::optional<v1::RunResponse> captured = client.Run(request);
  ASSERT_TRUE(captured);
  EXPECT_TRUE(captured->statistics().captured());
  EXPECT_EQ(captured->kernels(0).match(), v1::MATCH_STRICT);
  // At once, in another one.
  ExecutorClient other(daemon.address());
  ASSERT_TRUE(other.Open());
  *request.mutable_graph() = GraphOf(
      Matmul(other.Upload({kSize, kSize}, values), other.Upload({kSize, kSize}, values), kSize));
  const std::optional<v1::RunResponse> theirs = other.Run(request);
  ASSERT_TRUE(theirs) << other.status().error_message();
  EXPECT_EQ(theirs->kernels(0).match(), v1::MATCH_STRICT);
}

TEST(ExecutorDaemon, ImagesOutliveTheDaemon) {
  const std::string store = FreshDirectory() + "/store";
  const std::string graph = R"(%0 = BUFFER float32 slot 1 shape (4)
%1 = MUL float32 (%0, %0)
%2 = SQRT float32 (%1)
%3 = SINK void (%2))";
  for (int round = 0; round < 2; ++round) {
    Daemon daemon("server/beamd", store);
    ExecutorClient client(daemon.address());
    ASSERT_TRUE(client.Open());
    ASSERT_EQ(client.Upload({4}, {1, 2, 3, 4}), 1);
    const std::optional<v1::RunResponse> ran = client.Run(graph);
    ASSERT_TRUE(ran) << client.status().error_message();
    EXPECT_EQ(ran->statistics().compiled(), round == 0 ? 1 : 0);
    EXPECT_THAT(client.Floats(ran->outputs(0).buffer().handle()), ElementsAre(1, 2, 3, 4));
    daemon.Signal(SIGTERM);
    EXPECT_EQ(daemon.Wait(), 0);
  }
}

}  // namespace
}  // namespace beamd

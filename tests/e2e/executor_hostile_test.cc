// Clients that misuse sessions: the daemon lives, tells each what is wrong, serves the others, and
// holds nothing more once they are gone.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/crc32c.h"
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
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 48 MB of the 64 that there are.
constexpr int kMost = 12 << 20;

int64_t DescriptorsOf(const Daemon& daemon) {
  return std::distance(
      std::filesystem::directory_iterator(absl::StrCat("/proc/", daemon.pid(), "/fd")),
      std::filesystem::directory_iterator());
}

class ExecutorHostile : public ::testing::Test {
 protected:
  ExecutorHostile()
      : daemon_("server/beamd", FreshDirectory() + "/store",
                {"--session_mb=64", "--sessions_mb=64", "--session_run_timeout=5s",
                 "--session_plan_timeout=60s", "--session_plan_mb=512", "--principal_sessions=8",
                 "--queued_graphs_mb=8"}) {}

  std::unique_ptr<ExecutorClient> Client(double lease_s = 0) {
    auto client = std::make_unique<ExecutorClient>(daemon_.address());
    EXPECT_TRUE(client->Open(lease_s)) << client->status().error_message();
    return client;
  }
  int64_t Descriptors() const { return DescriptorsOf(daemon_); }
  // Somebody may have all the memory there is, within a second.
  void ExpectMemoryIsBack() {
    const std::unique_ptr<ExecutorClient> next = Client();
    uint64_t buffer = 0;
    for (int i = 0; i < 20 && buffer == 0; ++i) {
      if (i > 0) absl::SleepFor(absl::Milliseconds(50));
      buffer = next->Upload({kMost}, std::vector<float>(kMost, 1));
    }
    EXPECT_NE(buffer, 0) << next->status().error_message();
    EXPECT_TRUE(next->Close());
  }

  Daemon daemon_;
};

// A daemon that may have 1,024 descriptors: 256 for its store and children, at most 384 for buffers.
class ExecutorDescriptors : public ::testing::Test {
 protected:
  ExecutorDescriptors() {
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit few{.rlim_cur = 1024, .rlim_max = 1024};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    daemon_ =
        std::make_unique<Daemon>("server/beamd", directory_ + "/store",
                                 std::vector<std::string>{"--log_file=" + directory_ + "/log"});
    setrlimit(RLIMIT_NOFILE, &before);  // where that is allowed
  }

  std::unique_ptr<ExecutorClient> Client() const {
    auto client = std::make_unique<ExecutorClient>(daemon_->address());
    EXPECT_TRUE(client->Open()) << client->status().error_message();
    return client;
  }
  // As many as it gets.
  static int TakeBuffers(ExecutorClient& client) {
    int buffers = 0;
    while (buffers < 1024 && client.Upload({1}, {1}) != 0) ++buffers;
    return buffers;
  }

  const std::string directory_ = FreshDirectory();
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(ExecutorDescriptors, ASessionsBuffersLeaveTheRestOfThem) {
  std::ifstream log(directory_ + "/log");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(log), {}),
              HasSubstr("level=warning of 1024 descriptors sessions get 384 for their buffers"));
  const std::unique_ptr<ExecutorClient> greedy = Client();
  EXPECT_EQ(TakeBuffers(*greedy), 192);
  EXPECT_EQ(greedy->detail().reason(), "SESSION_BUFFERS");
  std::vector<std::unique_ptr<ExecutorClient>> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(Client());
    const uint64_t x = others.back()->Upload({1}, {1});
    EXPECT_TRUE(others.back()->Run(AddOne(x, 1))) << others.back()->status().error_message();
  }
}

TEST_F(ExecutorDescriptors, ConnectionsLeaveThemToBuffers) {
  const std::unique_ptr<ExecutorClient> one = Client(), other = Client();
  const uint64_t x = one->Upload({1}, {1});
  ASSERT_TRUE(one->Run(AddOne(x, 1))) << one->status().error_message();
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(
      absl::string_view(daemon_->address()).substr(daemon_->address().rfind(':') + 1), &port));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> idle;
  for (int i = 0; i < 800; ++i) {
    idle.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(idle.back(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  // Until all of them were accepted or turned away.
  for (int64_t before = 0, now = 1; before != now; now = DescriptorsOf(*daemon_)) {
    before = now;
    absl::SleepFor(absl::Milliseconds(300));
  }
  EXPECT_GT(DescriptorsOf(*daemon_), 300);
  // It and what the run made are there already.
  EXPECT_EQ(TakeBuffers(*one), 190);
  EXPECT_EQ(TakeBuffers(*other), 192);
  EXPECT_TRUE(one->Free({x}));
  const uint64_t y = one->Upload({1}, {1});
  EXPECT_TRUE(one->Free({y}));
  for (const int fd : idle) close(fd);
}

// What is on its way to a client that doesn't take it is the session's, and goes with that.
TEST_F(ExecutorHostile, ADownloadThatNobodyReadsEndsWithItsSession) {
  for (const bool closes : {true, false}) {
    const std::unique_ptr<ExecutorClient> client = Client(2);
    const uint64_t x = client->Upload({kMost}, std::vector<float>(kMost, 1));
    ASSERT_NE(x, 0) << client->status().error_message();
    grpc::ClientContext context;
    v1::DownloadRequest request;
    request.set_session(client->session());
    request.set_handle(x);
    const auto reader = client->stub().Download(&context, request);
    v1::DownloadChunk chunk;
    ASSERT_TRUE(reader->Read(&chunk));
    absl::SleepFor(absl::Milliseconds(300));
    if (closes) {
      EXPECT_TRUE(client->Close());
    } else {
      absl::SleepFor(absl::Seconds(3));
    }
    ExpectMemoryIsBack();
    while (reader->Read(&chunk)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

// A transfer whose client is there is told why it ends, whether it is sending, reading or neither.
TEST_F(ExecutorHostile, TransfersAreToldThatTheirSessionHasEnded) {
  const auto expect_told = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
    EXPECT_EQ(testing::DetailOf(status).reason(), "SESSION");
    EXPECT_EQ(testing::DetailOf(status).field(), "session");
  };
  for (const bool closes : {true, false}) {
    const std::unique_ptr<ExecutorClient> client = Client(2);
    const uint64_t x = client->Upload({kMost / 2}, std::vector<float>(kMost / 2, 1));
    ASSERT_NE(x, 0) << client->status().error_message();
    grpc::ClientContext down;
    v1::DownloadRequest request;
    request.set_session(client->session());
    request.set_handle(x);
    const auto reader = client->stub().Download(&down, request);
    v1::DownloadChunk got;
    ASSERT_TRUE(reader->Read(&got));

    v1::BeginUploadRequest begin;
    begin.set_session(client->session());
    begin.set_dtype(v1::SCALAR_FLOAT32);
    begin.add_shape(kMost / 4);
    const std::optional<v1::BeginUploadResponse> begun = client->Begin(begin);
    ASSERT_TRUE(begun) << client->status().error_message();
    grpc::ClientContext up;
    v1::UploadResponse response;
    const auto writer = client->stub().Upload(&up, &response);
    v1::UploadChunk chunk;
    chunk.set_session(client->session());
    chunk.set_handle(begun->handle());
    chunk.set_data(std::string(1024, 'x'));
    chunk.set_crc32c(Crc32c(0, std::as_bytes(std::span(chunk.data()))));
    ASSERT_TRUE(writer->Write(chunk));

    if (closes) {
      EXPECT_TRUE(client->Close());
    }
    // It sends no more, and its call ends all the same.
    expect_told(writer->Finish());
    while (reader->Read(&got)) {
    }
    if (closes) {
      expect_told(reader->Finish());
    } else {
      // It took nothing since before the lease ended.
      EXPECT_FALSE(reader->Finish().ok());
    }
    ExpectMemoryIsBack();
  }
}

// Runs that were cancelled while they waited have left their places, and their graphs' memory.
TEST_F(ExecutorHostile, RunsThatNobodyWaitsForTakeNoPlaces) {
  const std::unique_ptr<ExecutorClient> client = Client();
  const uint64_t x = client->Upload({1}, {1});
  const uint64_t y = client->Upload({1}, {1});
  v1::RunRequest request;
  request.set_session(client->session());
  *request.mutable_graph() = GraphOf(LongSum(x, 400000));
  const auto run = [&](grpc::ClientContext& context) {
    v1::RunResponse response;
    return client->stub().Run(&context, request, &response);
  };
  std::thread busy([&] {
    grpc::ClientContext context;
    EXPECT_EQ(run(context).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  });
  absl::SleepFor(absl::Milliseconds(700));
  // One less than there may be besides the one that runs; then one more that waits and is served.
  constexpr int kWaiting = 254;
  std::vector<grpc::ClientContext> contexts(kWaiting);
  std::vector<std::thread> waiting;
  waiting.reserve(kWaiting);
  for (grpc::ClientContext& context : contexts) {
    waiting.emplace_back(
        [&] { EXPECT_EQ(run(context).error_code(), grpc::StatusCode::CANCELLED); });
  }
  absl::SleepFor(absl::Seconds(1));
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (std::thread& thread : waiting) thread.join();
  // The one that runs has seconds to go.
  std::vector<std::thread> after;
  after.reserve(kWaiting);
  std::atomic<int> refused = 0;
  for (int i = 0; i < kWaiting; ++i) {
    after.emplace_back([&] {
      grpc::ClientContext context;
      v1::RunRequest small;
      small.set_session(client->session());
      *small.mutable_graph() = GraphOf(AddOneInPlace(y, 1));
      v1::RunResponse response;
      if (!client->stub().Run(&context, small, &response).ok()) ++refused;
    });
  }
  for (std::thread& thread : after) thread.join();
  EXPECT_EQ(refused, 0);
  busy.join();
}

// Each view of a view of a padded tensor is longer than the one before.
TEST_F(ExecutorHostile, PlanningTakesBoundedMemory) {
  const std::unique_ptr<ExecutorClient> client = Client();
  const uint64_t x = client->Upload({4, 4}, std::vector<float>(16, 1));
  std::string graph = absl::Substitute("%0 = BUFFER float32 slot $0 shape (4,4)\n", x);
  int last = 0;
  for (int i = 0; i < 1900; ++i, last += 5) {
    absl::StrAppend(
        &graph,
        absl::Substitute("%$1 = PAD float32 (%$0) ints (1,1,0,0)\n%$2 = RESHAPE float32 (%$1) "
                         "ints (24)\n%$3 = SHRINK float32 (%$2) ints (1,17)\n%$4 = RESHAPE "
                         "float32 (%$3) ints (4,4)\n%$5 = PERMUTE float32 (%$4) ints (1,0)\n",
                         last, last + 1, last + 2, last + 3, last + 4, last + 5));
  }
  absl::StrAppend(&graph, "%", last + 1, " = SINK void (%", last, ")");
  EXPECT_FALSE(client->Run(graph));
  EXPECT_EQ(client->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << client->status().error_message();
  EXPECT_EQ(client->detail().reason(), "RUN_MEMORY");
  EXPECT_THAT(client->status().error_message(), ::testing::HasSubstr("the limit is 536870912"));
  EXPECT_THAT(client->Floats(x), ::testing::Each(1.0f));
}

// However much one principal's sessions want, some is left.
TEST(ExecutorShares, OnePrincipalLeavesHalfToOthers) {
  const std::string directory = FreshDirectory();
  const std::string access = directory + "/access";
  const std::string alice = testing::MakeToken("server/beamd", "alice", "submitter", access);
  const std::string bob = testing::MakeToken("server/beamd", "bob", "submitter", access);
  const Daemon daemon(
      "server/beamd", directory + "/store",
      {"--access_file=" + access, "--session_mb=64", "--sessions_mb=64", "--sessions_buffers=32"});
  const auto begin = [](ExecutorClient& client, int64_t elements) -> std::string {
    v1::BeginUploadRequest request;
    request.set_session(client.session());
    request.set_dtype(v1::SCALAR_FLOAT32);
    request.add_shape(elements);
    return client.Begin(request) ? "taken" : client.detail().reason();
  };
  ExecutorClient first(daemon.address(), alice);
  ExecutorClient second(daemon.address(), alice);
  ExecutorClient other(daemon.address(), bob);
  ASSERT_TRUE(first.Open() && second.Open() && other.Open());
  constexpr int64_t kHalf = int64_t{8} << 20;  // floats of 32 MB
  EXPECT_EQ(begin(first, kHalf + 1), "PRINCIPAL_BYTES");
  EXPECT_EQ(first.detail().limit(), 4 * kHalf);
  EXPECT_EQ(begin(first, kHalf), "taken");
  EXPECT_EQ(begin(second, 1), "PRINCIPAL_BYTES");
  EXPECT_EQ(begin(other, kHalf), "taken");
  ASSERT_TRUE(first.Close() && other.Close() && other.Open());
  for (int i = 0; i < 16; ++i) ASSERT_EQ(begin(second, 1), "taken") << i;
  EXPECT_EQ(begin(second, 1), "PRINCIPAL_BUFFERS");
  EXPECT_EQ(second.detail().limit(), 16);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(begin(other, 1), "taken") << i;
  EXPECT_TRUE(second.Close());
}

TEST_F(ExecutorHostile, GraphsThatWaitTakeBoundedMemory) {
  const std::unique_ptr<ExecutorClient> client = Client();
  const std::unique_ptr<ExecutorClient> other = Client();
  const uint64_t x = client->Upload({1}, {1});
  std::string deep = absl::Substitute("%0 = BUFFER float32 slot $0 shape (1)\n", x);
  for (int i = 1; i < 6000; ++i)
    absl::StrAppend(&deep, "%", i, " = ADD float32 (%", i - 1, ", %0)\n");
  v1::RunRequest request;
  request.set_session(client->session());
  *request.mutable_graph() = GraphOf(deep + "%6000 = SINK void (%5999)");
  std::thread busy([&] {
    grpc::ClientContext context;
    v1::RunRequest run;
    run.set_session(client->session());
    *run.mutable_graph() = GraphOf(LongSum(x, 400000));
    v1::RunResponse response;
    EXPECT_EQ(client->stub().Run(&context, run, &response).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  });
  absl::SleepFor(absl::Milliseconds(500));
  std::vector<std::thread> waiting;
  waiting.reserve(12);
  std::atomic<int> refused = 0;
  for (int i = 0; i < 12; ++i) {
    waiting.emplace_back([&] {
      grpc::ClientContext context;
      v1::RunResponse response;
      const grpc::Status status = client->stub().Run(&context, request, &response);
      if (testing::DetailOf(status).reason() == "QUEUED_BYTES") {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
        ++refused;
      }
    });
  }
  busy.join();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 12);
  // Nothing of it stays.
  const uint64_t y = other->Upload({1}, {1});
  EXPECT_TRUE(other->Run(AddOne(y, 1))) << other->status().error_message();
}

TEST_F(ExecutorHostile, MisuseOfEveryKindLeavesNothing) {
  { ExpectMemoryIsBack(); }
  const int64_t before = Descriptors();
  const std::unique_ptr<ExecutorClient> right = Client();
  const uint64_t theirs = right->Upload({4}, {1, 2, 3, 4});
  {
    // More sessions than one may have.
    std::vector<std::unique_ptr<ExecutorClient>> clients;
    clients.reserve(7);
    for (int i = 0; i < 7; ++i) clients.push_back(Client());
    ExecutorClient one_more(daemon_.address());
    EXPECT_FALSE(one_more.Open());
    EXPECT_EQ(one_more.detail().reason(), "PRINCIPAL_SESSIONS");
    for (const auto& client : clients) EXPECT_TRUE(client->Close());
    EXPECT_FALSE(clients[0]->Close());
    EXPECT_EQ(clients[0]->detail().reason(), "SESSION");
  }
  for (const int64_t seconds : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    grpc::ClientContext context;
    v1::OpenSessionRequest request;
    request.mutable_lease()->set_seconds(seconds);
    v1::Session session;
    EXPECT_EQ(right->stub().OpenSession(&context, request, &session).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    // Text in metadata and fields that is longer than anybody needs.
    grpc::ClientContext context;
    context.AddMetadata("x-anything", std::string(6000, 'x'));
    v1::OpenSessionRequest request;
    request.set_label(std::string(1 << 20, 'l'));
    v1::Session session;
    EXPECT_EQ(right->stub().OpenSession(&context, request, &session).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  const std::unique_ptr<ExecutorClient> wrong = Client();
  const uint64_t x = wrong->Upload({1}, {1});
  {
    // An upload of nothing, again and again; one that goes on for ever; one into what is there.
    v1::BeginUploadRequest begin;
    begin.set_session(wrong->session());
    begin.set_dtype(v1::SCALAR_FLOAT32);
    begin.add_shape(1 << 20);
    const uint64_t half = wrong->Begin(begin)->handle();
    grpc::ClientContext context;
    v1::UploadResponse response;
    const auto writer = wrong->stub().Upload(&context, &response);
    v1::UploadChunk chunk;
    chunk.set_session(wrong->session());
    chunk.set_handle(half);
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(writer->Write(chunk));
    EXPECT_FALSE(wrong->SendChunks(x, std::as_bytes(std::span("abcd", 4)), 0, 4));
    EXPECT_EQ(wrong->detail().reason(), "UPLOADED");
    // Freed while it comes.
    EXPECT_TRUE(wrong->Free({half}));
    writer->Write(chunk);
    writer->WritesDone();
    EXPECT_EQ(testing::DetailOf(writer->Finish()).reason(), "HANDLE");
    begin.set_handle(half);
    EXPECT_FALSE(wrong->Begin(begin));
    EXPECT_EQ(wrong->detail().reason(), "HANDLE");
  }
  {
    // A chain as deep as a graph may be: an answer, or an error that says why.
    std::string deep = absl::Substitute("%0 = BUFFER float32 slot $0 shape (1)\n", x);
    constexpr int kNodes = 19998;
    for (int i = 1; i < kNodes; ++i) {
      absl::StrAppend(&deep, "%", i, " = ", i % 2 == 0 ? "ADD" : "MAX", " float32 (%", i - 1,
                      ", %0)\n");
    }
    absl::StrAppend(&deep, "%", kNodes, " = SINK void (%", kNodes - 1, ")");
    if (!wrong->Run(deep)) {
      EXPECT_FALSE(wrong->detail().reason().empty()) << wrong->status().error_message();
      EXPECT_NE(wrong->status().error_code(), grpc::StatusCode::UNAVAILABLE);
    }
  }
  {
    // Cancelled in the middle, freed in the middle: the run goes on, and what comes next is right.
    const uint64_t y = wrong->Upload({1}, {5});
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
    v1::RunRequest run;
    run.set_session(wrong->session());
    *run.mutable_graph() = GraphOf(LongSum(x, 8000));
    v1::RunResponse response;
    EXPECT_THAT(wrong->stub().Run(&context, run, &response).error_code(),
                AnyOf(grpc::StatusCode::OK, grpc::StatusCode::DEADLINE_EXCEEDED));
    EXPECT_TRUE(wrong->Free({x}));
    EXPECT_TRUE(wrong->Run(AddOneInPlace(y, 1))) << wrong->status().error_message();
    EXPECT_THAT(wrong->Floats(y), ElementsAre(6));
    // Closed in the middle.
    std::thread closed([&] {
      grpc::ClientContext other;
      *run.mutable_graph() = GraphOf(LongSum(y, 400000));
      const grpc::Status status = wrong->stub().Run(&other, run, &response);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
      EXPECT_EQ(testing::DetailOf(status).reason(), "SESSION");
    });
    absl::SleepFor(absl::Milliseconds(700));
    const absl::Time start = absl::Now();
    EXPECT_TRUE(wrong->Close());
    closed.join();
    EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  }
  {
    // As many buffers as it takes until there are too many.
    const std::unique_ptr<ExecutorClient> many = Client();
    v1::BeginUploadRequest begin;
    begin.set_session(many->session());
    begin.set_dtype(v1::SCALAR_UINT8);
    begin.add_shape(1);
    int taken = 0;
    while (many->Begin(begin)) ASSERT_LT(++taken, 1 << 20);
    EXPECT_EQ(many->detail().reason(), "SESSION_BUFFERS");
    EXPECT_TRUE(many->Close());
  }
  EXPECT_THAT(right->Floats(theirs), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(right->Run(AddOne(theirs, 4)));
  EXPECT_TRUE(right->Close());
  ExpectMemoryIsBack();
  for (int i = 0; i < 100 && !daemon_.Children("session").empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_THAT(daemon_.Children("session"), IsEmpty());
  // Connections of clients that are gone, and a file or two of the store's.
  for (int i = 0; i < 100 && Descriptors() > before + 16; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_LE(Descriptors(), before + 16);
  EXPECT_EQ(kill(daemon_.pid(), 0), 0);
}

}  // namespace
}  // namespace beamd

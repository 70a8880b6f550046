// Runners that end in the middle of a run: what that run is told, what its session has lost, and
// that another client notices nothing.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cc/client.h"
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
using ::beamd::testing::LongSum;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// More than a run's limit.
constexpr int kForever = 400000;

int64_t AddressSpace(pid_t process) {
  int64_t pages = 0;
  std::ifstream(absl::StrCat("/proc/", process, "/statm")) >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// A client whose runner is done things to, and another that runs all the while.
class ExecutorFaults : public ::testing::Test {
 protected:
  explicit ExecutorFaults(const std::string& flag = "--session_run_timeout=4s")
      : daemon_("server/beamd", FreshDirectory() + "/store",
                {"--session_mb=256", "--sessions_mb=512", flag}),
        client_(daemon_.address()),
        other_(daemon_.address()) {}

  void SetUp() override {
    ASSERT_TRUE(other_.Open() && client_.Open());
    theirs_ = other_.Upload({4}, {1, 2, 3, 4});
    ASSERT_TRUE(other_.Run(AddOneInPlace(theirs_, 4))) << other_.status().error_message();
    other_runner_ = daemon_.Children("session").at(0);
    read_ = client_.Upload({4}, {1, 2, 3, 4});
    written_ = client_.Upload({1}, {1});
    ASSERT_TRUE(client_.Run(AddOne(read_, 4)));
    works_ = std::thread([this] {
      while (!stop_) {
        const std::optional<v1::RunResponse> ran = other_.Run(AddOneInPlace(theirs_, 4));
        if (!ran || !ran->statistics().captured()) break;
        ++runs_;
      }
    });
  }

  void TearDown() override {
    const int before = runs_;
    for (int i = 0; i < 1000 && runs_ == before; ++i) absl::SleepFor(absl::Milliseconds(10));
    stop_ = true;
    works_.join();
    // Not one of its runs failed, was planned again, or was lost.
    EXPECT_GT(runs_, before) << other_.status().error_message();
    const auto sum = static_cast<float>(runs_ + 1);
    EXPECT_THAT(other_.Floats(theirs_), ElementsAre(1 + sum, 2 + sum, 3 + sum, 4 + sum));
    EXPECT_THAT(daemon_.Children("session"), ::testing::Contains(other_runner_));
    EXPECT_EQ(kill(daemon_.pid(), 0), 0);
  }

  pid_t Runner() const {
    for (const pid_t runner : daemon_.Children("session")) {
      if (runner != other_runner_) return runner;
    }
    return -1;
  }
  std::string Reason() const { return client_.detail().reason(); }

  // What every fault leaves: what was read is whole, what was to be written is said to be lost, and
  // the session runs on.
  void ExpectLost(uint64_t lost) {
    const std::string why = client_.status().error_message();
    EXPECT_FALSE(client_.Download(lost));
    EXPECT_EQ(client_.status().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(Reason(), "LOST");
    EXPECT_EQ(client_.detail().value(), lost);
    EXPECT_THAT(client_.status().error_message(), HasSubstr(why));
    EXPECT_FALSE(client_.Run(AddOne(lost, 1)));
    EXPECT_EQ(Reason(), "LOST");
    EXPECT_EQ(client_.detail().node(), 0);
    EXPECT_TRUE(client_.Free({lost}));
    ExpectWhole();
  }
  void ExpectWhole() {
    EXPECT_THAT(client_.Floats(read_), ElementsAre(1, 2, 3, 4));
    const std::optional<v1::RunResponse> ran = client_.Run(AddOne(read_, 4));
    ASSERT_TRUE(ran) << client_.status().error_message();
    EXPECT_THAT(client_.Floats(ran->outputs(0).buffer().handle()), ElementsAre(2, 3, 4, 5));
  }

  Daemon daemon_;
  ExecutorClient client_, other_;
  uint64_t read_ = 0, written_ = 0, theirs_ = 0;
  pid_t other_runner_ = -1;
  std::thread works_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> runs_ = 0;
};

TEST_F(ExecutorFaults, ATrapEndsItsRunAlone) {
  for (const int signal : {SIGSEGV, SIGILL, SIGFPE, SIGBUS, SIGKILL}) {
    const uint64_t x = client_.Upload({1}, {1});
    const pid_t runner = Runner();
    std::thread killer([&] {
      absl::SleepFor(absl::Milliseconds(700));
      kill(runner, signal);
    });
    EXPECT_FALSE(client_.Run(LongSum(x, kForever)));
    killer.join();
    EXPECT_EQ(client_.status().error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(Reason(), "RUN_CRASHED");
    EXPECT_THAT(client_.status().error_message(), HasSubstr(absl::StrCat("signal ", signal)));
    ExpectLost(x);
    EXPECT_NE(Runner(), runner);
  }
}

TEST_F(ExecutorFaults, ARunPastItsLimitEndsAlone) {
  EXPECT_FALSE(client_.Run(LongSum(written_, kForever)));
  EXPECT_EQ(client_.status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Reason(), "RUN_TIMEOUT");
  EXPECT_EQ(client_.detail().limit(), 4000);
  ExpectLost(written_);
}

// Runners that are no other user, so that the test may take memory from them.
class ExecutorMemoryFaults : public ExecutorFaults {
 protected:
  ExecutorMemoryFaults() : ExecutorFaults("--sandbox=false") {}

  // It gets no more than it has.
  static void TakeMemory(pid_t runner) {
    const auto now = static_cast<rlim_t>(AddressSpace(runner));
    const rlimit limit = {.rlim_cur = now, .rlim_max = now};
    ASSERT_EQ(prlimit(runner, RLIMIT_AS, &limit, nullptr), 0);
  }
};

// The run that is out of memory was still being planned: nothing is lost.
TEST_F(ExecutorMemoryFaults, PlanningOutOfMemoryEndsItsRunAlone) {
  const pid_t runner = Runner();
  TakeMemory(runner);
  std::string graph = absl::Substitute("%0 = BUFFER float32 slot $0 shape (4)\n", read_);
  constexpr int kNodes = 5000;
  for (int i = 1; i < kNodes; ++i) {
    absl::StrAppend(&graph, "%", i, " = ", i % 2 == 0 ? "ADD" : "MUL", " float32 (%", i - 1, ", %",
                    i / 2, ")\n");
  }
  absl::StrAppend(&graph, "%", kNodes, " = ASSIGN float32 (%0, %", kNodes - 1, ")\n%", kNodes + 1,
                  " = SINK void (%", kNodes, ")");
  EXPECT_FALSE(client_.Run(graph));
  EXPECT_EQ(client_.status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << client_.status().error_message();
  EXPECT_EQ(Reason(), "RUN_MEMORY");
  ExpectWhole();
  EXPECT_NE(Runner(), runner);
}

// The runner can't map what the run is on.
TEST_F(ExecutorMemoryFaults, ARunOutOfMemoryEndsAlone) {
  constexpr int kSize = 8 << 20;
  const uint64_t x = client_.Upload({kSize}, std::vector<float>(kSize, 1));
  ASSERT_NE(x, 0) << client_.status().error_message();
  const std::optional<v1::RunResponse> first = client_.Run(AddOne(x, kSize));
  ASSERT_TRUE(first) << client_.status().error_message();
  const pid_t runner = Runner();
  TakeMemory(runner);
  EXPECT_FALSE(client_.Run(AddOne(x, kSize)));
  EXPECT_EQ(client_.status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << client_.status().error_message();
  EXPECT_EQ(Reason(), "RUN_MEMORY");
  // Nothing was assigned to.
  const std::optional<v1::RunResponse> again = client_.Run(AddOne(x, kSize));
  ASSERT_TRUE(again) << client_.status().error_message();
  EXPECT_EQ(client_.Floats(again->outputs(0).buffer().handle()), std::vector<float>(kSize, 2));
  ExpectWhole();
}

// Runs of the session that came behind the one that crashed aren't part of it.
TEST_F(ExecutorFaults, RunsThatWaitBehindACrashRun) {
  const pid_t runner = Runner();
  std::thread killer([&] {
    absl::SleepFor(absl::Seconds(1));
    kill(runner, SIGSEGV);
  });
  std::thread crashes([&] {
    v1::RunRequest request;
    request.set_session(client_.session());
    *request.mutable_graph() = testing::GraphOf(LongSum(written_, kForever));
    grpc::ClientContext context;
    v1::RunResponse response;
    EXPECT_EQ(client_.stub().Run(&context, request, &response).error_code(),
              grpc::StatusCode::ABORTED);
  });
  absl::SleepFor(absl::Milliseconds(300));
  const std::optional<v1::RunResponse> behind = client_.Run(AddOne(read_, 4));
  ASSERT_TRUE(behind) << client_.status().error_message();
  EXPECT_THAT(client_.Floats(behind->outputs(0).buffer().handle()), ElementsAre(2, 3, 4, 5));
  crashes.join();
  killer.join();
  EXPECT_FALSE(client_.Download(written_));
  EXPECT_EQ(Reason(), "LOST");
}

// Runs that nobody waits for any more, with a limit that doesn't come into it.
class ExecutorAbandoned : public ExecutorFaults {
 protected:
  ExecutorAbandoned() : ExecutorFaults("--session_run_timeout=600s") {}

  // It is cancelled, or its deadline passes, so long after it was sent. The time until the other
  // client has run again.
  absl::Duration Abandon(const std::string& graph, bool cancel,
                         absl::Duration after = absl::Seconds(1)) {
    v1::RunRequest request;
    request.set_session(client_.session());
    *request.mutable_graph() = testing::GraphOf(graph);
    grpc::ClientContext context;
    v1::RunResponse response;
    if (!cancel) {
      context.set_deadline(absl::ToChronoTime(absl::Now() + after));
    }
    std::thread canceller([&] {
      absl::SleepFor(after);
      if (cancel) context.TryCancel();
    });
    const grpc::Status status = client_.stub().Run(&context, request, &response);
    canceller.join();
    EXPECT_EQ(status.error_code(),
              cancel ? grpc::StatusCode::CANCELLED : grpc::StatusCode::DEADLINE_EXCEEDED)
        << status.error_message();
    const absl::Time start = absl::Now();
    const int before = runs_;
    while (runs_ < before + 2 && absl::Now() < start + absl::Seconds(60)) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    return absl::Now() - start;
  }
};

// A kernel that doesn't end is ended with its runner.
TEST_F(ExecutorAbandoned, AKernelGivesTheDeviceUp) {
  for (const bool cancel : {true, false}) {
    const uint64_t x = client_.Upload({1}, {1});
    const pid_t runner = Runner();
    EXPECT_LT(Abandon(LongSum(x, kForever), cancel), absl::Seconds(30));
    EXPECT_FALSE(client_.Download(x));
    EXPECT_EQ(Reason(), "LOST");
    EXPECT_THAT(client_.status().error_message(), HasSubstr("nobody waits"));
    EXPECT_TRUE(client_.Free({x}));
    EXPECT_NE(Runner(), runner);
    ExpectWhole();
  }
}

// Of many kernels no other one begins, and the runner lives on.
TEST_F(ExecutorAbandoned, ARunEndsBetweenKernels) {
  // Each sum is a kernel of some hundredths of a second.
  constexpr int kKernels = 400;
  constexpr int kSize = 4000;
  std::string graph = absl::Substitute("%0 = BUFFER float32 slot $0 shape (1)\n", written_);
  int sum = 0;
  for (int i = 0; i < kKernels; ++i) {
    const int at = sum;
    absl::StrAppend(
        &graph,
        absl::Substitute("%$1 = EXPAND float32 (%$0) ints ($9)\n%$2 = SIN float32 (%$1)\n"
                         "%$3 = RESHAPE float32 (%$2) ints (1,$9)\n"
                         "%$4 = RESHAPE float32 (%$2) ints ($9,1)\n"
                         "%$5 = EXPAND float32 (%$3) ints ($9,$9)\n"
                         "%$6 = EXPAND float32 (%$4) ints ($9,$9)\n"
                         "%$7 = MUL float32 (%$5, %$6)\n%$8 = SIN float32 (%$7)\n",
                         at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7, at + 8, kSize),
        absl::Substitute("%$0 = REDUCE_AXIS float32 (%$1) ADD axes (0,1)\n"
                         "%$2 = RESHAPE float32 (%$0) ints (1)\n",
                         at + 9, at + 8, at + 10));
    sum = at + 10;
  }
  absl::StrAppend(&graph, absl::Substitute("%$0 = ASSIGN float32 (%0, %$1)\n"
                                           "%$2 = SINK void (%$0, %$1)",
                                           sum + 1, sum, sum + 2));
  const uint64_t buffers = client_.KeepAlive()->buffers();
  const pid_t runner = Runner();
  EXPECT_LT(Abandon(graph, true, absl::Seconds(4)), absl::Seconds(30));
  // It had begun, and made nothing that nobody would know of.
  EXPECT_FALSE(client_.Download(written_));
  EXPECT_EQ(Reason(), "LOST");
  EXPECT_EQ(client_.KeepAlive()->buffers(), buffers);
  ExpectWhole();
  EXPECT_EQ(Runner(), runner);
}

// Not the client's fault, and so not what a session that ended by itself says.
TEST(ExecutorTurns, ADaemonThatStopsIsUnavailable) {
  Daemon daemon("server/beamd", FreshDirectory() + "/store");
  ExecutorClient client(daemon.address());
  ASSERT_TRUE(client.Open());
  const uint64_t x = client.Upload({1}, {1});
  std::thread stops([&] {
    absl::SleepFor(absl::Seconds(1));
    daemon.Signal(SIGTERM);
  });
  EXPECT_FALSE(client.Run(LongSum(x, kForever)));
  EXPECT_EQ(client.status().error_code(), grpc::StatusCode::UNAVAILABLE)
      << client.status().error_message();
  stops.join();
  EXPECT_EQ(daemon.Wait(), 0);
}

// Who has many sessions gets no more of the device by them.
TEST(ExecutorTurns, GoFromPrincipalToPrincipal) {
  constexpr int kMany = 7;
  constexpr int kRuns = 5;
  const std::string directory = FreshDirectory();
  const std::string access = directory + "/access";
  const std::string many = testing::MakeToken("server/beamd", "many", "submitter", access);
  const std::string one = testing::MakeToken("server/beamd", "one", "submitter", access);
  const Daemon daemon("server/beamd", directory + "/store", {"--access_file=" + access});
  std::vector<std::unique_ptr<ExecutorClient>> clients;
  for (int i = 0; i <= kMany; ++i) {
    clients.push_back(std::make_unique<ExecutorClient>(daemon.address(), i < kMany ? many : one));
    ASSERT_TRUE(clients[i]->Open()) << clients[i]->status().error_message();
  }
  // Of kRuns each after the first, which is planned; the others all along.
  std::atomic<bool> done = false;
  std::array<double, kMany + 1> waited = {};
  std::array<int, kMany + 1> runs = {};
  std::vector<std::thread> threads;
  for (int i = 0; i <= kMany; ++i) {
    threads.emplace_back([&, i] {
      constexpr int kTerms = 10000;
      const uint64_t x = clients[i]->Upload({1}, {1});
      for (int n = 0; i < kMany ? !done : n <= kRuns; ++n) {
        const std::optional<v1::RunResponse> ran = clients[i]->Run(LongSum(x, kTerms));
        if (!ran) {
          ADD_FAILURE() << clients[i]->status().error_message();
          break;
        }
        if (n == 0) continue;
        waited[i] += ran->statistics().wait_s();
        ++runs[i];
      }
      if (i == kMany) done = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  double others_s = 0;
  int others = 0;
  for (int i = 0; i < kMany; ++i) {
    others_s += waited[i];
    others += runs[i];
  }
  ASSERT_GT(others, 0);
  // A turn of the seven's is all that it waits for; they wait for each other besides.
  EXPECT_LT(waited[kMany] / kRuns, 0.5 * others_s / others);
}

// Whoever waits for the device longer than a run may take has not run so long.
TEST(ExecutorTurns, ALimitCountsRunningAndNoWaiting) {
  // Wide of the mark on both sides: others may have the cores too.
  constexpr int kClients = 16;
  constexpr double kLimit = 4;
  constexpr double kRun = 0.6;
  const Daemon daemon("server/beamd", FreshDirectory() + "/store", {"--session_run_timeout=4s"});
  std::vector<std::unique_ptr<ExecutorClient>> clients;
  std::vector<uint64_t> handles;
  for (int i = 0; i < kClients; ++i) {
    ASSERT_TRUE(clients.emplace_back(new ExecutorClient(daemon.address()))->Open());
    // Of one value: what a sine costs depends on that.
    handles.push_back(clients[i]->Upload({1}, {1}));
  }
  constexpr int kTried = 4000;
  double n = 0;  // of a LongSum that takes kRun
  for (int i = 0; i < 3; ++i) {
    const std::optional<v1::RunResponse> tried =
        clients[0]->Run(LongSum(clients[0]->Upload({1}, {1}), kTried));
    ASSERT_TRUE(tried) << clients[0]->status().error_message();
    n = std::max(n, kTried * std::sqrt(kRun / tried->statistics().run_s()));
  }
  std::array<double, kClients> took = {};
  std::array<bool, kClients> answered = {};
  std::vector<std::thread> threads;
  threads.reserve(kClients);
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      const absl::Time start = absl::Now();
      answered[i] = clients[i]->Run(LongSum(handles[i], static_cast<int>(n))).has_value();
      took[i] = absl::ToDoubleSeconds(absl::Now() - start);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The last have waited longer than that: about twice as long, where the machine is as fast as when
  // it was tried.
  EXPECT_GT(*std::max_element(took.begin(), took.end()), kLimit + kRun);
  // A run that had the device may have been robbed of its core. What counts waiting ends those that
  // have not run at all, all at once.
  int ended_at_once = 0;
  for (int i = 0; i < kClients; ++i) {
    if (!answered[i] && took[i] < kLimit + kRun) ++ended_at_once;
  }
  EXPECT_LE(ended_at_once, 1);
  // One that runs that long is ended all the same.
  EXPECT_FALSE(clients[0]->Run(LongSum(clients[0]->Upload({1}, {1}), kForever)));
  EXPECT_EQ(clients[0]->detail().reason(), "RUN_TIMEOUT");
}

// A search beside a client's runs, each longer than one of its own may take.
TEST(ExecutorTurns, NoCandidateIsToBlameForARunBesideIt) {
  const Daemon daemon("server/beamd", FreshDirectory() + "/store",
                      {"--run_timeout=1s", "--session_run_timeout=60s"});
  ExecutorClient client(daemon.address());
  ASSERT_TRUE(client.Open());
  constexpr double kRun = 3;
  constexpr int kTried = 4000;
  const uint64_t x = client.Upload({1}, {1});
  const std::optional<v1::RunResponse> tried = client.Run(LongSum(x, kTried));
  ASSERT_TRUE(tried) << client.status().error_message();
  const int n = static_cast<int>(kTried * std::sqrt(kRun / tried->statistics().run_s()));
  std::atomic<bool> stop = false;
  std::atomic<int> runs = 0;
  std::thread works([&] {
    while (!stop && client.Run(LongSum(x, n))) ++runs;
  });
  const std::unique_ptr<Client> tuner = Client::Create(daemon.address());
  v1::TuneRequest request;
  *request.mutable_graph() = testing::AddKernel(4096);
  request.mutable_search()->set_width(1);
  CallOptions options;
  options.deadline = absl::Now() + absl::Seconds(200);
  std::map<std::string, uint64_t> failures;
  const absl::StatusOr<v1::TuneResult> result = tuner->Tune(
      request,
      [&](const v1::TuneEvent& event) {
        const auto& told = event.progress().failures();
        failures.insert(told.begin(), told.end());
        // Some candidates and a run or two of the client's, whatever is searched after.
        return runs < 3;
      },
      options);
  stop = true;
  works.join();
  EXPECT_GT(runs, 0);
  EXPECT_EQ(failures.count("run_timeout"), 0);
}

}  // namespace
}  // namespace beamd

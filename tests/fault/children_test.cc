#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/workers/codec.h"
#include "server/workers/process_pipeline.h"
#include "server/workers/spawn.h"
#include "server/workers/supervisor.h"
#include "tests/fault/fault_child.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// As a failed expectation prints it.
std::string Text(Failure failure) { return std::string(Name(failure)); }

PoolOptions FaultPool(int children = 1) {
  return {.name = "worker",
          .children = children,
          .args = {"fault-child"},
          .memory_limit_bytes = int64_t{512} << 20,
          .address_space_bytes = int64_t{8} << 30};
}

class Children : public ::testing::Test {
 protected:
  // Pools are one and the same: a fault child serves both frames.
  ProcessPipeline& Start(PoolOptions pool, absl::Duration limit = absl::Seconds(20)) {
    pool_ = supervisor_.AddPool(std::move(pool));
    auto context = std::make_shared<internal::AddContext>();
    context->set_id(supervisor_.NewId());
    pipeline_ = std::make_unique<ProcessPipeline>(
        supervisor_, context,
        PipelineOptions{
            .workers = pool_, .runner = pool_, .compile_limit = limit, .run_limit = limit},
        token_);
    return *pipeline_;
  }

  // Compiles each list; what became of them, in their order.
  std::vector<CompileDone> Compile(const std::vector<std::vector<Opt>>& lists) {
    for (size_t i = 0; i < lists.size(); ++i) pipeline_->Submit(CompileTask{i, lists[i]});
    std::vector<CompileDone> done(lists.size());
    for (size_t i = 0; i < lists.size(); ++i) {
      std::optional<Completion> next = pipeline_->Next(absl::Now() + absl::Seconds(60));
      if (!next) {
        ADD_FAILURE() << "nothing came back";
        return done;
      }
      CompileDone& one = std::get<CompileDone>(*next);
      done[one.id] = one;
    }
    return done;
  }

  Supervisor supervisor_;
  CancelToken token_;
  PoolId pool_ = 0;
  std::unique_ptr<ProcessPipeline> pipeline_;
};

struct FaultCase {
  Fault fault;
  Failure compiling;
  const char* reason;
};

class EveryFault : public Children, public ::testing::WithParamInterface<FaultCase> {};

TEST_P(EveryFault, LosesItsCandidateAloneAndIsCounted) {
  const bool loops = GetParam().fault == Fault::kLoop || GetParam().fault == Fault::kHalfFrame;
  Start(FaultPool(), loops ? absl::Seconds(2) : absl::Seconds(30));
  const std::vector<CompileDone> done =
      Compile({{}, Faulty(GetParam().fault), {}, Faulty(Fault::kSleep, 1)});
  EXPECT_EQ(Text(done[1].failure), Text(GetParam().compiling)) << done[1].detail;
  EXPECT_FALSE(done[1].detail.empty());
  for (const int other : {0, 2, 3}) {
    EXPECT_EQ(Text(done[other].failure), Text(Failure::kNone)) << done[other].detail;
  }
  EXPECT_NE(done[0].image->code, done[2].image->code) << "the process was not replaced";
  const PoolState state = supervisor_.State(pool_);
  EXPECT_THAT(state.replaced, ElementsAre(Pair(GetParam().reason, 1)));
  EXPECT_EQ(state.tasks_done, 3);
}

INSTANTIATE_TEST_SUITE_P(
    Children, EveryFault,
    ::testing::Values(FaultCase{Fault::kAbort, Failure::kCompileCrash, "crash"},
                      FaultCase{Fault::kDivideByZero, Failure::kCompileCrash, "crash"},
                      FaultCase{Fault::kJumpToNull, Failure::kCompileCrash, "crash"},
                      FaultCase{Fault::kLoop, Failure::kCompileTimeout, "timeout"},
                      FaultCase{Fault::kAllocateTouched, Failure::kCompileMemory, "memory"},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
                      FaultCase{Fault::kAllocateReserved, Failure::kCompileMemory, "memory"},
#endif
                      FaultCase{Fault::kGarbageLength, Failure::kCompileCrash, "garbage"},
                      FaultCase{Fault::kGarbageBytes, Failure::kCompileCrash, "garbage"},
                      FaultCase{Fault::kHalfFrame, Failure::kCompileTimeout, "timeout"},
                      FaultCase{Fault::kHalfFrameEnds, Failure::kCompileCrash, "crash"},
                      FaultCase{Fault::kWrongTask, Failure::kCompileCrash, "garbage"}));

TEST_F(Children, ARunThatCrashesOrSpinsIsToldApart) {
  Start(FaultPool(), absl::Seconds(1));
  std::map<uint64_t, Failure> failures;
  const Fault faults[] = {Fault::kNone, Fault::kDivideByZero, Fault::kLoop, Fault::kNone};
  for (size_t i = 0; i < std::size(faults); ++i) {
    auto image = std::make_shared<KernelImage>();
    image->slices = static_cast<int64_t>(faults[i]);
    pipeline_->Submit(TimeTask{.id = i, .images = {image}});
  }
  for (size_t i = 0; i < std::size(faults); ++i) {
    std::optional<Completion> next = pipeline_->Next(absl::Now() + absl::Seconds(60));
    ASSERT_TRUE(next);
    const TimeDone& done = std::get<TimeDone>(*next);
    failures[done.id] = done.failure;
    EXPECT_EQ(done.failed_image, done.failure == Failure::kNone ? -1 : 0);
  }
  EXPECT_THAT(failures, ElementsAre(Pair(0, Failure::kNone), Pair(1, Failure::kRunCrash),
                                    Pair(2, Failure::kRunTimeout), Pair(3, Failure::kNone)));
}

TEST_F(Children, TimesThatAreNoneAreDiscarded) {
  Start(FaultPool());
  for (size_t i = 0; i < std::size(kNoTimes); ++i) {
    auto image = std::make_shared<KernelImage>();
    image->slices = static_cast<int64_t>(Fault::kNoTime);
    image->uop_count = static_cast<int64_t>(i);
    pipeline_->Submit(TimeTask{.id = i, .images = {image}});
    std::optional<Completion> next = pipeline_->Next(absl::Now() + absl::Seconds(60));
    ASSERT_TRUE(next);
    const TimeDone& done = std::get<TimeDone>(*next);
    EXPECT_EQ(Text(done.failure), Text(Failure::kInvalidTime)) << kNoTimes[i];
    EXPECT_TRUE(done.seconds.empty());
  }
}

TEST_F(Children, ARunOverItsMemoryLimitIsKilledAndCountedSo) {
  Start(FaultPool(), absl::Seconds(60));
  std::map<uint64_t, Failure> failures;
  const Fault faults[] = {Fault::kAllocateTouched, Fault::kNone};
  for (size_t i = 0; i < std::size(faults); ++i) {
    auto image = std::make_shared<KernelImage>();
    image->slices = static_cast<int64_t>(faults[i]);
    pipeline_->Submit(TimeTask{.id = i, .images = {image}});
  }
  for (size_t i = 0; i < std::size(faults); ++i) {
    std::optional<Completion> next = pipeline_->Next(absl::Now() + absl::Seconds(120));
    ASSERT_TRUE(next);
    const TimeDone& done = std::get<TimeDone>(*next);
    failures[done.id] = done.failure;
    EXPECT_EQ(done.detail.find("bytes") != std::string::npos, done.id == 0) << done.detail;
  }
  EXPECT_THAT(failures, ElementsAre(Pair(0, Failure::kRunMemory), Pair(1, Failure::kNone)));
  EXPECT_THAT(supervisor_.State(pool_).replaced, ElementsAre(Pair("memory", 1)));
}

TEST_F(Children, ATaskWhoseChildIsKilledFromOutsideRunsAgain) {
  Start(FaultPool());
  ASSERT_TRUE(supervisor_.WaitForHello(pool_, absl::Seconds(60)).ok());
  const pid_t victim = static_cast<pid_t>(supervisor_.State(pool_).children.at(0).pid);
  std::thread killer([&] {
    while (!supervisor_.State(pool_).children.at(0).busy) absl::SleepFor(absl::Milliseconds(1));
    kill(victim, SIGKILL);
  });
  const std::vector<CompileDone> done = Compile({Faulty(Fault::kSleep, 300), {}});
  killer.join();
  EXPECT_EQ(Text(done[0].failure), Text(Failure::kNone)) << done[0].detail;
  EXPECT_NE(done[0].image->code, std::to_string(victim));
  EXPECT_EQ(Text(done[1].failure), Text(Failure::kNone));
  EXPECT_THAT(supervisor_.State(pool_).replaced, ElementsAre(Pair("crash", 1)));
}

TEST_F(Children, ALimitCountsRunningNotQueueing) {
  Start(FaultPool(), absl::Seconds(1));
  for (const CompileDone& done : Compile({6, Faulty(Fault::kSleep, 300)})) {
    EXPECT_EQ(Text(done.failure), Text(Failure::kNone)) << done.detail;
  }
}

TEST_F(Children, CancellingFreesAChildThatSpins) {
  Start(FaultPool());
  pipeline_->Submit(CompileTask{1, Faulty(Fault::kLoop)});
  pipeline_->Submit(CompileTask{2, {}});
  while (true) {
    const PoolState state = supervisor_.State(pool_);
    if (!state.children.empty() && state.children[0].busy) break;
    absl::SleepFor(absl::Milliseconds(1));
  }
  std::thread client([&] { token_.Cancel(StopReason::kCancelled); });
  EXPECT_FALSE(pipeline_->Next(absl::InfiniteFuture()));
  client.join();
  EXPECT_TRUE(pipeline_->cancelled());
  // Another job's work goes on.
  CancelToken other;
  auto context = std::make_shared<internal::AddContext>();
  context->set_id(supervisor_.NewId());
  ProcessPipeline second(supervisor_, context, {.workers = pool_, .runner = pool_}, other);
  second.Submit(CompileTask{3, {}});
  std::optional<Completion> next = second.Next(absl::Now() + absl::Seconds(60));
  ASSERT_TRUE(next);
  EXPECT_EQ(std::get<CompileDone>(*next).failure, Failure::kNone);
  EXPECT_THAT(supervisor_.State(pool_).replaced, ElementsAre(Pair("cancelled", 1)));
}

TEST_F(Children, WorkThatIsHastenedOvertakesWhatWaits) {
  Start(FaultPool());
  std::atomic<Haste> haste = Haste::kBatch;
  std::vector<std::unique_ptr<ProcessPipeline>> jobs;
  for (int i = 0; i < 2; ++i) {
    auto context = std::make_shared<internal::AddContext>();
    context->set_id(supervisor_.NewId());
    jobs.push_back(std::make_unique<ProcessPipeline>(
        supervisor_, context,
        PipelineOptions{.workers = pool_, .runner = pool_, .haste = i == 0 ? nullptr : &haste},
        token_));
  }
  pipeline_->Submit(CompileTask{1, Faulty(Fault::kSleep, 100)});
  jobs[0]->Submit(CompileTask{1, Faulty(Fault::kSleep, 100)});
  haste = Haste::kInteractive;
  jobs[1]->Submit(CompileTask{1, {}});
  EXPECT_TRUE(jobs[1]->Next(absl::Now() + absl::Seconds(60)));
  EXPECT_FALSE(jobs[0]->Next(absl::Now())) << "it went first";
  EXPECT_TRUE(jobs[0]->Next(absl::Now() + absl::Seconds(60)));
}

TEST_F(Children, WhatAPipelineLeavesBehindIsCharged) {
  std::atomic<double> charged = 0;
  Start(FaultPool());
  auto context = std::make_shared<internal::AddContext>();
  context->set_id(supervisor_.NewId());
  pipeline_ = std::make_unique<ProcessPipeline>(
      supervisor_, context,
      PipelineOptions{
          .workers = pool_,
          .runner = pool_,
          .charge = [&](absl::Duration took) { charged = absl::ToDoubleSeconds(took); }},
      token_);
  auto image = std::make_shared<KernelImage>();
  image->slices = static_cast<int64_t>(Fault::kLoop);
  pipeline_->Submit(TimeTask{.id = 1, .images = {image}});
  const auto busy = [&] {
    const PoolState state = supervisor_.State(pool_);
    return !state.children.empty() && state.children[0].busy;
  };
  while (!busy()) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(50));
  pipeline_ = nullptr;
  while (supervisor_.State(pool_).replaced["cancelled"] == 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (charged == 0 && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GT(charged, 0.05);
}

TEST_F(Children, ADeadlineEndsTheWaitNotTheTask) {
  Start(FaultPool());
  ASSERT_TRUE(supervisor_.WaitForHello(pool_, absl::Seconds(60)).ok());
  pipeline_->Submit(CompileTask{1, Faulty(Fault::kSleep, 100)});
  EXPECT_FALSE(pipeline_->Next(absl::Now() + absl::Milliseconds(1)));
  EXPECT_TRUE(pipeline_->Next(absl::Now() + absl::Seconds(60)));
}

TEST_F(Children, AnAnswerThatSaysItIsTheLastCostsNoOtherTask) {
  Start(FaultPool());
  const std::vector<CompileDone> done = Compile({{}, Faulty(Fault::kLast), {}, {}});
  for (const CompileDone& one : done) {
    ASSERT_EQ(Text(one.failure), Text(Failure::kNone)) << one.detail;
  }
  EXPECT_EQ(done[0].image->code, done[1].image->code);
  EXPECT_NE(done[1].image->code, done[2].image->code);
  EXPECT_EQ(done[2].image->code, done[3].image->code);
  supervisor_.ClosePool(pool_);
  PoolState state = supervisor_.State(pool_);
  for (int i = 0; i < 500 && !state.children.empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    state = supervisor_.State(pool_);
  }
  EXPECT_TRUE(state.children.empty()) << "a closed pool has no children";
  EXPECT_THAT(state.replaced, ElementsAre(Pair("cancelled", 1), Pair("device", 1)));
}

TEST_F(Children, SayWhyTheyCannotServe) {
  PoolOptions pool = FaultPool();
  pool.args.emplace_back("--device=none");
  Start(pool);
  const absl::Status status = supervisor_.WaitForHello(pool_, absl::Seconds(60)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "there is no such device")) << status;
}

TEST_F(Children, AreReplacedAfterTheirShareOfTasks) {
  PoolOptions pool = FaultPool();
  pool.recycle_tasks = 3;
  Start(pool);
  std::map<std::string, int> tasks_of_pid;
  for (const CompileDone& done : Compile(std::vector<std::vector<Opt>>(9))) {
    ++tasks_of_pid[done.image->code];
  }
  EXPECT_EQ(tasks_of_pid.size(), 3);
  for (const auto& [pid, tasks] : tasks_of_pid) EXPECT_EQ(tasks, 3);
}

TEST_F(Children, AreReplacedOncePastAMemoryBound) {
  PoolOptions pool = FaultPool();
  pool.recycle_bytes = 1;  // every process is
  Start(pool);
  std::set<std::string> pids;
  for (const CompileDone& done : Compile(std::vector<std::vector<Opt>>(65))) {
    pids.insert(done.image->code);
  }
  EXPECT_EQ(pids.size(), 3) << "looked at after each 32 tasks";
}

TEST_F(Children, WorkSideBySide) {
  Start(FaultPool(2));
  const std::vector<CompileDone> done = Compile({4, Faulty(Fault::kSleep, 200)});
  std::set<std::string> pids;
  for (const CompileDone& one : done) pids.insert(one.image->code);
  EXPECT_EQ(pids.size(), 2);
}

TEST_F(Children, InheritNothingButTheirChannel) {
  // Not close-on-exec, as a careless library would open it.
  const int careless = open("/dev/null", O_RDONLY);
  Start(FaultPool());
  EXPECT_EQ(Compile({Faulty(Fault::kListDescriptors)})[0].detail, "0 1 2 3");
  close(careless);
}

TEST_F(Children, ThatDoNotStartFailTheirTasks) {
  PoolOptions pool = FaultPool();
  pool.args = {"exit-at-once"};
  Start(pool);
  EXPECT_EQ(supervisor_.WaitForHello(pool_, absl::Seconds(60)).status().code(),
            absl::StatusCode::kUnavailable);
  const CompileDone done = Compile({{}})[0];
  EXPECT_EQ(done.failure, Failure::kUnavailable);
  EXPECT_TRUE(absl::StrContains(done.detail, "exited with status 9")) << done.detail;
}

TEST_F(Children, ThatDoNotStartAreWaitedForAWhile) {
  PoolOptions pool = FaultPool();
  pool.args = {"exit-at-once"};
  pool.patience = absl::Seconds(2);
  Start(pool);
  const absl::Time start = absl::Now();
  EXPECT_EQ(Compile({{}})[0].failure, Failure::kUnavailable);
  EXPECT_GE(absl::Now() - start, pool.patience);
}

// A second child that doesn't start is no reason to give up what the first can do.
TEST_F(Children, ThatServeTakeWhatWaitsThoughOthersDoNotStart) {
  const std::string file = ::testing::TempDir() + "/serves";
  std::filesystem::remove(file);
  PoolOptions pool = FaultPool(2);
  pool.args = {"serve-once", file};
  Start(pool);
  std::vector<std::vector<Opt>> lists(3, Faulty(Fault::kSleep, 700));
  for (const CompileDone& done : Compile(lists)) EXPECT_EQ(done.failure, Failure::kNone);
}

TEST_F(Children, WaitsForTheDeviceAreNoPartOfALimit) {
  PoolOptions pool = FaultPool();
  const absl::Time start = absl::Now();
  // As if the child stood before the device for two seconds.
  pool.excused = [start] { return std::min(absl::Now() - start, absl::Seconds(2)); };
  Start(pool, absl::Milliseconds(500));
  EXPECT_EQ(Compile({Faulty(Fault::kSleep, 1500)})[0].failure, Failure::kNone);
  EXPECT_EQ(Compile({Faulty(Fault::kSleep, 5000)})[0].failure, Failure::kCompileTimeout);
}

TEST_F(Children, OneThatIsCancelledWhileItWaitsForTheDeviceEndsAtOnce) {
  PoolOptions pool = FaultPool();
  pool.excused = [] { return absl::Now() - absl::UnixEpoch(); };
  Start(pool);
  pipeline_->Submit(CompileTask{0, Faulty(Fault::kSleep, 60000)});
  absl::SleepFor(absl::Milliseconds(300));
  const absl::Time start = absl::Now();
  token_.Cancel(StopReason::kCancelled);
  while (supervisor_.State(pool_).replaced["cancelled"] == 0) {
    ASSERT_LT(absl::Now() - start, absl::Seconds(20));
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST_F(Children, HoldAContextOnceAndForgetTheLongestUnused) {
  PoolOptions pool = FaultPool();
  pool.contexts = 2;
  Start(pool);
  std::vector<std::unique_ptr<ProcessPipeline>> jobs;
  for (int i = 0; i < 3; ++i) {
    auto context = std::make_shared<internal::AddContext>();
    context->set_id(supervisor_.NewId());
    jobs.push_back(std::make_unique<ProcessPipeline>(
        supervisor_, context, PipelineOptions{.workers = pool_, .runner = pool_}, token_));
  }
  // A context that came twice, or not at all, would end the child.
  for (const int job : {0, 0, 1, 2, 0, 1, 2, 2}) {
    jobs[job]->Submit(CompileTask{});
    std::optional<Completion> next = jobs[job]->Next(absl::Now() + absl::Seconds(60));
    ASSERT_TRUE(next);
    EXPECT_EQ(std::get<CompileDone>(*next).failure, Failure::kNone);
  }
  EXPECT_TRUE(supervisor_.State(pool_).replaced.empty());
}

// A daemon with one child, in a process of its own: prints the child's pid and waits to be killed.
[[noreturn]] void RunDaemon() {
  Supervisor supervisor;
  const PoolId pool = supervisor.AddPool(FaultPool());
  const absl::StatusOr<internal::Hello> hello = supervisor.WaitForHello(pool, absl::Seconds(60));
  std::printf("%lld\n", hello.ok() ? static_cast<long long>(hello->pid()) : -1LL);
  std::fflush(stdout);
  while (true) pause();
}

TEST(Daemon, TakesItsChildrenAlongWhenKilled) {
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  const pid_t daemon = fork();
  if (daemon == 0) {
    dup2(out[1], STDOUT_FILENO);
    char name[] = "daemon";
    char* argv[] = {name, name, nullptr};
    execv("/proc/self/exe", argv);
    _exit(1);
  }
  close(out[1]);
  FILE* lines = fdopen(out[0], "r");
  int child = 0;
  ASSERT_EQ(std::fscanf(lines, "%d", &child), 1);
  ASSERT_GT(child, 0);
  ASSERT_EQ(kill(child, 0), 0);
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);
  for (int i = 0; i < 1000; ++i) {
    // Reparented, it may stand as a zombie for a while where nothing reaps.
    FILE* stat = std::fopen(("/proc/" + std::to_string(child) + "/stat").c_str(), "r");
    if (stat == nullptr) break;
    char state = 0;
    const int read = std::fscanf(stat, "%*d %*s %c", &state);
    std::fclose(stat);
    if (read == 1 && state == 'Z') break;
    ASSERT_LT(i, 999) << "the child lives on";
    absl::SleepFor(absl::Milliseconds(10));
  }
  std::fclose(lines);
}

TEST(Spawn, BindsToCores) {
  const std::vector<int> cores = AllowedCores();
  ASSERT_FALSE(cores.empty());
  std::thread([&] {
    ASSERT_TRUE(BindToCores({cores.back()}).ok());
    EXPECT_THAT(AllowedCores(), ElementsAre(cores.back()));
  }).join();
  EXPECT_EQ(AllowedCores(), cores);
}

// A pool of one child whose fresh children are asked to compile something, and pass while `well`.
class Probed : public Children {
 protected:
  void StartProbed() {
    Start(FaultPool());
    auto context = std::make_shared<internal::AddContext>();
    context->set_id(supervisor_.NewId());
    Canary canary{.context = context,
                  .requests = std::vector<internal::Frame>(2),
                  .limit = absl::Seconds(20)};
    for (internal::Frame& request : canary.requests) {
      request.mutable_compile()->set_context(context->id());
      *request.mutable_compile()->mutable_opts() =
          ToWire(probe_ms_ == 0 ? Faulty(Fault::kNone) : Faulty(Fault::kSleep, probe_ms_));
    }
    canary.check = [this](size_t step, const internal::Frame& reply) -> absl::Status {
      ++asked_;
      EXPECT_TRUE(reply.has_compiled());
      if (step == 1 && !well_) return absl::InternalError("scripted");
      return absl::OkStatus();
    };
    ASSERT_TRUE(supervisor_.WaitForHello(pool_, absl::Seconds(60)).ok());
    supervisor_.SetCanary(pool_, std::move(canary));
  }
  Failure CompileOne(Fault fault) { return Compile({Faulty(fault)})[0].failure; }

  int probe_ms_ = 0;  // how long it takes to answer
  std::atomic<bool> well_ = true;
  std::atomic<int> asked_ = 0;
};

TEST_F(Probed, AFreshChildIsAskedBeforeItIsGivenWork) {
  StartProbed();
  EXPECT_EQ(CompileOne(Fault::kAbort), Failure::kCompileCrash);
  EXPECT_EQ(CompileOne(Fault::kNone), Failure::kNone);
  EXPECT_EQ(asked_, 2);
  EXPECT_TRUE(supervisor_.State(pool_).quarantine.empty());
}

TEST_F(Probed, TwoThatFailQuarantineThePoolUntilItIsReleased) {
  StartProbed();
  well_ = false;
  EXPECT_EQ(CompileOne(Fault::kAbort), Failure::kCompileCrash);
  EXPECT_EQ(CompileOne(Fault::kNone), Failure::kUnavailable);
  EXPECT_THAT(supervisor_.State(pool_).quarantine, ::testing::HasSubstr("scripted"));
  EXPECT_EQ(CompileOne(Fault::kNone), Failure::kUnavailable);
  EXPECT_EQ(asked_, 4);
  well_ = true;
  EXPECT_TRUE(supervisor_.Release(pool_));
  EXPECT_FALSE(supervisor_.Release(pool_));
  EXPECT_EQ(CompileOne(Fault::kNone), Failure::kNone);
}

TEST_F(Probed, ADeviceIsNotToBlameForKillsFromOutside) {
  probe_ms_ = 1000;
  StartProbed();
  std::set<int64_t> killed;
  while (killed.size() < 4) {
    const PoolState state = supervisor_.State(pool_);
    for (const ChildState& child : state.children) {
      if (!killed.insert(child.pid).second) continue;
      // It has said hello by then, and is asked.
      absl::SleepFor(absl::Milliseconds(300));
      kill(static_cast<pid_t>(child.pid), SIGKILL);
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(CompileOne(Fault::kNone), Failure::kNone);
  EXPECT_EQ(supervisor_.State(pool_).quarantine, "");
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "exit-at-once") return 9;
  // The first one serves, and all that come after it don't.
  if (argc > 2 && std::string(argv[1]) == "serve-once") {
    const int first = open(argv[2], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (first < 0) return 9;
    argv[2] = const_cast<char*>("fault-child");
    beamd::MaybeRunFaultChild(argc - 1, argv + 1);
  }
  beamd::MaybeRunFaultChild(argc, argv);
  if (argc == 2 && std::string(argv[1]) == "daemon") beamd::RunDaemon();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

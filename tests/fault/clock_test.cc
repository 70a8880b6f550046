// The system's clock, set back while something waits for it.

#include "absl/time/clock.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/base/steady_clock.h"
#include "gtest/gtest.h"
#include "server/workers/codec.h"
#include "server/workers/process_pipeline.h"
#include "server/workers/supervisor.h"
#include "tests/fault/fault_child.h"
#include "tests/fault/scripted_tuner.h"
#include "tests/fault/step_clock.h"

namespace beamd {
namespace {

using ::beamd::testing::ScriptedTuner;
using ::beamd::testing::StepClock;

// Sets the clock back an hour in a while.
class SetBack {
 public:
  explicit SetBack(absl::Duration in)
      : thread_([in] {
          absl::SleepFor(in);
          StepClock(-absl::Hours(1));
        }) {}
  ~SetBack() {
    thread_.join();
    StepClock(absl::ZeroDuration());
  }

 private:
  std::thread thread_;
};

class Clock : public ScriptedTuner {
 protected:
  void TearDown() override {
    StepClock(absl::ZeroDuration());
    ScriptedTuner::TearDown();
  }
};

TEST(StepClock, IsWhatLibrariesSee) {
  const absl::Time before = absl::Now();
  const absl::Time steady = SteadyNow();
  StepClock(-absl::Hours(1));
  EXPECT_LT(absl::Now(), before - absl::Minutes(59));
  EXPECT_GE(SteadyNow(), steady);
  StepClock(absl::ZeroDuration());
}

TEST(CondVar, AWaitEndsInTime) {
  Mutex mutex;
  CondVar changed;
  const absl::Time begin = SteadyNow();
  const absl::Time deadline = begin + absl::Milliseconds(200);
  const SetBack back(absl::Milliseconds(50));
  MutexLock lock(mutex);
  while (SteadyNow() < deadline) changed.WaitUntil(mutex, deadline);
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(30));
}

TEST(Supervisor, ALimitHoldsAndAWaitForACandidateEnds) {
  Supervisor supervisor;
  const PoolId pool = supervisor.AddPool({.name = "worker",
                                          .children = 1,
                                          .args = {"fault-child"},
                                          .memory_limit_bytes = int64_t{512} << 20,
                                          .address_space_bytes = int64_t{8} << 30});
  CancelToken token;
  auto context = std::make_shared<internal::AddContext>();
  context->set_id(supervisor.NewId());
  ProcessPipeline pipeline(supervisor, context,
                           PipelineOptions{.workers = pool,
                                           .runner = pool,
                                           .compile_limit = absl::Seconds(1),
                                           .run_limit = absl::Seconds(1)},
                           token);
  const absl::Time begin = SteadyNow();
  const SetBack back(absl::Milliseconds(300));
  pipeline.Submit(CompileTask{1, Faulty(Fault::kLoop)});
  const std::optional<Completion> next = pipeline.Next(SteadyNow() + absl::Minutes(2));
  ASSERT_TRUE(next);
  EXPECT_EQ(std::get<CompileDone>(*next).failure, Failure::kCompileTimeout);
  pipeline.Submit(CompileTask{2, Faulty(Fault::kSleep, 60000)});
  EXPECT_FALSE(pipeline.Next(SteadyNow() + absl::Milliseconds(100)));
  EXPECT_LT(SteadyNow() - begin, absl::Minutes(1));
}

TEST_F(Clock, AnAbandonedJobIsCancelledAfterItsGrace) {
  Open();
  StartTuner({.grace = absl::Milliseconds(200)});
  released_ = false;
  Tuner::Answer answer = Tune(1);
  const std::shared_ptr<Job> job = answer.watch->job().shared_from_this();
  answer.watch.reset();
  StepClock(-absl::Hours(1));
  Await([&] { return job->token().cancelled(); });
  EXPECT_EQ(job->token().reason(), StopReason::kCancelled);
}

TEST_F(Clock, AQuotaThatIsUsedUpStaysSo) {
  device_time_ = absl::Seconds(100);
  Open();
  StartTuner({}, 50);
  Tuner::Answer answer = Tune(1);
  End(answer);
  StepClock(-absl::Hours(48));
  v1::TuneRequest request;
  request.mutable_graph()->add_nodes()->set_op(v1::OP_STORE);
  EXPECT_EQ(tuner_->Tune(request, {.principal = "me"}, [] {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(Clock, JobsAndRecordsKeepTheirOrder) {
  Open();
  StartTuner();
  std::vector<std::string> jobs;
  for (int i = 1; i <= 3; ++i) {
    Tuner::Answer answer = Tune(i);
    End(answer);
    jobs.insert(jobs.begin(), answer.accepted.job());
    StepClock(-absl::Hours(i));
  }
  const std::vector<v1::Job> listed = *tuner_->ListJobs("", 10);
  ASSERT_EQ(listed.size(), 3);
  EXPECT_EQ(listed[2].id(), jobs[2]) << "the first is the oldest, whatever the clock said then";
  // A generation that was written later is the newer one.
  v1::TuneRequest again;
  again.mutable_graph()->add_nodes()->set_op(v1::OP_SINK);
  again.set_mode(v1::TUNE_MODE_REFRESH);
  absl::StatusOr<Tuner::Answer> refreshed = tuner_->Tune(again, {.principal = "me"}, [] {});
  ASSERT_TRUE(refreshed.ok());
  EXPECT_EQ(End(*refreshed).record().generation(), 2);
  Tuner::Answer answer = Tune(1);
  EXPECT_EQ(End(answer).record().generation(), 2);
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  beamd::MaybeRunFaultChild(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

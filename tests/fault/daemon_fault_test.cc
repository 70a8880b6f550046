#include "tests/fault/daemon_fault.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::beamd::testing::DaemonFault;
using ::beamd::testing::MatmulKernel;

TEST_F(DaemonFault, AKilledDaemonsSearchGoesOnWithWhatItHadMeasured) {
  StartDaemon();
  const std::string job = Detach(Request(MatmulKernel(512), 6));
  AwaitTimed(40);
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
  const size_t before = Timed().size();
  StartDaemon();
  const absl::StatusOr<v1::TuneResult> result =
      client_->WatchJob(job, [](const v1::TuneEvent&) { return true; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->job(), job);
  EXPECT_TRUE(result->persisted());
  EXPECT_TRUE(result->record().verification().verified());
  EXPECT_EQ(result->record().end(), v1::SEARCH_END_CONVERGED);
  ASSERT_GT(Timed().size(), before) << "it had ended before it was killed";
  const std::vector<std::string> timed = Timed();
  const std::set<std::string> had(timed.begin(), timed.begin() + static_cast<ptrdiff_t>(before));
  const auto again = std::count_if(timed.begin() + static_cast<ptrdiff_t>(before), timed.end(),
                                   [&](const std::string& opts) { return had.count(opts) > 0; });
  EXPECT_LT(static_cast<double>(again), 0.05 * static_cast<double>(before))
      << again << " of " << before << " were measured again";
  EXPECT_GE(result->record().recalled(), before);
  EXPECT_EQ(client_->GetJob(job)->resumes(), 1);
}

TEST_F(DaemonFault, AClientThatWaitsFindsItsJobAgain) {
  StartDaemon();
  absl::StatusOr<v1::TuneResult> result = absl::UnknownError("not asked");
  std::string job;
  std::thread waiting([&] {
    const std::unique_ptr<Client> client = Client::Create(daemon_->address());
    CallOptions options;
    options.reattach = absl::Seconds(60);
    result = client->Tune(
        Request(MatmulKernel(512), 4),
        [&](const v1::TuneEvent& event) {
          if (job.empty()) job = event.accepted().job();
          return true;
        },
        options);
  });
  AwaitTimed(20);
  Restart();
  waiting.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->job(), job);
  EXPECT_TRUE(result->persisted());
}

TEST_F(DaemonFault, WorkersAreIdleSoonAfterACancel) {
  StartDaemon();
  const std::string job = Detach(Request(MatmulKernel(512), 16));
  AwaitTimed(10);
  ASSERT_TRUE(client_->CancelJob(job).ok());
  const absl::Time cancelled = absl::Now();
  const auto busy = [&] {
    const v1::ListDevicesResponse devices = *client_->ListDevices();
    const auto is_busy = [](const v1::ChildProcess& child) { return child.busy(); };
    return std::ranges::any_of(devices.workers().children(), is_busy) ||
           std::ranges::any_of(devices.devices(0).runners().children(), is_busy);
  };
  while (busy()) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_LT(absl::Now() - cancelled, absl::Seconds(2));
  // The best so far is the job's, and marked.
  const absl::StatusOr<v1::TuneResult> best =
      client_->WatchJob(job, [](const v1::TuneEvent&) { return true; });
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->record().end(), v1::SEARCH_END_CANCELLED);
  EXPECT_GT(best->record().best_s(), 0);
  EXPECT_FALSE(best->persisted());
  EXPECT_EQ(client_->GetJob(job)->state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(DaemonFault, ThirtyTwoClientsThatWantTheSameShareOneSearch) {
  StartDaemon();
  std::vector<absl::StatusOr<v1::TuneResult>> results(32, absl::UnknownError("not asked"));
  std::vector<std::thread> clients;
  for (size_t i = 0; i < results.size(); ++i) {
    clients.emplace_back([&, i] {
      results[i] =
          Client::Create(daemon_->address())
              ->Tune(Request(MatmulKernel(64), 2), [](const v1::TuneEvent&) { return true; });
    });
  }
  for (std::thread& client : clients) client.join();
  for (const absl::StatusOr<v1::TuneResult>& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->record().DebugString(), results[0]->record().DebugString());
  }
  EXPECT_EQ(client_->ListJobs({})->jobs_size(), 1);
}

}  // namespace
}  // namespace beamd

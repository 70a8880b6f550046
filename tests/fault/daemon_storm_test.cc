#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/daemon_fault.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::DaemonFault;
using ::beamd::testing::MatmulKernel;

// Much of it at once, or for long.
class DaemonStorm : public DaemonFault {
 protected:
  std::vector<pid_t> Children() {
    std::vector<pid_t> pids;
    const absl::StatusOr<v1::ListDevicesResponse> devices = client_->ListDevices();
    if (!devices.ok()) return pids;
    for (const v1::ChildProcess& child : devices->workers().children()) {
      pids.push_back(static_cast<pid_t>(child.pid()));
    }
    for (const v1::ChildProcess& child : devices->devices(0).runners().children()) {
      pids.push_back(static_cast<pid_t>(child.pid()));
    }
    return pids;
  }
  // One that ended and that nobody has waited for yet doesn't.
  static bool AnyLives(const std::vector<pid_t>& pids) {
    return std::ranges::any_of(pids, [](pid_t pid) {
      std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
      std::string number, name, state;
      return stat >> number >> name >> state && state != "Z" && state != "X";
    });
  }
};

TEST_F(DaemonStorm, FiftyKillsLoseNoAcknowledgedJobAndLeaveNoOrphan) {
  StartDaemon({"--jobs=3"});
  std::vector<std::string> jobs;
  for (const uint32_t width : {2, 3, 4}) jobs.push_back(Detach(Request(MatmulKernel(256), width)));
  std::mt19937 random(1);
  std::vector<v1::TuneRequest> acknowledged;
  for (int round = 0; round < 50; ++round) {
    // Somebody asks meanwhile, and may be told before it strikes.
    v1::TuneRequest small = Request(AddKernel(64 + round), 1);
    small.set_priority(v1::PRIORITY_INTERACTIVE);
    bool told = false;
    std::thread asking([&, client = Client::Create(daemon_->address())] {
      CallOptions options;
      options.deadline = absl::Now() + absl::Seconds(2);
      const auto result = client->Tune(
          small, [](const v1::TuneEvent&) { return true; }, options);
      told = result.ok() && result->persisted();
    });
    absl::SleepFor(absl::Milliseconds(100 + random() % 400));
    const std::vector<pid_t> children = Children();
    if (round % 3 == 0 || children.empty()) {
      Restart({"--jobs=3"});
      absl::SleepFor(absl::Seconds(2) - (absl::Now() - killed_));
      EXPECT_FALSE(AnyLives(children)) << "round " << round;
    } else {
      // The runner is last.
      kill(round % 3 == 1 ? children.back() : children.front(), SIGKILL);
    }
    asking.join();
    if (told) acknowledged.push_back(small);
    for (const v1::TuneRequest& request : acknowledged) {
      v1::LookupRequest lookup;
      *lookup.add_queries()->mutable_graph() = request.graph();
      *lookup.mutable_queries(0)->mutable_search() = request.search();
      const absl::StatusOr<v1::LookupResponse> found = client_->Lookup(lookup);
      EXPECT_TRUE(found.ok() && found->answers(0).has_hit()) << "lost in round " << round;
    }
  }
  EXPECT_GT(acknowledged.size(), 10);
  for (const std::string& job : jobs) {
    const absl::StatusOr<v1::TuneResult> result =
        client_->WatchJob(job, [](const v1::TuneEvent&) { return true; });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->persisted());
    v1::GetRecordRequest request;
    request.set_key(result->record().key());
    EXPECT_TRUE(client_->GetRecord(request).ok());
  }
}

TEST_F(DaemonStorm, AStoppedWorkerAndAStoppedRunnerAreReplaced) {
  StartDaemon({"--compile_timeout=2s", "--run_timeout=2s"});
  const std::string job = Detach(Request(MatmulKernel(512), 2));
  AwaitTimed(5);
  for (const pid_t child : Children()) kill(child, SIGSTOP);
  const absl::StatusOr<v1::TuneResult> result =
      client_->WatchJob(job, [](const v1::TuneEvent&) { return true; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->record().verification().verified());
}

TEST_F(DaemonStorm, TenThousandLookUpsWhileItTunes) {
  StartDaemon();
  v1::TuneRequest known = Request(AddKernel(64), 1);
  ASSERT_TRUE(client_->Tune(known, [](const v1::TuneEvent&) { return true; }).ok());
  const std::string job = Detach(Request(MatmulKernel(256), 2));
  v1::LookupRequest lookup;
  *lookup.add_queries()->mutable_graph() = known.graph();
  *lookup.mutable_queries(0)->mutable_search() = known.search();
  std::atomic<int> hits = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const absl::StatusOr<v1::LookupResponse> found = client_->Lookup(lookup);
        if (found.ok() && found->answers(0).has_hit()) ++hits;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hits, 10000);
  EXPECT_TRUE(client_->WatchJob(job, [](const v1::TuneEvent&) { return true; }).ok());
}

TEST_F(DaemonStorm, FiveHundredStreamsEndWithTheDaemon) {
  StartDaemon({"--drain_timeout=100ms"});
  const v1::TuneRequest request = Request(MatmulKernel(512), 16);
  std::atomic<int> accepted = 0, ended = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 500; ++t) {
    threads.emplace_back([&] {
      client_
          ->Tune(request,
                 [&](const v1::TuneEvent& event) {
                   accepted += event.has_accepted() ? 1 : 0;
                   return true;
                 })
          .IgnoreError();
      ++ended;
    });
  }
  while (accepted + ended < 500) absl::SleepFor(absl::Milliseconds(10));
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(accepted, 500);
}

TEST_F(DaemonStorm, OneThatIsStartedByARelativePathReplacesItsChildren) {
  std::filesystem::create_directory_symlink(std::filesystem::absolute("server"),
                                            directory_ + "/link");
  const std::string link =
      std::filesystem::proximate(directory_ + "/link/beamd", std::filesystem::current_path());
  for (const std::string& binary : {std::string("./server/../server/beamd"), link}) {
    ASSERT_NE(binary.front(), '/');
    daemon_ = std::make_unique<Daemon>(binary, directory_ + "/store");
    client_ = Client::Create(daemon_->address());
    for (const pid_t child : Children()) kill(child, SIGKILL);
    v1::TuneRequest request = Request(AddKernel(64), 1);
    request.set_mode(v1::TUNE_MODE_REFRESH);
    EXPECT_TRUE(client_->Tune(request, [](const v1::TuneEvent&) { return true; }).ok()) << binary;
    daemon_.reset();
  }
}

TEST_F(DaemonStorm, ABinaryThatIsReplacedWhileItRunsStartsChildrenOfItsOwn) {
  const std::string binary = directory_ + "/beamd";
  std::filesystem::copy_file("server/beamd", binary);
  std::filesystem::create_symlink(binary, directory_ + "/link");
  daemon_ = std::make_unique<Daemon>(directory_ + "/link", directory_ + "/store");
  client_ = Client::Create(daemon_->address());
  std::filesystem::remove(binary);
  std::filesystem::copy_file("/bin/true", binary);
  for (const pid_t child : Children()) kill(child, SIGKILL);
  EXPECT_TRUE(
      client_->Tune(Request(AddKernel(64), 1), [](const v1::TuneEvent&) { return true; }).ok());
}

}  // namespace
}  // namespace beamd

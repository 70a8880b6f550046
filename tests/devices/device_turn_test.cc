#include "devices/device_turn.h"

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(DeviceTurn, IsOneProcessesAtATimeAndComesBackFromTheDead) {
  const std::unique_ptr<DeviceTurn> turn = DeviceTurn::Create().value();
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::unique_ptr<DeviceTurn> theirs = DeviceTurn::Open(dup(turn->file())).value();
    theirs->Take();
    char byte = 'x';
    if (write(told[1], &byte, 1) == 1) pause();  // holds it until it is killed
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  EXPECT_FALSE(turn->TryTake());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  turn->Take();
  turn->Give();
  EXPECT_TRUE(turn->TryTake());
  turn->Give();
  close(told[0]);
  close(told[1]);
}

// As the one that limits a process' time sees it.
TEST(DeviceTurn, TellsHowLongAProcessWaits) {
  const std::unique_ptr<DeviceTurn> turn = DeviceTurn::Create().value();
  const std::unique_ptr<RunPage> page = RunPage::Create().value();
  turn->Take();
  const pid_t child = fork();
  if (child == 0) {
    const std::unique_ptr<DeviceTurn> theirs = DeviceTurn::Open(dup(turn->file())).value();
    const std::unique_ptr<RunPage> mine = RunPage::Open(dup(page->file())).value();
    theirs->set_page(mine.get());
    theirs->Take();
    absl::SleepFor(absl::Milliseconds(500));  // which is no waiting
    theirs->Give();
    theirs->Take();  // nor is this
    _exit(0);
  }
  const absl::Time start = absl::Now();
  while (page->Waited() < absl::Milliseconds(200) && absl::Now() < start + absl::Seconds(20)) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GE(page->Waited(), absl::Milliseconds(200));
  turn->Give();
  waitpid(child, nullptr, 0);
  const absl::Duration total = page->Waited();
  EXPECT_GE(total, absl::Milliseconds(200));
  EXPECT_LT(total, absl::Now() - start - absl::Milliseconds(400));
  // Whoever comes after one that was ended while it waited doesn't wait yet.
  page->BeginWait();
  const std::unique_ptr<RunPage> next = RunPage::Open(dup(page->file())).value();
  EXPECT_EQ(page->Waited(), total);
}

// Those of one group stand before the device one at a time, however many they are.
TEST(DeviceTurn, AGroupHasOnePlaceInTheQueue) {
  const std::unique_ptr<DeviceTurn> device = DeviceTurn::Create().value();
  const std::unique_ptr<DeviceTurn> group = DeviceTurn::Create().value();
  std::mutex mutex;
  std::vector<std::string> order;
  std::vector<std::thread> threads;
  const auto come = [&](const std::string& name, bool grouped) {
    const std::unique_ptr<RunPage> page = RunPage::Create().value();
    threads.emplace_back([&, name, grouped, file = dup(page->file())] {
      const std::unique_ptr<RunPage> mine = RunPage::Open(file).value();
      const std::unique_ptr<DeviceTurn> turn = DeviceTurn::Open(dup(device->file())).value();
      const std::unique_ptr<DeviceTurn> first = DeviceTurn::Open(dup(group->file())).value();
      turn->set_page(mine.get());
      if (grouped) turn->set_group(first.get());
      turn->Take();
      {
        const std::lock_guard lock(mutex);
        order.push_back(name);
      }
      turn->Give();
    });
    // It is in the kernel's queue some time after it began to wait.
    while (page->Waited() < absl::Milliseconds(100)) absl::SleepFor(absl::Milliseconds(5));
  };
  device->Take();
  come("first of many", true);
  come("second of many", true);
  come("third of many", true);
  come("one", false);
  device->Give();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order,
              ::testing::ElementsAre("first of many", "one", "second of many", "third of many"));
  // What was given back is free, both of it.
  device->set_group(group.get());
  EXPECT_TRUE(device->TryTake());
  device->Give();
}

TEST(DeviceTurn, TheGroupIsFreeWhereTheDeviceIsNot) {
  const std::unique_ptr<DeviceTurn> group = DeviceTurn::Create().value();
  const std::unique_ptr<DeviceTurn> device = DeviceTurn::Create().value();
  const std::unique_ptr<DeviceTurn> same = DeviceTurn::Open(dup(device->file())).value();
  same->set_group(group.get());
  device->Take();
  std::thread([&] { EXPECT_FALSE(same->TryTake()); }).join();
  EXPECT_TRUE(group->TryTake());
  group->Give();
  device->Give();
}

TEST(RunPage, TellsWhichRunIsToStop) {
  const std::unique_ptr<RunPage> page = RunPage::Create().value();
  const std::unique_ptr<RunPage> theirs = RunPage::Open(dup(page->file())).value();
  EXPECT_FALSE(theirs->IsStopped(7));
  page->Stop(7);
  EXPECT_TRUE(theirs->IsStopped(7));
  EXPECT_FALSE(theirs->IsStopped(8));
}

TEST(DeviceTurn, OtherMemoryIsNone) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_FALSE(DeviceTurn::Open(pipes[0]).ok());
  close(pipes[1]);
}

}  // namespace
}  // namespace beamd

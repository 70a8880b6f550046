#include "devices/device_turn.h"

#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "absl/time/clock.h"
#include "absl/time/time.h"
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
  const std::unique_ptr<TurnWaits> waits = TurnWaits::Create().value();
  turn->Take();
  const pid_t child = fork();
  if (child == 0) {
    const std::unique_ptr<DeviceTurn> theirs = DeviceTurn::Open(dup(turn->file())).value();
    const std::unique_ptr<TurnWaits> mine = TurnWaits::Open(dup(waits->file())).value();
    theirs->set_waits(mine.get());
    theirs->Take();
    absl::SleepFor(absl::Milliseconds(500));  // which is no waiting
    theirs->Give();
    theirs->Take();  // nor is this
    _exit(0);
  }
  const absl::Time start = absl::Now();
  while (waits->Total() < absl::Milliseconds(200) && absl::Now() < start + absl::Seconds(20)) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GE(waits->Total(), absl::Milliseconds(200));
  turn->Give();
  waitpid(child, nullptr, 0);
  const absl::Duration total = waits->Total();
  EXPECT_GE(total, absl::Milliseconds(200));
  EXPECT_LT(total, absl::Now() - start - absl::Milliseconds(400));
  // Whoever comes after one that was ended while it waited doesn't wait yet.
  waits->Begin();
  const std::unique_ptr<TurnWaits> next = TurnWaits::Open(dup(waits->file())).value();
  EXPECT_EQ(waits->Total(), total);
}

TEST(DeviceTurn, OtherMemoryIsNone) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_FALSE(DeviceTurn::Open(pipes[0]).ok());
  close(pipes[1]);
}

}  // namespace
}  // namespace beamd

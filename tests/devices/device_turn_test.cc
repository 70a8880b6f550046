#include "devices/device_turn.h"

#include <sys/wait.h>
#include <unistd.h>

#include <memory>

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

TEST(DeviceTurn, OtherMemoryIsNone) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_FALSE(DeviceTurn::Open(pipes[0]).ok());
  close(pipes[1]);
}

}  // namespace
}  // namespace beamd

#include "server/services/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(Executor, RunsInOrderOnOneThread) {
  std::string order;
  {
    Executor executor(1);
    for (const char letter : {'a', 'b', 'c'}) executor.Post([&order, letter] { order += letter; });
  }
  EXPECT_EQ(order, "abc");
}

TEST(Executor, WaitsBeforeWhatIsPostedForLater) {
  Executor executor(1);
  const absl::Time posted = SteadyNow();
  std::promise<absl::Time> later, now;
  executor.PostAfter(absl::Milliseconds(30), [&] { later.set_value(SteadyNow()); });
  executor.Post([&] { now.set_value(SteadyNow()); });
  const absl::Time at = later.get_future().get();
  EXPECT_GE(at - posted, absl::Milliseconds(30));
  EXPECT_LT(now.get_future().get(), at);
}

TEST(Executor, TheSoonerFirst) {
  std::promise<void> done;
  std::string order;
  Executor executor(1);
  executor.PostAfter(absl::Milliseconds(40), [&] {
    order += 'b';
    done.set_value();
  });
  executor.PostAfter(absl::Milliseconds(20), [&] { order += 'a'; });
  done.get_future().wait();
  EXPECT_EQ(order, "ab");
}

// A thread that works doesn't keep the others from waking in time.
TEST(Executor, AnotherThreadTakesWhatIsDue) {
  std::promise<void> due, first;
  Executor executor(2);
  executor.PostAfter(absl::Milliseconds(10), [&] { due.set_value(); });
  executor.Post([&] {
    due.get_future().wait();
    first.set_value();
  });
  first.get_future().wait();
}

TEST(Executor, QueuesTakeTurns) {
  std::string order;
  {
    std::promise<void> posted;
    Executor executor(1);
    executor.Post([&] { posted.get_future().wait(); });
    for (int i = 0; i < 4; ++i) executor.Post("much", [&] { order += 'm'; });
    executor.Post("little", [&] { order += 'l'; });
    executor.Post([&] { order += 'n'; });
    posted.set_value();
  }
  EXPECT_EQ(order, "mlnmmm");
}

TEST(Executor, WhatPostsTheRestOfItselfLetsOthersPass) {
  std::string order;
  {
    std::promise<void> posted;
    std::function<void()> slice;
    Executor executor(1);
    slice = [&] {
      order += 's';
      if (order.size() < 5) executor.Post("long", slice);
    };
    executor.Post([&] { posted.get_future().wait(); });
    executor.Post("long", slice);
    executor.Post("long", [&] { order += 'l'; });
    executor.Post("other", [&] { order += 'o'; });
    posted.set_value();
  }
  EXPECT_EQ(order, "solss");
}

TEST(Executor, IsNotStalledWhileALongQueueMoves) {
  Executor executor(1);
  const absl::Time began = SteadyNow();
  std::promise<void> done;
  for (int i = 0; i < 40; ++i) {
    executor.Post([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  }
  executor.Post([&] { done.set_value(); });
  absl::Duration most;
  const std::future<void> end = done.get_future();
  while (end.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    most = std::max(most, executor.Stalled());
  }
  // Who came last waited for all of them.
  EXPECT_GE(SteadyNow() - began, absl::Milliseconds(400));
  EXPECT_LT(most, absl::Milliseconds(300));
}

TEST(Executor, IsStalledWhileWorkWaitsForOneThatDoesNotEnd) {
  std::promise<void> begun, free;
  Executor executor(1);
  EXPECT_EQ(executor.Stalled(), absl::ZeroDuration());
  executor.Post([&] {
    begun.set_value();
    free.get_future().wait();
  });
  begun.get_future().wait();
  // Nothing waits for it.
  EXPECT_EQ(executor.Stalled(), absl::ZeroDuration());
  std::promise<void> done;
  executor.Post("another", [&] { done.set_value(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  executor.Post("a third", [] {});
  EXPECT_GE(executor.Stalled(), absl::Milliseconds(50));
  free.set_value();
  done.get_future().wait();
}

TEST(Executor, RunsAllBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    Executor executor(2);
    for (int i = 0; i < 5; ++i) executor.PostAfter(absl::Hours(1), [&] { ++ran; });
  }
  EXPECT_EQ(ran.load(), 5);
}

}  // namespace
}  // namespace beamd

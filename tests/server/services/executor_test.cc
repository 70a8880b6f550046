#include "server/services/executor.h"

#include <atomic>
#include <future>

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

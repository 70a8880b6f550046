#include "engine/base/counters.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

TEST(Counters, AddUp) {
  Counters counters;
  counters.AddKernels(1, 10, 100, absl::Microseconds(3));
  counters.AddKernels(2, 5, 50, absl::ZeroDuration());
  const Counts counts = counters.Get();
  EXPECT_EQ(counts.kernels, 3);
  EXPECT_EQ(counts.ops, 15);
  EXPECT_EQ(counts.bytes, 150);
  EXPECT_EQ(counts.time, absl::Microseconds(3));
}

TEST(Counters, ResetKeepsTheMemoryThatIsHeld) {
  Counters counters;
  counters.AddKernels(1, 10, 100, absl::Microseconds(3));
  counters.AddMemory(64);
  counters.AddMemory(100);
  counters.AddMemory(-100);
  EXPECT_EQ(counters.Get().memory_bytes, 64);
  EXPECT_EQ(counters.Get().peak_memory_bytes, 164);
  counters.Reset();
  const Counts counts = counters.Get();
  EXPECT_EQ(counts.kernels, 0);
  EXPECT_EQ(counts.ops, 0);
  EXPECT_EQ(counts.time, absl::ZeroDuration());
  EXPECT_EQ(counts.memory_bytes, 64);
  EXPECT_EQ(counts.peak_memory_bytes, 64);
}

TEST(Counters, TakeManyThreads) {
  Counters counters;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counters] {
      for (int i = 0; i < 1000; ++i) counters.AddKernels(1, 2, 3, absl::Nanoseconds(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.Get().kernels, 4000);
  EXPECT_EQ(counters.Get().ops, 8000);
}

}  // namespace
}  // namespace beamd

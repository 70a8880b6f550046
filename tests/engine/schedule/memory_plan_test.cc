#include "engine/schedule/memory_plan.h"

#include "engine/base/option.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

class MemoryPlanTest : public testing::Test {
 protected:
  LazyBuffer Empty(const Shape& shape) {
    return LazyBuffer::Empty(context_, shape, Scalar::kFloat32, "cpu:0");
  }
  // `count` kernels in a row, each reading the one before.
  LazyBuffer Chain(LazyBuffer x, int count) {
    for (int i = 0; i < count; ++i) x = x.Alu(Op::kSqrt).Alu(Op::kContiguous);
    return x;
  }

  LazyContext context_;
};

TEST_F(MemoryPlanTest, AChainNeedsTwoBuffers) {
  const Schedule s = *CreateSchedule(std::vector<LazyBuffer>{Chain(Empty({1024}), 10)});
  ASSERT_EQ(s.kernel_count(), 10);
  const MemoryPlan plan = PlanMemory(s);
  EXPECT_EQ(plan.unshared_bytes, 9 * 4096);
  EXPECT_EQ(plan.lower_bound_bytes, 2 * 4096);
  EXPECT_EQ(plan.peak_bytes, 2 * 4096);
  ASSERT_EQ(plan.arenas.size(), 1u);
}

TEST_F(MemoryPlanTest, BuffersThatLiveAtOnceDoNotOverlap) {
  LazyBuffer sum;
  for (int i = 1; i <= 6; ++i) {
    const LazyBuffer part = Chain(Empty({64 * i}), i % 3 + 1);
    const int axis = 0;
    const LazyBuffer folded = part.Reduce(Op::kAdd, {&axis, 1});
    sum = sum ? sum + folded : folded;
  }
  const Schedule s = *CreateSchedule(std::vector<LazyBuffer>{sum});
  const MemoryPlan plan = PlanMemory(s);
  EXPECT_LE(static_cast<double>(plan.peak_bytes),
            1.1 * static_cast<double>(plan.lower_bound_bytes));
  const auto alive = [&](const TensorBuffer* b, size_t at) {
    size_t first = s.items.size();
    size_t last = 0;
    for (size_t i = 0; i < s.items.size(); ++i) {
      for (const auto& buffer : s.items[i].buffers) {
        if (buffer.get() != b) continue;
        first = std::min(first, i);
        last = std::max(last, i);
      }
    }
    return first <= at && at <= last;
  };
  for (size_t at = 0; at < s.items.size(); ++at) {
    for (const auto& [a, place_a] : plan.places) {
      for (const auto& [b, place_b] : plan.places) {
        if (a == b || !alive(a, at) || !alive(b, at)) continue;
        EXPECT_TRUE(place_a.offset_bytes + a->size_bytes() <= place_b.offset_bytes ||
                    place_b.offset_bytes + b->size_bytes() <= place_a.offset_bytes);
      }
    }
  }
}

TEST_F(MemoryPlanTest, WhatIsHeldOutsideKeepsItsMemory) {
  const LazyBuffer kept = Chain(Empty({1024}), 1);
  const LazyBuffer last = Chain(kept, 3);
  const Schedule s = *CreateSchedule(std::vector<LazyBuffer>{last});
  const MemoryPlan plan = PlanMemory(s);
  EXPECT_FALSE(plan.places.contains(kept.buffer().get()));
  EXPECT_EQ(plan.places.size(), 2u);
}

TEST_F(MemoryPlanTest, NoMemoryPlannerPlansNothing) {
  ScopedOption off(options::kNoMemoryPlanner, 1);
  const Schedule s = *CreateSchedule(std::vector<LazyBuffer>{Chain(Empty({1024}), 4)});
  EXPECT_TRUE(PlanMemory(s).places.empty());
}

}  // namespace
}  // namespace beamd

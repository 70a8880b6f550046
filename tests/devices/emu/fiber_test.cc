#include "devices/emu/fiber.h"

#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace beamd {
namespace {

struct Counter {
  Fibers* fibers;
  std::vector<int>* order;
  int index;
  double sum = 0;
};

void CountToThree(void* argument) {
  auto& self = *static_cast<Counter*>(argument);
  double kept = self.index + 0.5;  // in a register that a switch must keep
  for (int i = 0; i < 3; ++i) {
    self.order->push_back(self.index);
    self.fibers->Yield();
    kept += 1;
  }
  self.sum = kept;
}

TEST(Fibers, TakeTurnsAndKeepTheirVariables) {
  const auto fibers = Fibers::Create(200);
  ASSERT_TRUE(fibers.ok()) << fibers.status();
  std::vector<int> order;
  std::vector<Counter> counters;
  for (int i = 0; i < 200; ++i) counters.push_back({fibers->get(), &order, i});
  for (int i = 0; i < 200; ++i) (*fibers)->Start(i, &CountToThree, &counters[i]);
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < 200; ++i) (*fibers)->Resume(i);
  }
  ASSERT_EQ(order.size(), 600);
  for (int i = 0; i < 600; ++i) EXPECT_EQ(order[i], i % 200);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(counters[i].sum, i + 3.5);
}

TEST(Fibers, CanBeStartedAnewHalfWay) {
  const auto fibers = Fibers::Create(1);
  ASSERT_TRUE(fibers.ok()) << fibers.status();
  std::vector<int> order;
  Counter counter{fibers->get(), &order, 7};
  for (int i = 0; i < 100; ++i) {
    (*fibers)->Start(0, &CountToThree, &counter);
    (*fibers)->Resume(0);
    (*fibers)->Resume(0);
  }
  EXPECT_EQ(order.size(), 200);
  EXPECT_EQ(counter.sum, 0);
}

TEST(Fibers, RunInsideEachOther) {
  const auto outer = Fibers::Create(1), inner = Fibers::Create(1);
  ASSERT_TRUE(outer.ok() && inner.ok());
  struct Pair {
    Fibers *outer, *inner;
    std::vector<int> order;
  } pair{outer->get(), inner->get(), {}};
  (*outer)->Start(
      0,
      [](void* argument) {
        auto& p = *static_cast<Pair*>(argument);
        p.inner->Start(
            0,
            [](void* a) {
              auto& q = *static_cast<Pair*>(a);
              q.order.push_back(2);
              q.inner->Yield();
              q.order.push_back(4);
            },
            argument);
        p.order.push_back(1);
        p.inner->Resume(0);
        p.order.push_back(3);
        p.outer->Yield();
        p.inner->Resume(0);
      },
      &pair);
  (*outer)->Resume(0);
  (*outer)->Resume(0);
  EXPECT_EQ(pair.order, std::vector<int>({1, 2, 3, 4}));
}

}  // namespace
}  // namespace beamd

#include "engine/kernel/cost.h"

#include "gtest/gtest.h"
#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::kElementwise;
using ::beamd::testing::kMatmul;
using ::beamd::testing::Parsed;

TEST(CostOf, CountsWorkAndMemoryOnce) {
  UOpGraph graph;
  const KernelCost matmul = CostOf(Parsed(kMatmul, graph));
  EXPECT_EQ(matmul.operations, 2.0 * 64 * 64 * 96);
  EXPECT_EQ(matmul.bytes, 4.0 * (64 * 64 + 64 * 96 + 96 * 64));
  const KernelCost twice = CostOf(Parsed(kElementwise, graph));
  EXPECT_EQ(twice.operations, 60);
  EXPECT_EQ(twice.bytes, 4.0 * (60 + 60));
}

TEST(CostOf, TakesTheLargestValueOfAVariable) {
  UOpGraph graph;
  const KernelCost cost = CostOf(Parsed(R"(%0 = DEFINE_GLOBAL global int8* slot 0
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = VIEW void (%1) view[shape ($0) strides (1) offset 0]
%3 = LOAD int8 (%0, %2)
%4 = NEG int8 (%3)
%5 = STORE void (%0, %2, %4)
%6 = SINK void (%5))",
                                        graph));
  EXPECT_EQ(cost.operations, 8);
  EXPECT_EQ(cost.bytes, 16);
}

TEST(CostOf, CountsARowOfMany) {
  UOpGraph graph;
  const KernelCost cost = CostOf(Parsed(R"(%0 = DEFINE_GLOBAL global int8* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = DEFINE_GLOBAL global int8* slot 1
%3 = VIEW void view[shape (4) strides (1) offset 96]
%4 = LOAD int8 (%2, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5))",
                                        graph));
  EXPECT_EQ(cost.operations, 0);
  EXPECT_EQ(cost.bytes, 8);
}

}  // namespace
}  // namespace beamd

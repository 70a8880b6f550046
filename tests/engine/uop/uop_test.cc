#include "engine/uop/uop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace beamd {
namespace {

using ::testing::ElementsAre;

constexpr DType kF32 = Scalar::kFloat32;
constexpr DType kI32 = Scalar::kInt32;

TEST(UOpGraph, OneNodeForOneStructure) {
  UOpGraph graph;
  const UOp x = graph.Variable("x", 0, 9);
  EXPECT_EQ(graph.Variable("x", 0, 9), x);
  EXPECT_NE(graph.Variable("x", 0, 8), x);
  EXPECT_EQ(x + 1, x + 1);
  EXPECT_NE(x + 1, x + 2);
  EXPECT_NE(x + x * 2, x * 2 + x);  // order of sources is structure
  EXPECT_NE(Cast(x, Scalar::kInt64), Cast(x, Scalar::kInt16));
}

TEST(UOpGraph, InternsArgumentsByContent) {
  UOpGraph graph;
  const Arg a = graph.Intern(ReduceArg{Op::kAdd, {0, 1}});
  EXPECT_EQ(graph.Intern(ReduceArg{Op::kAdd, {0, 1}}), a);
  EXPECT_NE(graph.Intern(ReduceArg{Op::kMax, {0, 1}}), a);
  EXPECT_NE(graph.Intern(LanesArg{{0, 1}}), graph.Intern(LanesArg{{1, 0}}));
  // The same numbers as another kind of argument.
  EXPECT_NE(graph.Intern(IntsArg{}), graph.Intern(LanesArg{}));
}

TEST(UOpGraph, GrowsWithoutLosingNodes) {
  UOpGraph graph;
  const UOp x = graph.Variable("x", 0, 9);
  std::vector<UOp> sums;
  sums.reserve(5000);
  for (int i = 0; i < 5000; ++i) sums.push_back(x + i);
  const size_t size = graph.size();
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(x + i, sums[i]);
  EXPECT_EQ(graph.size(), size);
}

TEST(UOpGraph, KeepsNaNOneAndZerosApart) {
  UOpGraph graph;
  const double other_nan = std::bit_cast<double>(uint64_t{0xFFF8000000001234});
  EXPECT_EQ(graph.ConstFloat(kF32, std::nan("")), graph.ConstFloat(kF32, other_nan));
  EXPECT_NE(graph.ConstFloat(kF32, 0.0), graph.ConstFloat(kF32, -0.0));
}

TEST(Const, WrapsIntegersAndConverts) {
  UOpGraph graph;
  EXPECT_EQ(graph.Const(Scalar::kInt8, 200).int_value(), -56);
  EXPECT_EQ(graph.Const(Scalar::kUint64, -1).int_value(), -1);
  EXPECT_EQ(graph.Const(Scalar::kBool, 7), graph.Bool(true));
  EXPECT_EQ(graph.Const(kF32, 16777217).float_value(), 16777216.0);
}

TEST(ConstFloat, SaturatesInIntegers) {
  UOpGraph graph;
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(graph.ConstFloat(kI32, 3e9).int_value(), INT32_MAX);
  EXPECT_EQ(graph.ConstFloat(kI32, -inf).int_value(), INT32_MIN);
  EXPECT_EQ(graph.ConstFloat(kI32, -2.9).int_value(), -2);
  EXPECT_EQ(graph.ConstFloat(kI32, std::nan("")).int_value(), 0);
  EXPECT_EQ(graph.ConstFloat(Scalar::kInt64, 1e30).int_value(), INT64_MAX);
  EXPECT_EQ(graph.ConstFloat(Scalar::kUint8, -1).int_value(), 0);
  EXPECT_EQ(graph.ConstFloat(Scalar::kUint64, 1e30).int_value(), -1);
  EXPECT_EQ(graph.ConstFloat(Scalar::kUint64, 0x1p63).int_value(), INT64_MIN);
  EXPECT_EQ(graph.ConstFloat(Scalar::kBool, std::nan("")), graph.Bool(true));
}

TEST(Import, CopiesTheStructure) {
  UOpGraph from, to;
  const UOp x = from.Variable("x", 0, 9);
  const UOp u = (x + 1) * (x + 1);
  const UOp copy = to.Import(u);
  EXPECT_EQ(&copy.graph(), &to);
  EXPECT_EQ(copy.hash(), u.hash());
  const UOp y = to.Variable("x", 0, 9);
  EXPECT_EQ(copy, (y + 1) * (y + 1));
  EXPECT_EQ(to.Import(copy), copy);
}

TEST(Import, OutlivesItsOrigin) {
  UOpGraph to;
  UOp copy;
  {
    UOpGraph from;
    copy = to.Import(from.Variable("a_name_too_long_for_the_small_string", 0, 9));
  }
  EXPECT_EQ(copy.data<VariableArg>().name, "a_name_too_long_for_the_small_string");
}

TEST(Toposort, SourcesComeFirstEachOnce) {
  UOpGraph graph;
  const UOp x = graph.Variable("x", 0, 9);
  const UOp one = graph.Const(kI32, 1);
  const UOp sum = x + one;
  const UOp u = sum * sum;
  EXPECT_THAT(Toposort(u), ElementsAre(x, one, sum, u));
}

TEST(Toposort, WalksAGraphOfAnyDepth) {
  UOpGraph graph;
  UOp u = graph.Variable("x", 0, 9);
  for (int i = 0; i < 300000; ++i) u = Alu(Op::kNeg, u);
  EXPECT_EQ(Toposort(u).size(), 300001u);
}

TEST(Substitute, ReplacesEverywhereAndKeepsTheRest) {
  UOpGraph graph;
  const UOp x = graph.Variable("x", 0, 9), y = graph.Variable("y", 0, 9);
  const UOp kept = y * 3;
  const UOp u = (x + 1) * kept + x;
  const UOp nodes[] = {x}, by[] = {y};
  EXPECT_EQ(Substitute(u, nodes, by), (y + 1) * kept + y);
  EXPECT_EQ(Substitute(kept, nodes, by), kept);
}

TEST(Substitute, DoesNotLookIntoReplacements) {
  UOpGraph graph;
  const UOp x = graph.Variable("x", 0, 9);
  const UOp nodes[] = {x}, by[] = {x + 1};
  EXPECT_EQ(Substitute(x * 2, nodes, by), (x + 1) * 2);
}

TEST(OpSet, HoldsWhatItIsMadeOf) {
  constexpr OpSet set = Op::kAdd | Op::kWmma;
  EXPECT_TRUE(set.Has(Op::kAdd));
  EXPECT_TRUE(set.Has(Op::kWmma));
  EXPECT_FALSE(set.Has(Op::kMul));
  EXPECT_TRUE(set.Covers(Op::kAdd));
  EXPECT_FALSE(OpSet(Op::kAdd).Covers(set));
  EXPECT_TRUE(OpSet(Op::kWmma).IsSingle());
  EXPECT_FALSE(set.IsSingle());
  EXPECT_TRUE((OpSet(Op::kAdd) & OpSet(Op::kMul)).Empty());
}

TEST(Op, NamesGoBothWays) {
  for (int i = 1; i < kOpCount; ++i) {
    EXPECT_EQ(OpFromName(Name(static_cast<Op>(i))), static_cast<Op>(i));
  }
  EXPECT_EQ(OpFromName("UNSPECIFIED"), std::nullopt);
  EXPECT_EQ(OpFromName("add"), std::nullopt);
}

TEST(StableKey, IsTheSameInEveryGraph) {
  UOpGraph a, b;
  b.Variable("something_before", 0, 1);
  const auto make = [](UOpGraph& graph) { return graph.Variable("x", 0, 9) * 4 + 1; };
  EXPECT_EQ(StableKey(make(a)), StableKey(make(b)));
}

}  // namespace
}  // namespace beamd

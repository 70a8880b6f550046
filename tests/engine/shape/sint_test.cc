#include "engine/shape/sint.h"

#include <array>
#include <limits>

#include "gtest/gtest.h"

namespace beamd {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(SInt, NumbersFoldWithoutAGraph) {
  EXPECT_EQ(SInt(6) * 7 - 2, SInt(40));
  EXPECT_EQ(Max(3, 5), SInt(5));
  EXPECT_EQ(Min(3, 5), SInt(3));
  EXPECT_EQ(Prod(std::array<SInt, 3>{2, 3, 4}), SInt(24));
}

TEST(SInt, DivisionTruncatesAndNeverTraps) {
  EXPECT_EQ(SInt(-7) / 2, SInt(-3));
  EXPECT_EQ(SInt(-7) % 2, SInt(-1));
  EXPECT_EQ(SInt(7) / 0, SInt(0));
  EXPECT_EQ(SInt(7) % 0, SInt(0));
  EXPECT_EQ(SInt(kMin) / -1, SInt(kMin));
  EXPECT_EQ(SInt(kMin) % -1, SInt(0));
}

TEST(SInt, ExpressionsAreInt64WhateverTheNodesWere) {
  UOpGraph graph;
  const UOp narrow = graph.Variable("n", 1, 10);
  const SInt n(narrow);
  EXPECT_EQ(n.expr(), graph.Variable("n", 1, 10, Scalar::kInt64));
  EXPECT_EQ(SInt(narrow + 1), n + 1);
}

TEST(SInt, ConstantExpressionsBecomeNumbers) {
  UOpGraph graph;
  const SInt n(graph.Variable("n", 1, 10));
  EXPECT_EQ(SInt(graph.Const(Scalar::kInt32, 3) * 4), SInt(12));
  EXPECT_EQ(n * 2 - n - n, SInt(0));
  EXPECT_EQ(n * 0, SInt(0));
  EXPECT_EQ(n * 6 / 6, n);
}

TEST(SInt, BoundsCoverAllValuesOfTheVariables) {
  UOpGraph graph;
  const SInt n(graph.Variable("n", 2, 10));
  EXPECT_EQ((n * 3 + 1).min(), 7);
  EXPECT_EQ((n * 3 + 1).max(), 31);
  EXPECT_EQ(SInt(5).min(), 5);
}

TEST(SInt, ComparesWhereEveryValueAgrees) {
  UOpGraph graph;
  const SInt n(graph.Variable("n", 2, 10));
  EXPECT_TRUE(ProvenLt(n, n + 1));
  EXPECT_TRUE(ProvenLe(n, 10));
  EXPECT_FALSE(ProvenLt(n, 10));
  EXPECT_FALSE(ProvenLe(10, n));
  EXPECT_TRUE(ProvenEq(n * 2, n + n));
  EXPECT_FALSE(ProvenEq(n, 5));
  EXPECT_TRUE(ProvenNe(n, 11));
  EXPECT_FALSE(ProvenNe(n, 5));
}

TEST(SInt, MaxAndMinKeepAnExpressionOnlyWhereUndecided) {
  UOpGraph graph;
  const SInt n(graph.Variable("n", 2, 10));
  EXPECT_EQ(Max(n, 1), n);
  EXPECT_EQ(Min(n, 1), SInt(1));
  EXPECT_EQ(Max(n, 5).min(), 5);
  EXPECT_EQ(Min(n, 5).max(), 5);
}

TEST(SInt, MovesBetweenGraphs) {
  UOpGraph graph, other;
  const SInt n(graph.Variable("n", 2, 10));
  EXPECT_EQ(n.ToUOp(other), other.Variable("n", 2, 10, Scalar::kInt64));
  EXPECT_EQ(SInt(7).ToUOp(other), other.Const(Scalar::kInt64, 7));
}

TEST(SInt, PrintsAsAlgebra) {
  UOpGraph graph;
  EXPECT_EQ(ToString(SInt(-3)), "-3");
  EXPECT_EQ(ToString(SInt(graph.Variable("start_pos", 1, 10)) + 1), "(start_pos+1)");
}

}  // namespace
}  // namespace beamd

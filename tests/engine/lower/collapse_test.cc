#include "engine/lower/collapse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/symbolic/symbolic.h"
#include "engine/uop/text.h"
#include "tests/engine/lower/lowered.h"
#include "tests/testing/infix.h"

namespace beamd {
namespace {

using ::beamd::testing::Lowered;
using ::beamd::testing::TextOf;

UOp Loop(UOpGraph& g, UOp extent, int axis = 1, int stage = 1,
         RangeArg::Kind kind = RangeArg::Kind::kReduce) {
  return g.Make(Op::kRange, Scalar::kInt64, {extent}, g.Intern(RangeArg{kind, axis, stage}));
}

UOp Reduced(Op op, UOp value, std::vector<UOp> ranges) {
  ranges.insert(ranges.begin(), value);
  return value.graph().Make(Op::kReduce, value.dtype(), ranges,
                            value.graph().Intern(ReduceArg{op, {}}));
}

bool HasLoop(UOp u) {
  const std::vector<UOp> nodes = Toposort(u);
  return std::any_of(nodes.begin(), nodes.end(), [](UOp n) { return n.is(Op::kReduce); });
}

TEST(CollapseLoops, CountsAsManyTermsAsTheLoopWouldAdd) {
  std::mt19937 random(3);
  const auto pick = [&](int lo, int hi) { return lo + static_cast<int>(random() % (hi - lo + 1)); };
  for (int trial = 0; trial < 1500; ++trial) {
    UOpGraph g;
    const UOp a = g.Variable("a", -9, 9, Scalar::kInt64), b = g.Variable("b", 0, 7, Scalar::kInt64);
    const UOp n = g.Variable("n", 0, 9, Scalar::kInt64);
    const UOp extent = trial % 3 == 0 ? n : g.Const(Scalar::kInt64, pick(1, 9));
    const UOp r = Loop(g, extent);
    UOp condition;
    for (int clauses = pick(1, 3); clauses > 0; --clauses) {
      const UOp left = r * pick(-4, 4) + a * pick(-2, 2) + b * pick(-3, 3) + pick(-9, 9);
      UOp clause = left < b * pick(-1, 1) + pick(-12, 12);
      if (pick(0, 1) == 1) clause = Not(clause);
      condition = condition ? condition & clause : clause;
    }
    const Scalar scalar = trial % 2 == 0 ? Scalar::kInt8 : Scalar::kInt64;
    const UOp then = Cast(a * 50 + 3, scalar), otherwise = Cast(b * pick(0, 1), scalar);
    const UOp value = Simplify(Where(condition, then, otherwise));
    const UOp summed = CollapseLoops(Reduced(Op::kAdd, value, {r}));
    // A factor that isn't known is no constant, so equal terms stay a loop.
    const std::vector<UOp> nodes = Toposort(value);
    const bool varies = std::find(nodes.begin(), nodes.end(), r) != nodes.end();
    if (!varies && !extent.is_const()) continue;
    ASSERT_FALSE(HasLoop(summed)) << ToInfix(value);
    for (int point = 0; point < 12; ++point) {
      const std::vector<int64_t> at = {pick(-9, 9), pick(0, 7), pick(0, 9)};
      const int64_t turns = EvaluateInt(extent, {a, b, n}, at).value();
      int64_t want = 0;
      for (int64_t i = 0; i < turns; ++i) {
        want += EvaluateInt(value, {a, b, n, r}, {at[0], at[1], at[2], i}).value();
      }
      ASSERT_EQ(EvaluateInt(summed, {a, b, n}, at), WrapInt(want, scalar))
          << ToInfix(value) << " over " << ToInfix(extent) << " at " << at[0] << " " << at[1] << " "
          << at[2] << "\n"
          << ToInfix(summed);
    }
  }
}

TEST(CollapseLoops, AnArangeCostsNoInnerLoop) {
  for (const absl::string_view name : {"Arange", "CountedFloats"}) {
    const Lowered lowered(TextOf(name), {});
    EXPECT_EQ(lowered.All(Op::kRange).size(), 1u) << lowered.Text();
    EXPECT_TRUE(lowered.All(Op::kAcc).empty()) << lowered.Text();
  }
}

TEST(CollapseLoops, EqualTermsAreOneProduct) {
  UOpGraph g;
  const UOp a = g.Variable("a", -9, 9, Scalar::kInt64);
  EXPECT_EQ(ToInfix(CollapseLoops(Reduced(Op::kAdd, a, {Loop(g, a.ConstLike(7))}))), "(a*7)");
}

TEST(CollapseLoops, AProductOrAMaximumIsLeft) {
  UOpGraph g;
  const UOp r = Loop(g, g.Const(Scalar::kInt64, 8));
  const UOp value = Where(r < 3, r.ConstLike(2), r.ConstLike(1));
  for (const Op op : {Op::kMul, Op::kMax}) {
    const UOp reduced = Reduced(op, value, {r});
    EXPECT_EQ(CollapseLoops(reduced), reduced);
  }
}

TEST(CollapseLoops, AValueThatVariesMoreThanByAConditionIsLeft) {
  UOpGraph g;
  const UOp r = Loop(g, g.Const(Scalar::kInt64, 8));
  for (const UOp value :
       {r * 2, Where(r < 3, r, r.ConstLike(0)), Where(r % 3 < 1, r.ConstLike(1), r.ConstLike(0)),
        Where(Ne(r, r.ConstLike(2)), r.ConstLike(1), r.ConstLike(0))}) {
    const UOp reduced = Reduced(Op::kAdd, value, {r});
    EXPECT_EQ(CollapseLoops(reduced), reduced) << ToInfix(value);
  }
}

TEST(CollapseLoops, AnUnrolledAxisIsLeftToExpand) {
  UOpGraph g;
  const UOp r = Loop(g, g.Const(Scalar::kInt64, 8), 1, 1, RangeArg::Kind::kUnroll);
  const UOp reduced = Reduced(Op::kAdd, Where(r < 3, r.ConstLike(2), r.ConstLike(0)), {r});
  EXPECT_EQ(CollapseLoops(reduced), reduced);
}

// What is not selected is not multiplied: NaN times 0 is NaN.
TEST(CollapseLoops, AFloatThatIsNeverSelectedDoesNotMatter) {
  UOpGraph g;
  const UOp a = g.Variable("a", 0, 9, Scalar::kInt64), r = Loop(g, a.ConstLike(8));
  const UOp x = Cast(a, Scalar::kFloat32);
  const UOp summed = CollapseLoops(Reduced(Op::kAdd, Where(r < a, x, x.ConstLike(0)), {r}));
  ASSERT_TRUE(summed.is(Op::kWhere)) << ToInfix(summed);
  EXPECT_EQ(EvaluateInt(summed.src(0), {a}, {0}), 0);
  EXPECT_EQ(EvaluateInt(summed.src(0), {a}, {1}), 1);
  EXPECT_TRUE(summed.src(2).is_const());
  // Two floats to choose from would have to be added.
  const UOp either = Reduced(Op::kAdd, Where(r < a, x, x.ConstLike(1)), {r});
  EXPECT_EQ(CollapseLoops(either), either);
}

TEST(CollapseLoops, NoTermsOfAnInfinityAreNoProductWithIt) {
  UOpGraph g;
  const UOp x = Cast(g.Variable("a", 0, 9, Scalar::kInt64), Scalar::kFloat32);
  const UOp reduced = Reduced(Op::kAdd, x, {Loop(g, g.Const(Scalar::kInt64, 0))});
  EXPECT_EQ(CollapseLoops(reduced), reduced);
}

TEST(CollapseLoops, MoreTermsThanAFloat16CountsStayALoop) {
  UOpGraph g;
  const auto sum_of = [&](int64_t terms) {
    const UOp x = Cast(g.Variable("a", 0, 9, Scalar::kInt64), Scalar::kFloat16);
    return CollapseLoops(Reduced(Op::kAdd, x, {Loop(g, g.Const(Scalar::kInt64, terms))}));
  };
  EXPECT_FALSE(HasLoop(sum_of(65504)));
  EXPECT_TRUE(HasLoop(sum_of(65505)));
}

TEST(CollapseLoops, OfTwoSumsInOneNestNoneLosesASingleLoop) {
  UOpGraph g;
  const UOp eight = g.Const(Scalar::kInt64, 8);
  const UOp outer = Loop(g, eight, 1), inner = Loop(g, eight, 2);
  const UOp half = Reduced(Op::kAdd, inner * inner, {outer, inner});
  const UOp whole = Reduced(Op::kAdd, outer * inner, {outer, inner});
  EXPECT_EQ(CollapseLoops(half + whole), half + whole);
  // Alone it may, and with all its loops too.
  EXPECT_EQ(ToInfix(CollapseLoops(half)), "REDUCE(((r2*r2)*8),r2)");
  const UOp none = Reduced(Op::kAdd, eight, {outer, inner});
  EXPECT_EQ(CollapseLoops(none + whole), CollapseLoops(none) + whole);
  EXPECT_FALSE(HasLoop(CollapseLoops(none)));
}

}  // namespace
}  // namespace beamd

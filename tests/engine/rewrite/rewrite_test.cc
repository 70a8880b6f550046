#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/rewrite/graph_rewrite.h"
#include "engine/rewrite/pattern.h"
#include "engine/rewrite/rule_table.h"
#include "engine/uop/uop.h"
#include "tests/testing/infix.h"

namespace beamd {
namespace {

using namespace pattern;  // NOLINT: rules speak this language

constexpr Var<"x"> x;
constexpr Var<"y"> y;
constexpr CVar<"c"> c;
constexpr ScalarCVar<"n"> n;
constexpr ScalarCVar<"m"> m;
constexpr Var<"buf"> buf;
constexpr Var<"idx"> idx;
constexpr Var<"cast"> cast;
constexpr Var<"base"> base;

class Rewriting : public testing::Test {
 protected:
  UOp Int(const std::string& name) { return graph_.Variable(name, -9, 9, Scalar::kInt32); }
  UOp Float(double v) { return graph_.ConstFloat(Scalar::kFloat32, v); }

  UOpGraph graph_;
  const UOp a_ = Int("a"), b_ = Int("b");
};

TEST_F(Rewriting, MatchesCommutativeOperandsInBothOrders) {
  const RuleTable rules("t", Rule(x + 0, x));
  EXPECT_EQ(rules.Rewrite(a_ + 0), a_);
  EXPECT_EQ(rules.Rewrite(a_.ConstLike(0) + a_), a_);
  EXPECT_FALSE(rules.Rewrite(a_ * 0));
}

TEST_F(Rewriting, TriesTheNextMatchWhenAFunctionDeclines) {
  int calls = 0;
  const RuleTable rules("t", Rule(x + y, [&](const auto& at) -> UOp {
                          ++calls;
                          return at[x] == b_ ? at[y] : UOp();
                        }));
  EXPECT_EQ(rules.Rewrite(a_ + b_), a_);
  EXPECT_EQ(calls, 2);
}

TEST_F(Rewriting, BacktracksThroughNestedOperands) {
  const RuleTable rules("t", Rule(x * c + y * c, (x + y) * c));
  EXPECT_EQ(rules.Rewrite(a_.ConstLike(3) * a_ + b_ * 3), (a_ + b_) * 3);
  EXPECT_FALSE(rules.Rewrite(a_ * 3 + b_ * 4));
}

TEST_F(Rewriting, NamesInnerNodes) {
  const RuleTable rules("t", Rule((any % y).as(base) % y, base));
  EXPECT_EQ(rules.Rewrite(a_ % b_ % b_), a_ % b_);
  EXPECT_FALSE(rules.Rewrite(a_ % b_ % a_));
}

TEST_F(Rewriting, ChecksGuards) {
  const RuleTable rules("t", Rule(x / n < m, x < m * n).When(Value(n) > 0 && Value(m) > 0));
  EXPECT_EQ(rules.Rewrite(a_ / 4 < 3), a_ < a_.ConstLike(3) * a_.ConstLike(4));
  EXPECT_FALSE(rules.Rewrite(a_ / 4 < -3));
  const RuleTable tested("t",
                         Rule(x + y, x).When(pattern::Test([](UOp u) { return u.is_const(); }, y)));
  EXPECT_FALSE(tested.Rewrite(a_ + b_));
  EXPECT_EQ(tested.Rewrite(a_ + 1), a_);
}

TEST_F(Rewriting, BindsWhatAnArmOfEitherBinds) {
  constexpr auto index = Node<Op::kIndex>(buf, idx);
  const RuleTable rules(
      "t", Rule(NodeThenRest<Op::kLoad>(Either(index, Node<Op::kCast>(index).as(cast))),
                [](const auto& at) { return at.OrNull(cast) ? at[buf] : at[idx]; }));
  const UOp plain = graph_.Make(Op::kIndex, Scalar::kInt32, {a_, b_});
  const UOp casted = graph_.Make(Op::kCast, Scalar::kInt64, {plain});
  EXPECT_EQ(rules.Rewrite(graph_.Make(Op::kLoad, Scalar::kInt32, {plain})), b_);
  EXPECT_EQ(rules.Rewrite(graph_.Make(Op::kLoad, Scalar::kInt32, {casted, b_})), a_);
}

TEST_F(Rewriting, ComparesLiteralsByValueAcrossTypes) {
  const RuleTable one("t", Rule(x * 1, x)), zero("t", Rule(x + 0, x)),
      minus("t", Rule(x + -0.0, x));
  const UOp f = graph_.Make(Op::kSqrt, Scalar::kFloat32, {Float(3)});
  EXPECT_EQ(one.Rewrite(f * Float(1)), f);
  EXPECT_EQ(zero.Rewrite(f + Float(0.0)), f);
  EXPECT_FALSE(zero.Rewrite(f + Float(-0.0)));
  EXPECT_EQ(minus.Rewrite(f + Float(-0.0)), f);
  EXPECT_FALSE(minus.Rewrite(f + Float(0.0)));
  const UOp truth = graph_.Bool(true);
  const RuleTable inverse("t", Rule(pattern::Not(pattern::Not(x)), x));
  EXPECT_EQ(inverse.Rewrite(beamd::Not(beamd::Not(truth))), truth);
}

TEST_F(Rewriting, FiltersByTheScalarOfVectorsAndNeverByPointers) {
  const RuleTable rules("t", Rule(Node<Op::kCast>(any).as(x).of(kFloats),
                                  [](const auto& at) { return at[x].src(0); }));
  EXPECT_EQ(rules.Rewrite(Cast(a_, DType(Scalar::kFloat32, 4))), a_);
  EXPECT_FALSE(rules.Rewrite(Cast(a_, Scalar::kInt64)));
  EXPECT_FALSE(rules.Rewrite(Cast(a_, DType::Pointer(Scalar::kFloat32, AddressSpace::kGlobal))));
}

TEST_F(Rewriting, ReadsOnlyWholeNumbersAsScalarConstants) {
  const RuleTable rules("t", Rule(x * n, x));
  EXPECT_FALSE(rules.Rewrite(Float(2) * Float(3)));
  EXPECT_TRUE(rules.Rewrite(a_ * 3));
}

TEST_F(Rewriting, ChecksEachSource) {
  const RuleTable rules("t", Rule(NodeOfEach<kAlu>(Node<Op::kConst>()).as(x),
                                  [](const auto& at) { return at[x].src(0); }));
  EXPECT_TRUE(rules.Rewrite(a_.ConstLike(1) + a_.ConstLike(2)));
  EXPECT_FALSE(rules.Rewrite(a_ + 2));
}

TEST_F(Rewriting, JoinsTablesInOrder) {
  const RuleTable first("first", Rule(x + y, x)), second("second", Rule(x + y, y), Rule(x * y, y));
  const RuleTable both = first + second;
  EXPECT_EQ(both.Rewrite(a_ + b_), a_);
  EXPECT_EQ(both.Rewrite(a_ * b_), b_);
  EXPECT_EQ(both.name(), "first+second");
  EXPECT_EQ(both.rules().size(), 3U);
}

TEST_F(Rewriting, ReachesTheFixedPointFromTheLeavesUp) {
  const RuleTable rules("t", Rule(x + 0, x), Rule(x * 1, x), Rule(x + x, x * 2));
  const UOp u = (a_ + 0) * 1 + (a_ * 1 + 0);
  EXPECT_EQ(GraphRewrite(u, rules).value(), a_ * 2);
}

TEST_F(Rewriting, SaysWhichTableNeverSettles) {
  const RuleTable spin("spin", Rule(x * 1, x), Rule(x + y, y * 1 + x));
  const absl::Status status = GraphRewrite(a_ + b_, spin, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(status.message(), "\"spin\"")) << status;
}

TEST_F(Rewriting, TakesAnyDepth) {
  UOp deep = a_ + 0;
  for (int i = 0; i < 300'000; ++i) {
    deep = graph_.Make(Op::kCast, i % 2 == 0 ? Scalar::kInt64 : Scalar::kInt32, {deep});
  }
  const RuleTable rules("t", Rule(x + 0, x));
  // Rebuilding the chain costs no fuel.
  EXPECT_EQ(Toposort(GraphRewrite(deep, rules, 10).value()).size(), 300'001U);
}

TEST_F(Rewriting, KeepsFormsBetweenRootsUntilForgotten) {
  int calls = 0;
  const RuleTable rules("t", Rule(x + y, [&](const auto&) -> UOp {
                          ++calls;
                          return nullptr;
                        }));
  Rewriter rewriter(rules);
  EXPECT_EQ(rewriter.Rewrite(a_ + b_), a_ + b_);
  const int once = calls;
  EXPECT_EQ(rewriter.Rewrite((a_ + b_) * 2), (a_ + b_) * 2);
  EXPECT_EQ(calls, once);
  rewriter.Forget();
  rewriter.Rewrite(a_ + b_);
  EXPECT_EQ(calls, 2 * once);
}

TEST_F(Rewriting, PrintsRules) {
  EXPECT_EQ(Rule(x * n + 0, x).ToString(), "((x MUL n) ADD 0) -> x");
  EXPECT_EQ(Rule(Node<Op::kCast>(x), [](const auto& at) { return at[x]; }).ToString(),
            "CAST(x ) -> fn");
}

TEST_F(Rewriting, InstantiatesDeclarativeRulesOnly) {
  const RuleTable rules("t", Rule(x / n < m, x < m * n).When(Value(n) > 0),
                        Rule(x + y, [](const auto& at) { return at[x]; }));
  UOp before, after;
  EXPECT_FALSE(rules.rules()[1]->Instantiate({{a_}}, &before, &after));
  // A missing guard, m > 0, shows: -5 // 4 is -1 and not below -1, but -5 is below -1 * 4.
  const std::vector<UOp> captures = {a_.ConstLike(-5), a_.ConstLike(4), a_.ConstLike(-1)};
  ASSERT_TRUE(rules.rules()[0]->Instantiate(captures, &before, &after));
  EXPECT_EQ(ToInfix(before), "((-5//4)<-1)");
  EXPECT_EQ(ToInfix(after), "(-5<(-1*4))");
}

}  // namespace
}  // namespace beamd

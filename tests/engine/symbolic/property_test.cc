// Random index expressions whose ranges cross zero: simplified and original agree on every point.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/symbolic/symbolic.h"
#include "engine/uop/uop.h"
#include "tests/testing/infix.h"

namespace beamd {
namespace {

// Draws expressions over three leaves with small ranges.
class Generator {
 public:
  Generator(UOpGraph& graph, uint32_t seed, Scalar scalar) : graph_(graph), rng_(seed) {
    const bool is_signed = IsSigned(scalar);
    for (int i = 0; i < 3; ++i) {
      if (Below(3) == 0) {
        const UOp extent = graph.Const(scalar, 1 + Below(9));
        leaves.push_back(graph.Make(Op::kRange, scalar, {extent},
                                    graph.Intern(RangeArg{RangeArg::Kind::kGlobal, i, 0})));
      } else {
        const int64_t min = is_signed ? Below(12) - 8 : Below(5);
        leaves.push_back(graph.Variable(std::string(1, static_cast<char>('a' + i)), min,
                                        min + Below(9), scalar));
      }
    }
  }

  UOp Int(int depth) {
    if (depth == 0 || Below(8) == 0) {
      return Below(4) == 0 ? Constant(9) : leaves[static_cast<size_t>(Below(3))];
    }
    switch (Below(14)) {
      case 12:
        return Bits(depth);
      case 13:
        return Below(2) == 0 ? Alu(Op::kSub, Int(depth - 1), Int(depth - 1))
                             : Alu(Op::kNeg, Int(depth - 1));
      case 0:
      case 1:
      case 2:
        return Int(depth - 1) + Int(depth - 1);
      case 3:
      case 4:
        return Int(depth - 1) * Constant(9);
      case 5:
        return Int(depth - 1) / (Below(8) == 0 ? Int(depth - 1) : Divisor());
      case 6:
      case 7:
        return Int(depth - 1) / Divisor();
      case 8:
        return Int(depth - 1) % (Below(8) == 0 ? Int(depth - 1) : Divisor());
      case 9:
        return Int(depth - 1) % Divisor();
      case 10:
        return Alu(Op::kMax, Int(depth - 1), Int(depth - 1));
      default:
        return Below(2) == 0 ? Where(Bool(depth - 1), Int(depth - 1), Int(depth - 1))
                             : Int(depth - 1) * Int(depth - 1);
    }
  }

  UOp Bits(int depth) {
    const UOp a = Int(depth - 1);
    switch (Below(6)) {
      case 0:
        return a & Constant(9);
      case 1:
        return a | (Below(2) == 0 ? Constant(9) : Int(depth - 1));
      case 2:
        return a ^ (Below(2) == 0 ? Constant(9) : Int(depth - 1));
      case 3:
        return Alu(Op::kShl, a, a.ConstLike(Below(5)));
      case 4:
        return Alu(Op::kShr, a, a.ConstLike(Below(5)));
      default:
        return Cast(Cast(a, Below(2) == 0 ? Scalar::kInt8 : Scalar::kInt64), a.dtype());
    }
  }

  UOp Bool(int depth) {
    if (depth == 0) return Int(1) < Constant(20);
    switch (Below(7)) {
      case 0:
      case 1:
        return Int(depth - 1) < Constant(30);
      case 2:
        return Int(depth - 1) < Int(depth - 1);
      case 3:
        return Ne(Int(depth - 1), Below(2) == 0 ? Constant(20) : Int(depth - 1));
      case 4:
        return Bool(depth - 1) & Bool(depth - 1);
      case 5:
        return Bool(depth - 1) | Bool(depth - 1);
      default:
        return Not(Bool(depth - 1));
    }
  }

  UOp Clauses() {
    UOp all = Bool(2);
    for (int64_t i = Below(3); i > 0; --i) all = all & Bool(2);
    return all;
  }

  std::vector<UOp> leaves;

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  UOp Constant(int64_t size) {
    return leaves[0].ConstLike(IsSigned(leaves[0].scalar()) ? Below(2 * size) - size : Below(size));
  }
  UOp Divisor() { return leaves[0].ConstLike(Below(10) == 0 ? -Below(4) : 1 + Below(12)); }

  UOpGraph& graph_;
  std::mt19937 rng_;
};

// Calls fn with the values of the leaves at every point.
template <typename F>
void ForEachPoint(const std::vector<UOp>& leaves, F fn) {
  std::vector<int64_t> point;
  point.reserve(leaves.size());
  for (const UOp leaf : leaves) point.push_back(BoundsOf(leaf).min);
  for (;;) {
    fn(point);
    size_t i = 0;
    for (; i < leaves.size(); ++i) {
      const Bounds b = BoundsOf(leaves[i]);
      if (point[i] < b.max) {
        ++point[i];
        break;
      }
      point[i] = b.min;
    }
    if (i == leaves.size()) return;
  }
}

std::string Describe(const std::vector<UOp>& leaves, const std::vector<int64_t>& point) {
  std::string text;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Bounds b = BoundsOf(leaves[i]);
    text += ToInfix(leaves[i]) + "=" + std::to_string(point[i]) + " of [" + std::to_string(b.min) +
            "," + std::to_string(b.max) + "] ";
  }
  return text;
}

class Expressions : public testing::TestWithParam<Scalar> {};

TEST_P(Expressions, KeepTheirValueWhenSimplified) {
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    UOpGraph graph;
    Generator draw(graph, seed, GetParam());
    const UOp before = seed % 3 == 0 ? draw.Bool(3) : draw.Int(4);
    const UOp after = Simplify(before);
    const Bounds bounds = BoundsOf(before);
    const int64_t factor = ConstFactor(before);
    bool failed = false;
    ForEachPoint(draw.leaves, [&](const std::vector<int64_t>& point) {
      if (failed) return;
      const auto want = EvaluateInt(before, draw.leaves, point);
      const auto got = EvaluateInt(after, draw.leaves, point);
      ASSERT_TRUE(want.has_value());
      failed = got != want || *want < bounds.min || *want > bounds.max || *want % factor != 0;
      EXPECT_EQ(*want % factor, 0) << "seed " << seed << ": " << ToInfix(before);
      EXPECT_EQ(got, want) << "seed " << seed << ": " << ToInfix(before) << "\n -> "
                           << ToInfix(after) << "\n at " << Describe(draw.leaves, point);
      EXPECT_GE(*want, bounds.min) << "seed " << seed << ": " << ToInfix(before);
      EXPECT_LE(*want, bounds.max) << "seed " << seed << ": " << ToInfix(before);
    });
    EXPECT_EQ(Simplify(after), after)
        << "seed " << seed << ": " << ToInfix(after) << "\n -> " << ToInfix(Simplify(after));
  }
}

TEST_P(Expressions, KeepTheirValueWhereTheConditionHolds) {
  for (uint32_t seed = 0; seed < 800; ++seed) {
    UOpGraph graph;
    Generator draw(graph, seed, GetParam());
    const UOp valid = draw.Clauses();
    const UOp before = seed % 3 == 0 ? draw.Bool(3) : draw.Int(4);
    const UOp after = SimplifyGiven(before, valid), shorter = SimplifyValid(valid);
    bool failed = false;
    ForEachPoint(draw.leaves, [&](const std::vector<int64_t>& point) {
      if (failed) return;
      const auto holds = EvaluateInt(valid, draw.leaves, point);
      const auto still = EvaluateInt(shorter, draw.leaves, point);
      failed = holds != still;
      EXPECT_EQ(still, holds) << "seed " << seed << ": " << ToInfix(valid) << "\n -> "
                              << ToInfix(shorter) << "\n at " << Describe(draw.leaves, point);
      if (*holds == 0) return;
      const auto want = EvaluateInt(before, draw.leaves, point);
      const auto got = EvaluateInt(after, draw.leaves, point);
      failed |= got != want;
      EXPECT_EQ(got, want) << "seed " << seed << ": " << ToInfix(before) << "\n -> "
                           << ToInfix(after) << "\n given " << ToInfix(valid) << "\n at "
                           << Describe(draw.leaves, point);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Scalars, Expressions,
                         testing::Values(Scalar::kInt64, Scalar::kInt32, Scalar::kInt8,
                                         Scalar::kUint8, Scalar::kUint32, Scalar::kUint64),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace beamd

#include "engine/lower/narrow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/symbolic/symbolic.h"
#include "engine/uop/text.h"
#include "tests/testing/infix.h"

namespace beamd {
namespace {

UOp Narrowed(UOp u) { return NarrowIndices(u, CorpusTarget(TargetKind::kCpu)); }

class NarrowIndicesTest : public ::testing::Test {
 protected:
  UOp Range(int64_t extent, int axis = 0) {
    return g_.Make(Op::kRange, Scalar::kInt64, {g_.Const(Scalar::kInt64, extent)},
                   g_.Intern(RangeArg{RangeArg::Kind::kGlobal, axis, 0}));
  }
  // What the operands of the comparison are afterwards.
  static Scalar Width(UOp comparison) { return Narrowed(comparison).src(0).scalar(); }

  UOpGraph g_;
};

TEST_F(NarrowIndicesTest, AComparisonIsNarrowWhereEveryIntermediateFits) {
  const UOp r = Range(int64_t{1} << 20);
  EXPECT_EQ(Width(r * 1024 + 7 < 500), Scalar::kInt32);
  // 2^20 * 2^12.
  EXPECT_EQ(Width(r * 4096 < 500), Scalar::kInt64);
  // The whole is small again, but not on the way.
  EXPECT_EQ(Width((r * 4096) / 4096 < 500), Scalar::kInt64);
  EXPECT_EQ(Width(r * 4096 + r * -4096 < 500), Scalar::kInt64);
}

TEST_F(NarrowIndicesTest, TheLastValueThatFitsDecides) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Width(Range(kMost + 1) < 5), Scalar::kInt32);
  EXPECT_EQ(Width(Range(kMost + 2) < 5), Scalar::kInt64);
  EXPECT_EQ(Width(Range(9) < kMost), Scalar::kInt32);
  EXPECT_EQ(Width(Range(9) < kMost + 1), Scalar::kInt64);
  EXPECT_EQ(Width(Range(2) * (-kMost - 1) < 5), Scalar::kInt32);
  EXPECT_EQ(Width(Range(2) * (-kMost - 2) < 5), Scalar::kInt64);
}

TEST_F(NarrowIndicesTest, QuotientsAndRemaindersAreNarrowAndWidenedForTheirUsers) {
  const UOp r = Range(1000);
  for (const UOp u : {r / 7, r % 7}) {
    const UOp narrowed = Narrowed(u);
    ASSERT_TRUE(narrowed.is(Op::kCast)) << ToText(narrowed);
    EXPECT_EQ(narrowed.scalar(), Scalar::kInt64);
    EXPECT_EQ(narrowed.src(0).scalar(), Scalar::kInt32);
    EXPECT_EQ(narrowed.src(0).op(), u.op());
  }
}

TEST_F(NarrowIndicesTest, AComparisonOfAQuotientIsNarrowThroughout) {
  const UOp narrowed = Narrowed(Range(1000) / 7 + 3 < 20);
  int casts = 0;
  for (const UOp u : Toposort(narrowed)) casts += u.is(Op::kCast) ? 1 : 0;
  // The range itself.
  EXPECT_EQ(casts, 1) << ToText(narrowed);
}

TEST_F(NarrowIndicesTest, AddressesStayWide) {
  const UOp buffer =
      g_.Make(Op::kDefineGlobal, DType::Pointer(Scalar::kFloat32, AddressSpace::kGlobal), {},
              g_.Intern(BufferArg{}));
  const UOp load =
      g_.Make(Op::kLoad, Scalar::kFloat32,
              {g_.Make(Op::kIndex, buffer.dtype(), {buffer, Range(8) * 4 + 1, Range(8) < 3})});
  const UOp narrowed = Narrowed(load);
  EXPECT_EQ(narrowed.src(0).src(1), load.src(0).src(1));
  EXPECT_EQ(narrowed.src(0).src(2).src(0).scalar(), Scalar::kInt32);
}

TEST_F(NarrowIndicesTest, OnAGpuAddressesAndLoopsAreNarrowWhereTheyFit) {
  const TargetCaps gpu = CorpusTarget(TargetKind::kCuda);
  const UOp buffer =
      g_.Make(Op::kDefineGlobal, DType::Pointer(Scalar::kFloat32, AddressSpace::kGlobal), {},
              g_.Intern(BufferArg{0, 0, {}, ""}));
  const UOp special = g_.Make(Op::kSpecial, Scalar::kInt64, {g_.Const(Scalar::kInt64, 1 << 20)},
                              g_.Intern(std::string("g0")));
  const UOp loop = Range(1000);
  for (const auto& [step, narrow] : {std::pair(1000, Scalar::kInt32), {5000, Scalar::kInt64}}) {
    const UOp index = g_.Make(Op::kIndex, buffer.dtype(), {buffer, special * int64_t{step} + loop});
    const UOp load = g_.Make(Op::kLoad, Scalar::kFloat32, {index});
    const UOp acc = g_.Make(Op::kAcc, Scalar::kFloat32, {g_.ConstFloat(Scalar::kFloat32, 0), loop},
                            Arg::Int(0));
    const UOp sum = g_.Make(Op::kAssign, Scalar::kFloat32, {acc, acc + load});
    const UOp narrowed = NarrowIndices(sum, gpu);
    EXPECT_EQ(narrowed.src(1).src(1).src(0).src(1).scalar(), narrow);
    // The same loop for the accumulator and the address.
    const UOp range = narrowed.src(0).src(1);
    EXPECT_EQ(range.scalar(), Scalar::kInt32);
    const std::vector<UOp> nodes = Toposort(narrowed);
    EXPECT_EQ(std::ranges::count_if(nodes, [](UOp u) { return u.is(Op::kRange); }), 1);
  }
}

TEST_F(NarrowIndicesTest, WhatMemoryHoldsIsNotProvenToFit) {
  const UOp buffer =
      g_.Make(Op::kDefineGlobal, DType::Pointer(Scalar::kInt64, AddressSpace::kGlobal), {},
              g_.Intern(BufferArg{}));
  const UOp load =
      g_.Make(Op::kLoad, Scalar::kInt64, {g_.Make(Op::kIndex, buffer.dtype(), {buffer, Range(8)})});
  EXPECT_EQ(Width(load + Range(8) < 3), Scalar::kInt64);
}

TEST_F(NarrowIndicesTest, LanesAreBoundedTogether) {
  const auto lanes = [&](std::vector<int64_t> values) {
    const auto n = static_cast<int>(values.size());
    return g_.Make(Op::kVConst, DType(Scalar::kInt64).WithLanes(n), {},
                   g_.Intern(LanesArg{std::move(values)}));
  };
  const std::vector<UOp> same(4, Range(100));
  const UOp wide = g_.Make(Op::kVectorize, DType(Scalar::kInt64).WithLanes(4), same);
  EXPECT_EQ(Width(wide * 4 + lanes({0, 1, 2, 3}) < 37), Scalar::kInt32);
  EXPECT_EQ(Width(wide * 4 + lanes({0, 1, 2, int64_t{1} << 31}) < 37), Scalar::kInt64);
  EXPECT_EQ(Width(wide * lanes({0, 1, 2, 1 << 26}) < 37), Scalar::kInt64);
}

// Time exponential in the length once.
TEST_F(NarrowIndicesTest, ALongChainOfVectorsIsNarrowedInNoTime) {
  const std::vector<UOp> same(4, Range(100));
  UOp u = g_.Make(Op::kVectorize, DType(Scalar::kInt64).WithLanes(4), same);
  for (int i = 0; i < 200; ++i) u = u + u * 0;
  EXPECT_EQ(Width(u < 37), Scalar::kInt32);
}

TEST_F(NarrowIndicesTest, ValuesStayEqual) {
  std::mt19937 random(11);
  const auto pick = [&](int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(random() % static_cast<uint64_t>(hi - lo + 1));
  };
  for (int trial = 0; trial < 500; ++trial) {
    UOpGraph g;
    const UOp a = g.Variable("a", -5, int64_t{1} << pick(3, 34), Scalar::kInt64);
    const UOp b = g.Variable("b", -100, 100, Scalar::kInt64);
    UOp u = a;
    for (int i = 0; i < 4; ++i) {
      switch (pick(0, 4)) {
        case 0:
          u = u * pick(-70'000, 70'000);
          break;
        case 1:
          u = u + b * pick(-9, 9);
          break;
        case 2:
          u = u / pick(-9, 9);
          break;
        case 3:
          u = u % pick(-900, 900);
          break;
        default:
          u = Alu(Op::kMax, u, b);
          break;
      }
    }
    u = u < b * pick(-1'000'000, 1'000'000);
    const UOp narrowed = Narrowed(u);
    for (int point = 0; point < 10; ++point) {
      const std::vector<int64_t> at = {pick(-5, a.data<VariableArg>().max), pick(-100, 100)};
      ASSERT_EQ(EvaluateInt(narrowed, {a, b}, at), EvaluateInt(u, {a, b}, at)) << ToInfix(u);
    }
  }
}

}  // namespace
}  // namespace beamd

#include "engine/lower/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/lower/lower_indexing.h"
#include "tests/engine/lower/lowered.h"
#include "tests/testing/infix.h"

namespace beamd {
namespace {

using ::beamd::testing::Applied;
using ::beamd::testing::Avx2;
using ::beamd::testing::TextOf;
using ::beamd::testing::Unroll;
using ::beamd::testing::Upcast;

class LanesTest : public ::testing::Test {
 protected:
  const UnrollAnalysis& Analysed(absl::string_view text, const std::vector<Opt>& opts) {
    const absl::StatusOr<UOp> sink =
        LowerIndexing(Applied(text, source_, opts).OptimizedAst(graph_), Avx2());
    BEAMD_CHECK(sink.ok(), sink.status().message());
    sink_ = *sink;
    analysis_ = AnalyseUnroll(sink_).value();
    return analysis_;
  }
  // "8 of upcast"; "none".
  std::string Chosen(absl::string_view text, const std::vector<Opt>& opts) {
    const UnrollAnalysis& a = Analysed(text, opts);
    const Lanes lanes = ChooseLanes(a, Avx2());
    if (lanes.count == 1) return "none";
    std::set<std::string> kinds;
    for (const int r : lanes.ranges) {
      kinds.insert(a.ranges[r].data<RangeArg>().kind == RangeArg::Kind::kUpcast ? "upcast"
                                                                                : "unroll");
    }
    EXPECT_EQ(kinds.size(), 1u);
    return absl::StrCat(lanes.count, " of ", *kinds.begin());
  }
  const Access& AccessOf(uint64_t slot) const {
    for (const auto& [index, access] : analysis_.accesses) {
      if (index.src(0).data<BufferArg>().id == slot) return access;
    }
    BEAMD_CHECK(false, "no access of that slot");
    return analysis_.accesses.begin()->second;
  }

  UOpGraph source_, graph_;
  UOp sink_;
  UnrollAnalysis analysis_;
};

TEST_F(LanesTest, WhatIsNotUnrolledHasNone) { EXPECT_EQ(Chosen(TextOf("OddMatmul"), {}), "none"); }

TEST_F(LanesTest, OfAColumnProductTheyAreOutputColumns) {
  EXPECT_EQ(Chosen(TextOf("ColumnProduct"), {Upcast(0, 5), Unroll(0, 4)}), "5 of upcast");
}

TEST_F(LanesTest, OfARowSumTheyAreTheReductions) {
  EXPECT_EQ(Chosen(TextOf("RowSum"), {Upcast(0, 4), Unroll(0, 8)}), "8 of unroll");
}

TEST_F(LanesTest, AxesThatFollowEachOtherInMemoryAreLanesTogether) {
  EXPECT_EQ(Chosen(TextOf("InPlace"), {Upcast(1, 4), Upcast(1, 0)}), "12 of upcast");
}

TEST_F(LanesTest, AVectorIsNoLongerThan64Bytes) {
  // 16 lanes are 64 bytes of float32, but 128 of float64.
  EXPECT_EQ(Chosen(TextOf("RowSum"), {Unroll(0, 16)}), "16 of unroll");
  EXPECT_EQ(Chosen(TextOf("RowSum"), {Unroll(0, 24)}), "none");
  EXPECT_EQ(Chosen(TextOf("FullReduce"), {Unroll(0, 20)}), "none");
}

// A 3x3 convolution of 8 channels of 16x16 into 16 of 14x14: 16 sums of 9 lanes each would fill 32
// registers.
TEST_F(LanesTest, SumsThatFindNoRegisterAreNotLanes) {
  EXPECT_EQ(Chosen(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,16,14,14,1,1,1) strides (3136,196,14,1,0,0,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (4,16,14,14,8,3,3) strides (2048,0,16,1,256,16,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (4,16,14,14,8,3,3) strides (0,72,0,0,9,3,1) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (4,5,6)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))",
                   {Upcast(1, 4), Upcast(3, 7), Unroll(1, 0), Unroll(1, 0)}),
            "7 of upcast");
}

TEST_F(LanesTest, AnIndexIsABaseAnOffsetAndCoefficients) {
  const UnrollAnalysis& a = Analysed(TextOf("IntegerMatmul"), {Upcast(0, 4), Unroll(0, 3)});
  // (16,12) times (12,8): rows of the first are 12 apart.
  int upcast = 0, unroll = 1;
  if (a.ranges[0].data<RangeArg>().kind == RangeArg::Kind::kUnroll) std::swap(upcast, unroll);
  EXPECT_EQ(a.extents[upcast], 4);
  EXPECT_EQ(a.extents[unroll], 3);
  const Access& left = AccessOf(1);
  EXPECT_EQ(left.CoefficientOf(upcast), 12);
  EXPECT_EQ(left.CoefficientOf(unroll), 1);
  EXPECT_TRUE(left.hard_terms.empty());
  const Access& right = AccessOf(2);
  EXPECT_EQ(right.CoefficientOf(upcast), 0);
  EXPECT_EQ(right.CoefficientOf(unroll), 8);
}

TEST_F(LanesTest, AFlippedAxisHasANegativeCoefficientAndTheEndAsOffset) {
  Analysed(TextOf("Flip"), {Upcast(0, 4)});
  EXPECT_EQ(AccessOf(1).CoefficientOf(0), -1);
  EXPECT_EQ(AccessOf(1).offset, 95);
}

TEST_F(LanesTest, AReductionsValueDoesNotVaryWithItsOwnRanges) {
  const UnrollAnalysis& a = Analysed(TextOf("RowSum"), {Unroll(0, 8)});
  for (const UOp u : a.nodes) {
    if (!u.is(Op::kReduce)) continue;
    EXPECT_EQ(a.DepsOf(u), 0u);
    EXPECT_EQ(a.DepsOf(u.src(0)), 1u);
  }
}

TEST_F(LanesTest, Over64UnrolledAxesAreTooMany) {
  UOp index = graph_.Const(Scalar::kInt64, 0);
  for (int axis = 0; axis < 65; ++axis) {
    index = index + graph_.Make(Op::kRange, Scalar::kInt64, {graph_.Const(Scalar::kInt64, 2)},
                                graph_.Intern(RangeArg{RangeArg::Kind::kUpcast, axis, 0}));
  }
  EXPECT_EQ(AnalyseUnroll(index).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace beamd

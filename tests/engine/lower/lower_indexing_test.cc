#include "engine/lower/lower_indexing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/engine/lower/lowered.h"
#include "tests/testing/infix.h"

namespace beamd {
namespace {

using ::beamd::testing::Applied;
using ::beamd::testing::Avx2;
using ::beamd::testing::TextOf;
using ::beamd::testing::Unroll;
using ::beamd::testing::Upcast;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LowerIndexingTest : public ::testing::Test {
 protected:
  UOp Indexed(absl::string_view text, const std::vector<Opt>& opts = {}) {
    absl::StatusOr<UOp> sink =
        LowerIndexing(Applied(text, source_, opts).OptimizedAst(graph_), Avx2());
    BEAMD_CHECK(sink.ok(), sink.status().message());
    return *sink;
  }
  // Of a graph as it stands, its axes not merged.
  absl::StatusOr<UOp> IndexedAsIs(absl::string_view text) {
    return LowerIndexing(ParseText(text, graph_).value(), Avx2());
  }

  static std::vector<UOp> All(UOp root, Op op) {
    std::vector<UOp> all = Toposort(root);
    std::erase_if(all, [&](UOp u) { return !u.is(op); });
    return all;
  }
  // "global 0 of 3"
  static std::vector<std::string> Ranges(UOp sink) {
    static constexpr const char* kKinds[] = {"global", "reduce", "upcast", "unroll"};
    std::vector<std::string> ranges;
    for (const UOp r : All(sink, Op::kRange)) {
      const RangeArg& arg = r.data<RangeArg>();
      ranges.push_back(absl::StrCat(kKinds[static_cast<int>(arg.kind)], " ", arg.axis, " of ",
                                    ToInfix(r.src(0))));
    }
    std::sort(ranges.begin(), ranges.end());
    return ranges;
  }

  UOpGraph source_, graph_;
};

TEST_F(LowerIndexingTest, EveryAxisIsARangeOfItsKind) {
  EXPECT_THAT(Ranges(Indexed(TextOf("IntegerMatmul"), {Upcast(1, 4), Unroll(0, 3)})),
              ElementsAre("global 0 of 16", "global 1 of 2", "reduce 2 of 4", "unroll 4 of 3",
                          "upcast 3 of 4"));
}

TEST_F(LowerIndexingTest, NothingOfViewsAndAxesIsLeft) {
  const UOp sink = Indexed(TextOf("PaddedWindows"));
  for (const UOp u : Toposort(sink)) {
    EXPECT_FALSE(u.is(Op::kView | Op::kReduceAxis | Op::kValid)) << ToText(sink);
  }
}

TEST_F(LowerIndexingTest, AnIndexCountsElements) {
  const UOp load = All(Indexed(TextOf("Transpose")), Op::kLoad)[0];
  EXPECT_EQ(ToInfix(load.src(0).src(1)), "(r0+(r1*16))");
  EXPECT_EQ(load.src(0).src(1).scalar(), Scalar::kInt64);
}

TEST_F(LowerIndexingTest, AMaskedLoadCarriesItsConditionAndAnotherHasNone) {
  const UOp masked = All(Indexed(TextOf("PadReadsZeros")), Op::kLoad)[0].src(0);
  ASSERT_EQ(masked.src_count(), 3);
  EXPECT_EQ(ToInfix(masked.src(2)), "((r1<17)&!(r1<5))");
  const UOp plain = All(Indexed(TextOf("Flip")), Op::kLoad)[0].src(0);
  EXPECT_EQ(plain.src_count(), 2);
}

TEST_F(LowerIndexingTest, AStoreThatNoPointReachesIsGone) {
  const absl::StatusOr<UOp> sink = IndexedAsIs(absl::StrReplaceAll(
      TextOf("MaskedStoresLeaveTheRest"), {{"mask (1:4,3:13)", "mask (1:4,3:3)"}}));
  ASSERT_TRUE(sink.ok()) << sink.status();
  EXPECT_EQ(sink->src_count(), 0);
}

TEST_F(LowerIndexingTest, ReductionsThatDoNotNeedEachOtherShareRanges) {
  const std::vector<UOp> reductions = All(Indexed(TextOf("TwoReductions")), Op::kReduce);
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_EQ(reductions[0].src(1), reductions[1].src(1));
}

TEST_F(LowerIndexingTest, AReductionOfAReductionHasRangesOfItsOwn) {
  const std::vector<UOp> reductions = All(Indexed(TextOf("ReductionOfAReduction")), Op::kReduce);
  ASSERT_EQ(reductions.size(), 2u);
  EXPECT_NE(reductions[0].src(1), reductions[1].src(1));
  EXPECT_NE(reductions[0].src(1).data<RangeArg>().stage,
            reductions[1].src(1).data<RangeArg>().stage);
}

TEST_F(LowerIndexingTest, AReductionOverOneElementIsTheElement) {
  const absl::StatusOr<UOp> sink = IndexedAsIs(
      absl::StrReplaceAll(TextOf("RowSum"), {{"(12,48) strides (48,1)", "(12,1) strides (1,0)"}}));
  ASSERT_TRUE(sink.ok()) << sink.status();
  EXPECT_THAT(All(*sink, Op::kReduce), IsEmpty());
}

TEST_F(LowerIndexingTest, AnAssignIsWhatItStores) {
  const absl::StatusOr<UOp> sink = IndexedAsIs(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (8) strides (1) offset 0]
%2 = LOAD float32 (%0, %1)
%3 = NEG float32 (%2)
%4 = ASSIGN float32 (%2, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5))");
  ASSERT_TRUE(sink.ok()) << sink.status();
  EXPECT_TRUE(sink->src(0).src(1).is(Op::kNeg));
}

constexpr absl::string_view kSymbolicRow = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = DEFINE_VAR int32 var "n" 1..9
%2 = VIEW void (%1) view[shape (4,$0) strides (9,1) offset 0]
%3 = LOAD float32 (%0, %2)
%4 = STORE void (%0, %2, %3)
%5 = SINK void (%4) kernel local_dims 0 upcasted UPCASTED dont_use_locals false)";

TEST_F(LowerIndexingTest, ASymbolicAxisIsALoopButNoUpcast) {
  const absl::StatusOr<UOp> loop =
      IndexedAsIs(absl::StrReplaceAll(kSymbolicRow, {{"UPCASTED", "0"}}));
  ASSERT_TRUE(loop.ok()) << loop.status();
  EXPECT_EQ(All(*loop, Op::kRange).size(), 2u);
  const absl::Status upcast =
      IndexedAsIs(absl::StrReplaceAll(kSymbolicRow, {{"UPCASTED", "1"}})).status();
  EXPECT_EQ(upcast.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(upcast.message(), "axis 1 is symbolic and upcast");
}

TEST_F(LowerIndexingTest, LocalAxesNeedAGpu) {
  const absl::Status status =
      IndexedAsIs(absl::StrReplaceAll(kSymbolicRow, {{"local_dims 0 upcasted UPCASTED",
                                                      "local_dims 1 upcasted 0"}}))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace beamd

#include "engine/lower/expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/lower/lower_indexing.h"
#include "tests/engine/lower/lowered.h"

namespace beamd {
namespace {

using ::beamd::testing::Applied;
using ::beamd::testing::Avx2;
using ::beamd::testing::Lowered;
using ::beamd::testing::TextOf;
using ::beamd::testing::Unroll;
using ::beamd::testing::Upcast;
using ::testing::ElementsAre;

std::set<int> LanesOf(const std::vector<UOp>& nodes) {
  std::set<int> lanes;
  for (const UOp u : nodes) lanes.insert(u.is(Op::kStore) ? u.src(1).lanes() : u.lanes());
  return lanes;
}

UOp Valid(UOp access) { return access.src(0).src_count() > 2 ? access.src(0).src(2) : UOp(); }

TEST(Expand, AColumnSumsLanesAreOutputColumns) {
  const Lowered l(TextOf("ColumnProduct"), {Upcast(0, 5)});
  EXPECT_EQ(l.The(Op::kAcc).lanes(), 5);
  EXPECT_EQ(l.The(Op::kLoad).lanes(), 5);
  EXPECT_EQ(l.The(Op::kStore).src(1).lanes(), 5);
  EXPECT_TRUE(l.All(Op::kGep).empty()) << l.Text();
}

TEST(Expand, ARowSumsLanesAreTheReductionsAndFoldOnceAfterTheLoop) {
  const Lowered l(TextOf("RowSum"), {Unroll(0, 8)});
  EXPECT_EQ(l.The(Op::kAcc).lanes(), 8);
  EXPECT_EQ(l.The(Op::kLoad).lanes(), 8);
  EXPECT_EQ(l.The(Op::kStore).src(1).lanes(), 1);
  const std::vector<UOp> ends = l.All(Op::kEndLoop);
  ASSERT_EQ(ends.size(), 2u);
  ASSERT_FALSE(l.All(Op::kGep).empty());
  for (const UOp lane : l.All(Op::kGep)) EXPECT_GT(l.Place(lane), l.Place(ends[0])) << l.Text();
}

TEST(Expand, ASumWithFewResultsIsSplitIntoChains) {
  const auto chains = [](const std::vector<Opt>& opts) {
    return Lowered(TextOf("RowSum"), opts).All(Op::kAcc).size();
  };
  // 8 lanes and 3 terms a turn: a chain for each.
  EXPECT_EQ(chains({Unroll(0, 8), Unroll(0, 3)}), 3u);
  // With 4 results there are chains enough: 2 each.
  EXPECT_EQ(chains({Upcast(0, 4), Unroll(0, 8), Unroll(0, 3)}), 8u);
  // One term a turn has one chain.
  EXPECT_EQ(chains({}), 1u);
}

TEST(Expand, TheProductOfAFloatSumIsFusedAndThatOfAnIntegerSumIsNot) {
  EXPECT_FALSE(Lowered(TextOf("OddMatmul"), {}).All(Op::kMulAcc).empty());
  EXPECT_TRUE(Lowered(TextOf("IntegerMatmul"), {}).All(Op::kMulAcc).empty());
}

TEST(Expand, AProductOfHalvesIsFusedInTheWiderType) {
  const Lowered l(TextOf("Halves"), {});
  EXPECT_EQ(l.The(Op::kMulAcc).scalar(), Scalar::kFloat32);
  for (const UOp u : l.All(Op::kMul)) EXPECT_FALSE(IsFloat(u.scalar())) << l.Text();
}

TEST(Expand, AnElementwiseProductIsNotFusedIntoASum) {
  EXPECT_TRUE(Lowered(TextOf("BFloatArithmetic"), {Upcast(0, 8)}).All(Op::kMulAcc).empty());
}

TEST(Expand, AMaskThatVariesAlongTheLanesIsAVector) {
  const Lowered l(TextOf("PadReadsZeros"), {Upcast(1, 4)});
  const UOp load = l.The(Op::kLoad);
  EXPECT_EQ(load.lanes(), 4);
  ASSERT_TRUE(Valid(load));
  EXPECT_EQ(Valid(load).lanes(), 4) << l.Text();
}

TEST(Expand, AMaskThatIsTheSameForAllLanesIsOneBool) {
  // Padded by whole rows.
  const Lowered l(
      absl::StrReplaceAll(TextOf("PadReadsZeros"), {{"strides (12,1) offset -5 mask (0:3,5:17)",
                                                     "strides (20,1) offset -20 mask (1:3,0:20)"}}),
      {Upcast(1, 4)});
  const UOp load = l.The(Op::kLoad);
  EXPECT_EQ(load.lanes(), 4);
  ASSERT_TRUE(Valid(load));
  EXPECT_EQ(Valid(load).lanes(), 1) << l.Text();
}

TEST(Expand, CopiesThatAreNeverValidTouchNothing) {
  // Rows 1 to 3 of 4 are stored; written out, row 0 is not there at all and the others need no
  // test.
  const Lowered l(TextOf("MaskedStoresLeaveTheRest"), {Upcast(0, 0)});
  const std::vector<UOp> stores = l.All(Op::kStore);
  EXPECT_EQ(stores.size(), 3u) << l.Text();
}

TEST(Expand, FlippedLanesAreLoadedForwardAndTurned) {
  const Lowered l(TextOf("Flip"), {Upcast(0, 4)});
  EXPECT_EQ(l.The(Op::kLoad).lanes(), 4);
  EXPECT_THAT(l.The(Op::kGep).data<LanesArg>().lanes, ElementsAre(3, 2, 1, 0));
}

TEST(Expand, LanesAFewElementsApartAreTakenFromWholeVectors) {
  const Lowered l(TextOf("EverySecondAndEveryThird"), {Upcast(0, 8)});
  EXPECT_EQ(LanesOf(l.All(Op::kLoad)), std::set<int>{8}) << l.Text();
  // 15 and 22 elements are covered by 2 and 3 vectors.
  EXPECT_EQ(l.All(Op::kLoad).size(), 5u);
}

TEST(Expand, ABlockOfATransposeMovesInWholeVectors) {
  const Lowered l(TextOf("Transpose"), {Upcast(0, 4), Upcast(1, 4)});
  EXPECT_EQ(LanesOf(l.All(Op::kLoad)), std::set<int>{4}) << l.Text();
  EXPECT_EQ(LanesOf(l.All(Op::kStore)), std::set<int>{4});
  EXPECT_EQ(l.All(Op::kLoad).size(), 4u);
  EXPECT_EQ(l.All(Op::kStore).size(), 4u);
}

TEST(Expand, AValueThatTheLanesShareIsLoadedOnce) {
  // The second operand of the sum is the same in every row.
  const Lowered l(TextOf("InPlace"), {Upcast(0, 4)});
  EXPECT_EQ(l.Accesses(Op::kLoad, 1).size(), 1u) << l.Text();
  EXPECT_EQ(l.Accesses(Op::kLoad, 0).size(), 4u);
}

TEST(Expand, AnUnrolledAxisThatTheValueDoesNotVaryWithIsAFactor) {
  const Lowered l(absl::StrReplaceAll(TextOf("RowSum"), {{"strides (48,1)", "strides (1,0)"}}),
                  {Unroll(0, 8)});
  EXPECT_EQ(l.All(Op::kLoad).size(), 1u) << l.Text();
}

TEST(Expand, OverTheLimitOfNodesIsResourceExhausted) {
  UOpGraph source, graph;
  const UOp sink = LowerIndexing(Applied(TextOf("IntegerMatmul"), source,
                                         {Upcast(0, 0), Upcast(0, 0), Unroll(0, 0)})
                                     .OptimizedAst(graph),
                                 Avx2())
                       .value();
  EXPECT_EQ(Expand(sink, Avx2(), 500).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Expand(sink, Avx2(), 100'000).ok());
}

// 2^45 copies: no room may be made for them before the limit is looked at.
TEST(Expand, CountlessCopiesAreResourceExhaustedAtOnce) {
  for (const absl::string_view strides :
       {"1048576,32768,1024,32,1,33554432,1073741824,34359738368,1099511627776",
        "1,32,1024,32768,1048576,33554432,1073741824,34359738368,1099511627776"}) {
    UOpGraph graph;
    const UOp sink = ParseText(absl::StrReplaceAll(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (32,32,32,32,32,32,32,32,32) strides (1,32,1024,32768,1048576,33554432,1073741824,34359738368,1099511627776) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (32,32,32,32,32,32,32,32,32) strides (STRIDES) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5) kernel local_dims 0 upcasted 9 dont_use_locals false)",
                                                   {{"STRIDES", strides}}),
                               graph)
                         .value();
    const UOp indexed = LowerIndexing(sink, Avx2()).value();
    EXPECT_EQ(Expand(indexed, Avx2(), 200'000).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace beamd

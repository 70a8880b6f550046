#include "engine/kernel/kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::After;
using ::beamd::testing::Axes;
using ::beamd::testing::ColumnReduce;
using ::beamd::testing::kElementwise;
using ::beamd::testing::kMatmul;
using ::beamd::testing::Made;
using ::beamd::testing::Parsed;
using ::beamd::testing::Target;
using ::testing::HasSubstr;

constexpr OptOp kUpcast = OptOp::kUpcast, kUnroll = OptOp::kUnroll, kLocal = OptOp::kLocal,
                kGroup = OptOp::kGroup, kGroupTop = OptOp::kGroupTop, kPadTo = OptOp::kPadTo,
                kSwap = OptOp::kSwap;

// What `opt` does to the kernel of `text`.
std::string After(absl::string_view text, const std::vector<Opt>& opts,
                  TargetKind kind = TargetKind::kCuda) {
  UOpGraph graph;
  return After(Made(text, graph, kind), opts);
}

TEST(Kernel, ReducedAxesGoLast) {
  EXPECT_EQ(After(ColumnReduce("ADD", "SQRT"), {}), "30 blue, 20 red");
}

TEST(Kernel, ContiguousAxesMerge) { EXPECT_EQ(After(kElementwise, {}), "60 blue"); }

TEST(Kernel, AxesThatOneBufferRepeatsStayApart) {
  EXPECT_EQ(After(kMatmul, {}), "64 blue, 64 blue, 96 red");
}

TEST(Kernel, AxesOfOneElementVanish) {
  EXPECT_EQ(After(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1,4,1) strides (0,1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4))",
                  {}),
            "4 blue");
}

TEST(Kernel, BuffersAreNumberedSourcesBeforeWhatIsBelowThem) {
  UOpGraph graph;
  const Kernel k = Made(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = DEFINE_GLOBAL global float32* slot 2
%5 = LOAD float32 (%4, %1)
%6 = NEG float32 (%3)
%7 = ADD float32 (%6, %5)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8))",
                        graph);
  std::vector<int64_t> slots;
  for (UOp buf : k.bufs()) {
    slots.push_back(static_cast<int64_t>(buf.src(0).data<BufferArg>().id));
  }
  // The load of slot 2 is a source of the ADD, that of slot 1 is one deeper.
  EXPECT_THAT(slots, ::testing::ElementsAre(0, 2, 1));
}

TEST(Kernel, UpcastTakesTheInnerPartToTheEnd) {
  EXPECT_EQ(After(kMatmul, {{kUpcast, 0, 4}}), "16 blue, 64 blue, 96 red, 4 yellow");
}

TEST(Kernel, AmountZeroTakesTheWholeAxis) {
  EXPECT_EQ(After(kMatmul, {{kUpcast, 0, 4}, {kUpcast, 0, 0}}),
            "64 blue, 96 red, 4 yellow, 16 yellow");
}

TEST(Kernel, UnrollCountsReduceAxes) {
  EXPECT_EQ(After(kMatmul, {{kUnroll, 0, 4}}), "64 blue, 64 blue, 24 red, 4 magenta");
}

TEST(Kernel, UnrollOfAWholeReductionLeavesNoLoop) {
  EXPECT_EQ(After(ColumnReduce("ADD", "SQRT"), {{kUnroll, 0, 0}}), "30 blue, 20 magenta");
}

TEST(Kernel, UnrollOfAWholeFirstReduceAxisKeepsTheLocals) {
  EXPECT_EQ(After(kMatmul, {{kLocal, 0, 4}, {kUnroll, 0, 32}, {kUnroll, 0, 0}}),
            "16 blue, 64 blue, 4 cyan, 32 magenta, 3 magenta");
}

TEST(Kernel, LocalsStandBeforeTheReduction) {
  EXPECT_EQ(After(kMatmul, {{kLocal, 0, 4}, {kLocal, 1, 8}}),
            "16 blue, 8 blue, 4 cyan, 8 cyan, 96 red");
}

TEST(Kernel, LocalNeedsATargetThatHasThem) {
  EXPECT_THAT(After(kMatmul, {{kLocal, 0, 4}}, TargetKind::kCpu), HasSubstr("no locals"));
}

TEST(Kernel, GroupTakesTheInnerGroupTopTheOuterPart) {
  UOpGraph graph;
  Kernel inner = Made(kMatmul, graph), outer = inner;
  ASSERT_TRUE(inner.Apply({kGroup, 0, 8}).ok());
  ASSERT_TRUE(outer.Apply({kGroupTop, 0, 8}).ok());
  EXPECT_EQ(Axes(inner), "64 blue, 64 blue, 8 green, 12 red");
  EXPECT_EQ(Axes(outer), Axes(inner));
  EXPECT_EQ(inner.tracker(1).RealStrides()[2], SInt(1));
  EXPECT_EQ(outer.tracker(1).RealStrides()[2], SInt(12));
}

TEST(Kernel, GroupCountsReduceAxesBehindTheGrouped) {
  EXPECT_EQ(After(kMatmul, {{kGroup, 0, 8}, {kGroup, 0, 2}}),
            "64 blue, 64 blue, 8 green, 2 green, 6 red");
}

TEST(Kernel, GroupFitsSharedMemory) {
  // 4 bytes x 16 x 16 threads x 48 = 49152: all that sm_80's group may have.
  EXPECT_EQ(After(kMatmul, {{kLocal, 0, 16}, {kLocal, 1, 16}, {kGroup, 0, 48}}),
            "4 blue, 4 blue, 16 cyan, 16 cyan, 48 green, 2 red");
  EXPECT_THAT(After(kMatmul, {{kLocal, 0, 16}, {kLocal, 1, 16}, {kGroup, 0, 0}}),
              HasSubstr("needs 98304 bytes of shared memory of 49152"));
}

TEST(Kernel, GroupNeedsReductionsOfDifferentAxes) {
  EXPECT_THAT(After(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1) strides (0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (32) strides (1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (0)
%6 = REDUCE_AXIS float32 (%4) MAX axes (0)
%7 = ADD float32 (%5, %6)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8))",
                    {{kGroup, 0, 8}}),
              HasSubstr("two reductions of one axis"));
}

TEST(Kernel, NoLocalsExcludesLocals) {
  const Opt no_locals{.op = OptOp::kNoLocals};
  EXPECT_EQ(After(kMatmul, {no_locals}), "64 BLUE, 64 BLUE, 96 red");
  EXPECT_THAT(After(kMatmul, {no_locals, {kLocal, 0, 4}}), HasSubstr("uses no locals"));
  EXPECT_THAT(After(kMatmul, {{kLocal, 0, 4}, no_locals}), HasSubstr("after locals"));
  EXPECT_THAT(After(kMatmul, {no_locals}, TargetKind::kCpu), HasSubstr("no locals"));
}

TEST(Kernel, NoLocalsMayNameTheSizeOfAGroup) {
  UOpGraph graph;
  Kernel k = Made(kMatmul, graph);
  ASSERT_TRUE(k.Apply({OptOp::kNoLocals, 0, 128}).ok());
  EXPECT_EQ(k.group_items(), 128);
  EXPECT_EQ(Axes(k), "64 BLUE, 64 BLUE, 96 red");
  EXPECT_THAT(After(kMatmul, {{OptOp::kNoLocals, 0, 0}}), HasSubstr("no such group"));
  EXPECT_THAT(After(kMatmul, {{OptOp::kNoLocals, 0, 1025}}), HasSubstr("no such group"));
}

TEST(Kernel, SwapExchangesGlobalAxes) {
  EXPECT_EQ(After(kMatmul, {{kUpcast, 0, 4}, {kSwap, 0, 1}}), "64 blue, 16 blue, 96 red, 4 yellow");
  EXPECT_THAT(After(kMatmul, {{kSwap, 1, 2}}), HasSubstr("two global axes"));
  EXPECT_THAT(After(kMatmul, {{kSwap, 1, 1}}), HasSubstr("two global axes"));
}

TEST(Kernel, AmountsMustDivideAndStayBelowTheLimits) {
  EXPECT_THAT(After(kMatmul, {{kUpcast, 0, 5}}), HasSubstr("does not divide"));
  EXPECT_THAT(After(kMatmul, {{kUpcast, 0, 1}}), HasSubstr("changes nothing"));
  EXPECT_THAT(After(kMatmul, {{kUpcast, 0, 32}}), HasSubstr("UPCAST over 16"));
  EXPECT_THAT(After(kMatmul, {{kUnroll, 0, 48}}), HasSubstr("UNROLL over 32"));
}

TEST(Kernel, AxesMustExist) {
  EXPECT_THAT(After(kMatmul, {{kUpcast, 3, 4}}), HasSubstr("no such axis"));
  EXPECT_THAT(After(kMatmul, {{kUpcast, -1, 4}}), HasSubstr("negative"));
  EXPECT_THAT(After(kMatmul, {{kUnroll, 2147483647, 4}}), HasSubstr("no such axis"));
  EXPECT_THAT(After(kMatmul, {{.op = kUpcast}}), HasSubstr("are needed"));
  EXPECT_THAT(After(kMatmul, {{kUpcast, 2, 4}}), HasSubstr("not reduced"));
}

TEST(Kernel, ARefusalNamesItsPlaceInTheList) {
  EXPECT_THAT(After(kMatmul, {{kUpcast, 0, 4}, {kUpcast, 0, 3}}),
              HasSubstr("opt 1, UPCAST(0, 3): "));
}

TEST(Kernel, ARefusedOptChangesNothing) {
  UOpGraph graph;
  Kernel k = Made(ColumnReduce("MAX", "SQRT"), graph);
  const std::string before = Axes(k);
  for (const Opt& opt : {Opt{kPadTo, 1, 32}, Opt{kUpcast, 0, 7}, Opt{kGroup, 0, 3}}) {
    EXPECT_EQ(k.Apply(opt).code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(Axes(k), before);
  EXPECT_TRUE(k.applied_opts().empty());
}

TEST(Kernel, CopiesAreIndependent) {
  UOpGraph graph;
  const Kernel k = Made(kMatmul, graph);
  Kernel copy = k;
  ASSERT_TRUE(copy.Apply({kUpcast, 0, 4}).ok());
  EXPECT_EQ(Axes(k), "64 blue, 64 blue, 96 red");
  EXPECT_EQ(copy.applied_opts(), (std::vector<Opt>{{kUpcast, 0, 4}}));
}

TEST(Kernel, PadToMasksWhatItAdds) {
  UOpGraph graph;
  Kernel k = Made(kElementwise, graph);
  ASSERT_TRUE(k.Apply({kPadTo, 0, 32}).ok());
  EXPECT_EQ(Axes(k), "64 blue");
  EXPECT_TRUE(k.tracker(0).AxisIsMasked(0));
}

TEST(Kernel, PadToOfAReductionKeepsItsResult) {
  EXPECT_EQ(After(ColumnReduce("ADD", "SQRT"), {{kPadTo, 1, 32}}), "30 blue, 32 red");
  EXPECT_THAT(After(ColumnReduce("MAX", "SQRT"), {{kPadTo, 1, 32}}), HasSubstr("pad-safe"));
  EXPECT_THAT(After(ColumnReduce("MUL", "SQRT"), {{kPadTo, 1, 32}}), HasSubstr("pad-safe"));
  EXPECT_THAT(After(ColumnReduce("ADD", "EXP2"), {{kPadTo, 1, 32}}), HasSubstr("pad-safe"));
  EXPECT_EQ(After(ColumnReduce("MAX", "EXP2"), {{kPadTo, 0, 32}}), "32 blue, 20 red");
}

TEST(Kernel, PadToLooksAtEveryReductionOfTheAxis) {
  // The first reduction may be padded, the second is a MAX.
  EXPECT_THAT(After(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1) strides (0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (20) strides (1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (0)
%6 = REDUCE_AXIS float32 (%4) MAX axes (0)
%7 = ADD float32 (%5, %6)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8))",
                    {{kPadTo, 0, 32}}),
              HasSubstr("change a reduction's result"));
}

TEST(Kernel, PadToOfWorkThatIsNotZeroAtZeroIsRefused) {
  constexpr absl::string_view kSum = R"(
%0 = DEFINE_GLOBAL global uint64* slot 0
%1 = VIEW void view[shape (1) strides (0) offset 0]
%2 = DEFINE_GLOBAL global uint64* slot 1
%3 = VIEW void view[shape (20) strides (1) offset 0]
%4 = LOAD uint64 (%2, %3)
%5 = WORK
%6 = REDUCE_AXIS uint64 (%5) ADD axes (0)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))";
  auto after = [&](absl::string_view work) {
    return After(absl::StrReplaceAll(kSum, {{"%5 = WORK", work}}), {{kPadTo, 0, 32}});
  };
  EXPECT_EQ(after("%5 = XOR uint64 (%4, %4)"), "32 red");
  EXPECT_THAT(after("%5 = THREEFRY uint64 (%4, %4)"), HasSubstr("change a reduction's result"));
  // 1 - x, its one not masked; then masked by a VALID of the same shape.
  EXPECT_THAT(after("%50 = CONST uint64 1\n%5 = ADD uint64 (%50, %4)"),
              HasSubstr("change a reduction's result"));
  EXPECT_EQ(after("%50 = VALID bool (%3)\n%51 = CONST uint64 1\n%52 = CONST uint64 0\n"
                  "%53 = WHERE uint64 (%50, %51, %52)\n%5 = ADD uint64 (%53, %4)"),
            "32 red");
}

TEST(Kernel, PadToDoesNotQuadrupleTheWork) {
  EXPECT_THAT(After(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (8) strides (1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4))",
                    {{kPadTo, 0, 32}}),
              HasSubstr("quadruples"));
  EXPECT_THAT(After(kMatmul, {{kPadTo, 0, 32}}), HasSubstr("pads nothing"));
  EXPECT_THAT(After(kElementwise, {{kUpcast, 0, 4}, {kPadTo, 1, 32}}), HasSubstr("upcast axis"));
}

constexpr absl::string_view kSymbolic = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (32,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = DEFINE_VAR int32 var "n" 1..10
%4 = VIEW void (%3) view[shape (32,$0) strides (10,1) offset 0]
%5 = LOAD float32 (%2, %4)
%6 = REDUCE_AXIS float32 (%5) ADD axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))";

TEST(Kernel, SymbolicAxesAreNotSplit) {
  EXPECT_EQ(After(kSymbolic, {{kUpcast, 0, 4}}), "8 blue, n red, 4 yellow");
  EXPECT_THAT(After(kSymbolic, {{kUnroll, 0, 2}}), HasSubstr("does not divide"));
  EXPECT_THAT(After(kSymbolic, {{kUnroll, 0, 0}}), HasSubstr("symbolic"));
  EXPECT_THAT(After(kSymbolic, {{kPadTo, 0, 32}}), HasSubstr("variables"));
}

TEST(Kernel, ProductsCountWhatBeamLimits) {
  UOpGraph graph;
  Kernel k = Made(kMatmul, graph);
  ASSERT_TRUE(k.ApplyAll({{kUpcast, 0, 4}, {kUnroll, 0, 3}, {kLocal, 1, 8}, {kGroup, 0, 16}}).ok());
  EXPECT_EQ(k.UpcastProduct(), 12);
  EXPECT_EQ(k.LocalProduct(), 128);
}

TEST(Kernel, NameSpellsTheShape) {
  UOpGraph graph;
  EXPECT_EQ(Made(kMatmul, graph).name(), "r_64_64_96");
  EXPECT_EQ(Made(kElementwise, graph).name(), "E_60");
  EXPECT_EQ(Made(kSymbolic, graph).name(), "r_32_n");
}

TEST(Kernel, ShapesThatDoNotFitAreRefused) {
  UOpGraph graph;
  const UOp sink = Parsed(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = VIEW void view[shape (5) strides (1) offset 0]
%3 = LOAD float32 (%0, %1)
%4 = LOAD float32 (%0, %2)
%5 = ADD float32 (%3, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))",
                          graph);
  const absl::Status status = Kernel::Create(sink, Target(TargetKind::kCpu)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("ADD: sources of shapes (4) and (5)"));
}

}  // namespace
}  // namespace beamd

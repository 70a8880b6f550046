#include <gtest/gtest.h>

#include "engine/kernel/kernel.h"
#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::ColumnReduce;
using ::beamd::testing::kElementwise;
using ::beamd::testing::kMatmul;
using ::beamd::testing::Made;

std::string Chosen(absl::string_view text, TargetKind kind) {
  UOpGraph graph;
  return ToString(HandCodedOptimizations(Made(text, graph, kind)).applied_opts());
}

TEST(Heuristics, MatmulIsTiledFourByFourByFour) {
  EXPECT_EQ(Chosen(kMatmul, TargetKind::kCpu), "UPCAST(1, 4) UPCAST(0, 4) UNROLL(0, 4)");
}

TEST(Heuristics, ContiguousWorkIsVectorised) {
  EXPECT_EQ(Chosen(kElementwise, TargetKind::kCpu), "UPCAST(0, 4)");
}

TEST(Heuristics, ShortReductionsUnroll) {
  EXPECT_EQ(Chosen(ColumnReduce("MAX", "EXP2"), TargetKind::kCpu), "UNROLL(0, 0)");
}

TEST(Heuristics, LocalsPreferAxesThatABufferRepeats) {
  EXPECT_EQ(Chosen(kMatmul, TargetKind::kCuda),
            "UPCAST(1, 4) UPCAST(0, 4) UNROLL(0, 4) LOCAL(0, 8) LOCAL(1, 16)");
}

TEST(Heuristics, LongReductionsOfFewOutputsAreGrouped) {
  EXPECT_EQ(Chosen(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1) strides (0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (4096) strides (1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (0)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))",
                   TargetKind::kCuda),
            "GROUPTOP(0, 256)");
}

TEST(Heuristics, MatrixTimesVectorSharesRows) {
  EXPECT_EQ(Chosen(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (64,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (64,128) strides (0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (64,128) strides (128,1) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (1)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))",
                   TargetKind::kHip),
            "GROUP(0, 8) LOCAL(0, 4) UPCAST(0, 4)");
}

TEST(Heuristics, ShortMaskedAxesAreUpcast) {
  // Two rows stacked: each load is valid on one of them.
  EXPECT_EQ(Chosen(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (2,30) strides (30,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (2,30) strides (0,1) offset 0 mask (0:1,0:30)]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (2,30) strides (0,1) offset 0 mask (1:2,0:30)]
%7 = LOAD float32 (%5, %6)
%8 = ADD float32 (%4, %7)
%9 = STORE void (%0, %1, %8)
%10 = SINK void (%9))",
                   TargetKind::kCpu),
            "UPCAST(0, 0)");
}

TEST(Heuristics, AnImageIsWrittenFourAtATime) {
  UOpGraph graph;
  const Kernel k = Made(R"(
%0 = DEFINE_GLOBAL image(8,16,4) float16 slot 0
%1 = VIEW void view[shape (8,16,4) strides (64,4,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (8,16,4) strides (0,0,0) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5))",
                        graph);
  // The image's rows, columns and channels are not merged.
  EXPECT_EQ(k.shape_len(), 3);
  EXPECT_EQ(ToString(RequiredOptimizations(k).applied_opts()), "UPCAST(2, 4)");
}

}  // namespace
}  // namespace beamd

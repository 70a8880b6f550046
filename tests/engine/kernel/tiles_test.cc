#include "engine/kernel/tiles.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::ColumnReduce;
using ::beamd::testing::kElementwise;
using ::beamd::testing::kMatmul;
using ::beamd::testing::Made;

std::string Enlarged(absl::string_view text, TargetKind kind = TargetKind::kCpu) {
  UOpGraph graph;
  const Kernel scheduled = HandCodedOptimizations(Made(text, graph, kind));
  return ToString(EnlargeTiles(scheduled).applied_opts());
}

TEST(Tiles, AProductGrowsBothOfItsAxes) {
  EXPECT_EQ(Enlarged(kMatmul), "UPCAST(1, 4) UPCAST(0, 4) UNROLL(0, 4) UPCAST(1, 2) UPCAST(0, 2)");
}

TEST(Tiles, ABatchAxisSharesNothing) {
  EXPECT_EQ(Enlarged(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (8,64,64,1) strides (4096,64,1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (8,64,64,96) strides (6144,96,0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (8,64,64,96) strides (6144,0,1,64) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (3)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))"),
            "UPCAST(2, 4) UPCAST(1, 4) UNROLL(0, 4) UPCAST(2, 2) UPCAST(1, 2)");
}

TEST(Tiles, ColumnsAreSummedSideBySide) {
  const std::string columns =
      absl::StrReplaceAll(ColumnReduce("ADD", "EXP2"), {{"30", "64"}, {"20", "128"}});
  EXPECT_EQ(Enlarged(columns), "UNROLL(0, 4) UPCAST(0, 4) UPCAST(0, 2) UPCAST(0, 2)");
}

TEST(Tiles, RowsAreNot) {
  EXPECT_EQ(Enlarged(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (64,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (64,128) strides (128,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (1)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"),
            "UNROLL(0, 4)");
}

TEST(Tiles, KernelsWithoutAReductionOrWithLocalAxesStayAsTheyAre) {
  EXPECT_EQ(Enlarged(kElementwise), "UPCAST(0, 4)");
  EXPECT_EQ(Enlarged(kMatmul, TargetKind::kCuda),
            "UPCAST(1, 4) UPCAST(0, 4) UNROLL(0, 4) LOCAL(0, 8) LOCAL(1, 16)");
}

}  // namespace
}  // namespace beamd

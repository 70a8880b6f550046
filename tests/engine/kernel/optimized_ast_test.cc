#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/kernel/kernel.h"
#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::ColumnReduce;
using ::beamd::testing::kMatmul;
using ::beamd::testing::Made;

// The optimised graph's nodes, numbered, views left out.
std::string Optimized(absl::string_view text, const std::vector<Opt>& opts) {
  UOpGraph graph, result;
  Kernel k = Made(text, graph);
  BEAMD_CHECK(k.ApplyAll(opts).ok(), "legal opts");
  return absl::StrCat("\n", ToText(k.OptimizedAst(result)));
}

TEST(OptimizedAst, CarriesTheNewViewsAndTheKernelInfo) {
  EXPECT_EQ(Optimized(kMatmul, {{OptOp::kUpcast, 0, 4}, {OptOp::kLocal, 1, 8}}), R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16,8,8,1,4) strides (256,8,1,0,64) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (16,8,8,96,4) strides (384,0,0,1,96) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (16,8,8,96,4) strides (0,8,1,64,0) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (3)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10) kernel local_dims 1 upcasted 1 dont_use_locals false
)");
}

TEST(OptimizedAst, GroupedReductionMeetsInSharedMemory) {
  EXPECT_EQ(Optimized(ColumnReduce("MAX", "SQRT"),
                      {{OptOp::kLocal, 0, 3}, {OptOp::kGroup, 0, 4}, {OptOp::kUpcast, 0, 2}}),
            R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (5,3,1,1,2) strides (6,1,0,0,3) offset 0]
%2 = DEFINE_LOCAL local float32* "temp1"
%3 = VIEW void view[shape (1,3,4,1,2) strides (0,8,2,0,1) offset 0]
%4 = DEFINE_GLOBAL global float32* slot 1
%5 = VIEW void view[shape (5,3,4,5,2) strides (6,1,30,120,3) offset 0]
%6 = LOAD float32 (%4, %5)
%7 = SQRT float32 (%6)
%8 = REDUCE_AXIS float32 (%7) MAX axes (3)
%9 = STORE void (%2, %3, %8)
%10 = LOAD float32 (%2, %3, %9)
%11 = REDUCE_AXIS float32 (%10) MAX axes (2)
%12 = STORE void (%0, %1, %11)
%13 = SINK void (%12) kernel local_dims 1 upcasted 1 dont_use_locals false
)");
}

TEST(OptimizedAst, UnrolledReductionKeepsItsAxis) {
  EXPECT_EQ(Optimized(ColumnReduce("ADD", "SQRT"), {{OptOp::kUnroll, 0, 0}}), R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (30,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (30,20) strides (1,30) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = SQRT float32 (%4)
%6 = REDUCE_AXIS float32 (%5) ADD axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7) kernel local_dims 0 upcasted 1 dont_use_locals false
)");
}

TEST(OptimizedAst, ReductionOfOneElementIsItsSource) {
  EXPECT_EQ(Optimized(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = REDUCE_AXIS float32 (%3) ADD axes (1)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5))",
                      {}),
            R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4) kernel local_dims 0 upcasted 0 dont_use_locals false
)");
}

}  // namespace
}  // namespace beamd

#include "engine/kernel/vector_products.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "engine/kernel/tiles.h"
#include "gtest/gtest.h"
#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::ColumnReduce;
using ::beamd::testing::kElementwise;
using ::beamd::testing::kMatmul;
using ::beamd::testing::Parsed;

Kernel Fresh(absl::string_view text, UOpGraph& graph, TargetKind kind = TargetKind::kCpu) {
  static const TargetCaps avx2 = [] {
    TargetCaps caps = CorpusTarget(TargetKind::kCpu);
    caps.vector_bytes = 32;
    return caps;
  }();
  const absl::StatusOr<Kernel> kernel =
      Kernel::Create(Parsed(text, graph), kind == TargetKind::kCpu ? avx2 : testing::Target(kind));
  BEAMD_CHECK(kernel.ok(), kernel.status().message());
  return *kernel;
}

std::string Chosen(absl::string_view text) {
  UOpGraph graph;
  return ToString(CpuOptimizations(Fresh(text, graph)).applied_opts());
}

// The second factor is transposed: both run along the reduction.
std::string Transposed() {
  return absl::StrReplaceAll(kMatmul, {{"strides (0,1,64)", "strides (0,96,1)"}});
}

void ExpectLargerTiles(absl::string_view text, TargetKind kind = TargetKind::kCpu) {
  UOpGraph graph;
  const Kernel fresh = Fresh(text, graph, kind);
  EXPECT_EQ(CpuOptimizations(fresh).applied_opts(),
            EnlargeTiles(HandCodedOptimizations(fresh)).applied_opts());
}

TEST(VectorProducts, TwoVectorsOfTheResultOverFourRows) {
  EXPECT_EQ(Chosen(kMatmul), "UPCAST(1, 16) UPCAST(0, 4)");
}

TEST(VectorProducts, AVectorOfTheReductionWhereBothFactorsRunAlongIt) {
  EXPECT_EQ(Chosen(Transposed()), "UNROLL(0, 8) UPCAST(1, 2) UPCAST(0, 4)");
}

TEST(VectorProducts, RowsThatFourDoesNotDivide) {
  EXPECT_EQ(Chosen(absl::StrReplaceAll(kMatmul, {{"(64,64,", "(10,64,"}})),
            "UPCAST(1, 16) UPCAST(0, 5)");
  EXPECT_EQ(Chosen(absl::StrReplaceAll(Transposed(), {{"(64,64,", "(10,64,"}})),
            "UNROLL(0, 8) UPCAST(1, 2) UPCAST(0, 5)");
}

TEST(VectorProducts, OneVectorWhereTwoDoNotDivide) {
  EXPECT_EQ(
      Chosen(absl::StrReplaceAll(
          kMatmul, {{"(64,64,", "(64,24,"}, {"(64,1,0)", "(24,1,0)"}, {"(0,1,64)", "(0,1,24)"}})),
      "UPCAST(1, 8) UPCAST(0, 4)");
}

TEST(VectorProducts, WiderElementsAreFewerLanes) {
  EXPECT_EQ(Chosen(absl::StrReplaceAll(kMatmul, {{"float32", "float64"}})),
            "UPCAST(1, 8) UPCAST(0, 4)");
}

TEST(VectorProducts, LeaveTheRestToLargerTiles) {
  ExpectLargerTiles(kElementwise);
  ExpectLargerTiles(ColumnReduce("ADD", "EXP2"));
  // No vector divides the columns.
  ExpectLargerTiles(absl::StrReplaceAll(
      kMatmul, {{"(64,64,", "(64,63,"}, {"(64,1,0)", "(63,1,0)"}, {"(0,1,64)", "(0,1,63)"}}));
  // Not a sum; not a product of two loads; not a CPU.
  ExpectLargerTiles(absl::StrReplaceAll(kMatmul, {{"ADD axes", "MAX axes"}}));
  ExpectLargerTiles(absl::StrReplaceAll(kMatmul, {{"MUL float32", "ADD float32"}}));
  ExpectLargerTiles(kMatmul, TargetKind::kCuda);
}

}  // namespace
}  // namespace beamd

#include "engine/kernel/tensor_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/engine/kernel/graphs.h"

namespace beamd {
namespace {

using ::beamd::testing::After;
using ::beamd::testing::Made;
using ::testing::HasSubstr;

constexpr TargetKind kCpu = TargetKind::kCpu, kCuda = TargetKind::kCuda, kHip = TargetKind::kHip;
constexpr Opt kTc{OptOp::kTc, 0, 0}, kTcMore{OptOp::kTc, 0, 1}, kTcPads{OptOp::kTc, 0, 2};

struct Product {
  int m = 64, n = 128, k = 256;
  absl::string_view in = "float16", out = "float32";
  absl::string_view op = "ADD";
};

// (m,n) = (m,k) times (k,n).
std::string Text(const Product& p) {
  const bool casts = p.in != p.out;
  return absl::StrReplaceAll(R"(
%0 = DEFINE_GLOBAL global $out* slot 0
%1 = VIEW void view[shape ($m,$n,1) strides ($n,1,0) offset 0]
%2 = DEFINE_GLOBAL global $in* slot 1
%3 = VIEW void view[shape ($m,$n,$k) strides ($k,0,1) offset 0]
%4 = LOAD $in (%2, %3)
%5 = DEFINE_GLOBAL global $in* slot 2
%6 = VIEW void view[shape ($m,$n,$k) strides (0,1,$n) offset 0]
%7 = LOAD $in (%5, %6)
%8 = MUL $in (%4, %7)
$cast%10 = REDUCE_AXIS $out ($summed) $op axes (2)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))",
                             {{"$m", absl::StrCat(p.m)},
                              {"$n", absl::StrCat(p.n)},
                              {"$k", absl::StrCat(p.k)},
                              {"$in", p.in},
                              {"$out", p.out},
                              {"$op", p.op},
                              {"$cast", casts ? absl::StrCat("%9 = CAST ", p.out, " (%8)\n") : ""},
                              {"$summed", casts ? "%9" : "%8"}});
}

std::string After(const Product& product, const std::vector<Opt>& opts, TargetKind kind = kCuda) {
  UOpGraph graph;
  return After(Made(Text(product), graph, kind), opts);
}

std::string Chosen(const Product& product, TargetKind kind) {
  UOpGraph graph;
  return ToString(HandCodedOptimizations(Made(Text(product), graph, kind)).applied_opts());
}

TEST(TensorCore, SplitsMakeTheTileAndTheWarp) {
  for (const TargetKind kind : {kCuda, kHip}) {
    const std::span<const TensorCore> cores = TensorCoresOf(testing::Target(kind));
    EXPECT_FALSE(cores.empty());
    for (const TensorCore& core : cores) {
      std::array<int32_t, kTileDims> dims = {1, 1, 1};
      int64_t threads = 1;
      for (const TensorCore::Split& split : core.splits) {
        dims[split.dim] *= split.amount;
        if (split.op == OptOp::kLocal) threads *= split.amount;
      }
      EXPECT_EQ(dims, core.dims);
      EXPECT_EQ(threads, 32);
      EXPECT_EQ(threads * core.ElementsPerThread(),
                int64_t{core.dims[kTileN]} * core.dims[kTileM] * core.dims[kTileK]);
    }
  }
}

TEST(TensorCore, ThereAreSomeFromTuringOnAndOfFourFamiliesOfAmds) {
  auto has_some = [](TargetKind kind, absl::string_view arch) {
    TargetCaps caps = testing::Target(kind);
    caps.arch = std::string(arch);
    return !TensorCoresOf(caps).empty();
  };
  EXPECT_TRUE(has_some(kCuda, "sm_80"));
  EXPECT_TRUE(has_some(kCuda, "sm_90"));
  EXPECT_TRUE(has_some(kCuda, "sm_120"));
  EXPECT_TRUE(has_some(kCuda, "sm_75"));
  EXPECT_FALSE(has_some(kCuda, "sm_70"));
  EXPECT_FALSE(has_some(kCuda, "unknown"));
  EXPECT_TRUE(has_some(kHip, "gfx1100"));
  EXPECT_TRUE(has_some(kHip, "gfx1201"));
  EXPECT_TRUE(has_some(kHip, "gfx90a"));
  EXPECT_TRUE(has_some(kHip, "gfx942"));
  EXPECT_FALSE(has_some(kHip, "gfx908"));
  EXPECT_FALSE(has_some(kHip, "gfx1250"));
  EXPECT_FALSE(has_some(kCpu, "znver4"));
}

TEST(TensorCore, AxesAreSplitIntoTilesWarpsAndLanes) {
  EXPECT_EQ(After({}, {kTc}),
            "4 blue, 16 blue, 2 cyan, 2 cyan, 2 cyan, 2 cyan, 2 cyan, 16 red, 8 magenta, "
            "2 magenta, 2 yellow, 2 yellow");
  EXPECT_EQ(After({}, {kTc}, kHip),
            "4 blue, 8 blue, 8 cyan, 2 cyan, 2 cyan, 16 red, 16 magenta, 8 yellow");
}

TEST(TensorCore, AnAxisOfOneTileVanishes) {
  EXPECT_EQ(After({.m = 16, .n = 8, .k = 16}, {kTc}),
            "2 cyan, 2 cyan, 2 cyan, 2 cyan, 2 cyan, 8 magenta, 2 magenta, 2 yellow, 2 yellow");
  UOpGraph graph;
  Kernel k = Made(Text({.m = 16}), graph);
  ASSERT_TRUE(k.Apply(kTc).ok());
  EXPECT_EQ(k.TileAxis(kTileM), std::nullopt);
  EXPECT_EQ(k.TileAxis(kTileN), 0);
}

TEST(TensorCore, ASwapMovesTheAxesOfTiles) {
  UOpGraph graph;
  Kernel k = Made(Text({}), graph);
  ASSERT_TRUE(k.ApplyAll({kTc, {OptOp::kSwap, 0, 1}}).ok());
  EXPECT_EQ(k.TileAxis(kTileM), 1);
  EXPECT_EQ(k.TileAxis(kTileN), 0);
}

TEST(TensorCore, TypesAreThoseOfTheTarget) {
  const Product bf16{.in = "bfloat16"}, f16{.out = "float16"};
  EXPECT_THAT(After(bf16, {kTc}), HasSubstr("cyan"));
  EXPECT_THAT(After(bf16, {kTc}, kHip), HasSubstr("no tensor core fits"));
  EXPECT_THAT(After(f16, {kTc}), HasSubstr("no tensor core fits"));
  EXPECT_THAT(After(f16, {kTc}, kHip), HasSubstr("cyan"));
  EXPECT_THAT(After({.in = "float32"}, {kTc}), HasSubstr("no tensor core fits"));
  EXPECT_THAT(After({}, {kTc}, kCpu), HasSubstr("the target has no tensor cores"));
}

TEST(TensorCore, OffRefusesTheOptAndShapesAloneTakeIt) {
  UOpGraph graph;
  const UOp sink = testing::Parsed(Text({}), graph);
  TargetCaps caps = testing::Target(kCuda);
  caps.tensor_cores = TensorCoreUse::kOff;
  Kernel off = Kernel::Create(sink, caps).value();
  EXPECT_THAT(After(off, {kTc}), HasSubstr("tensor cores are off"));
  EXPECT_EQ(HandCodedOptimizations(off).tensor_core(), nullptr);
  TargetCaps shapes_caps = testing::Target(kCuda);
  shapes_caps.tensor_cores = TensorCoreUse::kShapes;
  const Kernel shapes = Kernel::Create(sink, shapes_caps).value();
  EXPECT_EQ(After(shapes, {kTc}), After({}, {kTc}));
  EXPECT_EQ(ToString(HandCodedOptimizations(shapes).applied_opts()), Chosen({}, kCuda));
}

TEST(TensorCore, OnlySumsAreProducts) {
  EXPECT_THAT(After({.op = "MAX"}, {kTc}), HasSubstr("TC is for sums"));
  UOpGraph graph;
  EXPECT_THAT(After(Made(testing::kElementwise, graph), {kTc}), HasSubstr("TC is for sums"));
}

TEST(TensorCore, OtherSizesArePaddedAtLevelTwo) {
  const Product ragged{.m = 30, .n = 12, .k = 20};
  EXPECT_THAT(After(ragged, {kTc}), HasSubstr("no tensor core fits"));
  EXPECT_THAT(After(ragged, {kTcMore}), HasSubstr("no tensor core fits"));
  EXPECT_EQ(After(ragged, {kTcPads}),
            "2 blue, 2 blue, 2 cyan, 2 cyan, 2 cyan, 2 cyan, 2 cyan, 2 red, 8 magenta, 2 magenta, "
            "2 yellow, 2 yellow");
  EXPECT_THAT(After({.m = 4}, {kTcPads}), HasSubstr("quadruples"));
}

// Factors are converted on the way in.
TEST(TensorCore, CastFactorsAreForLevelOne) {
  const std::string text = absl::StrReplaceAll(
      Text({}),
      {{"%2 = DEFINE_GLOBAL global float16*", "%2 = DEFINE_GLOBAL global float32*"},
       {"%4 = LOAD float16 (%2, %3)", "%20 = LOAD float32 (%2, %3)\n%4 = CAST float16 (%20)"}});
  UOpGraph graph;
  EXPECT_THAT(After(Made(text, graph), {kTc}), HasSubstr("no tensor core fits"));
  EXPECT_THAT(After(Made(text, graph), {kTcMore}), HasSubstr("cyan"));
}

// m(16) n(8), summed over k(16) and l(32), which no factor has side by side.
constexpr absl::string_view kTwoReduced = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16,8,1,1) strides (8,1,0,0) offset 0]
%2 = DEFINE_GLOBAL global float16* slot 1
%3 = VIEW void view[shape (16,8,16,32) strides (512,0,32,1) offset 0]
%4 = LOAD float16 (%2, %3)
%5 = DEFINE_GLOBAL global float16* slot 2
%6 = VIEW void view[shape (16,8,16,32) strides (0,512,1,16) offset 0]
%7 = LOAD float16 (%5, %6)
%8 = MUL float16 (%4, %7)
%9 = CAST float32 (%8)
%10 = REDUCE_AXIS float32 (%9) ADD axes (2,3)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))";

TEST(TensorCore, TheAxisChoosesAmongReducedOnesTheLastFirst) {
  UOpGraph graph;
  const Kernel k = Made(kTwoReduced, graph);
  const std::string warp = "2 cyan, 2 cyan, 2 cyan, 2 cyan, 2 cyan, ";
  const std::string tile = "8 magenta, 2 magenta, 2 yellow, 2 yellow";
  EXPECT_THAT(After(k, {kTc}), HasSubstr("no tensor core fits"));
  EXPECT_EQ(After(k, {{OptOp::kTc, 0, 1}}), warp + "16 red, 2 red, " + tile);
  EXPECT_EQ(After(k, {{OptOp::kTc, 1, 1}}), warp + "32 red, " + tile);
  EXPECT_THAT(After(k, {{OptOp::kTc, 2, 1}}), HasSubstr("no tensor core fits"));
}

TEST(TensorCore, ComesFirst) {
  EXPECT_THAT(After({}, {{OptOp::kUpcast, 0, 2}, kTc}), HasSubstr("TC comes first"));
  EXPECT_THAT(After({}, {kTc, kTc}), HasSubstr("TC comes first"));
  EXPECT_THAT(After({}, {{OptOp::kTc, 0, std::nullopt}}), HasSubstr("an axis and an amount"));
  EXPECT_THAT(After({}, {{OptOp::kTc, -1, 0}}), HasSubstr("negative"));
}

// Every table there is.
std::vector<TargetCaps> Machines() {
  std::vector<TargetCaps> machines;
  for (const auto& [kind, arch] : {std::pair(kCuda, "sm_75"),
                                   {kCuda, "sm_80"},
                                   {kCuda, "sm_90"},
                                   {kHip, "gfx1100"},
                                   {kHip, "gfx1201"},
                                   {kHip, "gfx90a"},
                                   {kHip, "gfx942"}}) {
    TargetCaps& caps = machines.emplace_back(CorpusTarget(kind));
    caps.arch = arch;
    caps.allow_tf32 = true;
  }
  return machines;
}

TEST(TensorCore, ALayoutHoldsEveryElementOfItsMatrixOnceARepeatingLaneApart) {
  for (const TargetCaps& caps : Machines()) {
    ASSERT_FALSE(TensorCoresOf(caps).empty()) << caps.arch;
    for (const TensorCore& core : TensorCoresOf(caps)) {
      const std::pair<const TensorCore::Layout*, std::array<TileDim, 2>> operands[] = {
          {&core.a, {kTileM, kTileK}}, {&core.b, {kTileK, kTileN}}, {&core.c, {kTileM, kTileN}}};
      for (const auto& [layout, dims] : operands) {
        std::array<std::vector<int>, kTileDims> bits;
        for (const auto part : {layout->lane, layout->element}) {
          for (const TensorCore::Bit bit : part) {
            if (!bit.repeats()) bits[bit.dim].push_back(bit.bit);
          }
        }
        for (const TileDim dim : {kTileN, kTileM, kTileK}) {
          std::sort(bits[dim].begin(), bits[dim].end());
          std::vector<int> all;
          if (dim == dims[0] || dim == dims[1]) {
            for (int bit = 0; 1 << bit < core.dims[dim]; ++bit) all.push_back(bit);
          }
          EXPECT_EQ(bits[dim], all) << caps.arch << " dim " << int{dim};
        }
      }
    }
  }
}

TEST(TensorCore, ItsSplitsGiveALaneTheElementsThatItsLayoutSays) {
  for (const TargetCaps& caps : Machines()) {
    for (const TensorCore& core : TensorCoresOf(caps)) {
      std::array<int64_t, kTileDims> sides = {1, 1, 1};
      std::vector<TileDim> lanes, elements, lane_dims, element_dims;
      for (const TensorCore::Split& split : core.splits) {
        sides[split.dim] *= split.amount;
        if (split.op == OptOp::kUnroll) continue;
        for (int n = split.amount; n > 1; n /= 2) {
          (split.op == OptOp::kLocal ? lanes : elements).push_back(split.dim);
        }
      }
      for (const TensorCore::Bit bit : core.c.lane) lane_dims.push_back(bit.dim);
      for (const TensorCore::Bit bit : core.c.element) element_dims.push_back(bit.dim);
      EXPECT_EQ(lanes, lane_dims) << caps.arch;
      EXPECT_EQ(elements, element_dims) << caps.arch;
      for (const TileDim dim : {kTileN, kTileM, kTileK}) EXPECT_EQ(sides[dim], core.dims[dim]);
    }
  }
}

TEST(TensorCore, RoundedFactorsAreForThoseWhoAllowThem) {
  TargetCaps caps = CorpusTarget(kCuda);
  const size_t exact = TensorCoresOf(caps).size();
  caps.allow_tf32 = true;
  EXPECT_EQ(TensorCoresOf(caps).size(), exact + 1);
  EXPECT_EQ(TensorCoresOf(caps).back().in, Scalar::kFloat32);
}

TEST(TensorCore, ForbidsGroupsAndUpcastsOfItsThreads) {
  EXPECT_THAT(After({}, {kTc, {OptOp::kGroup, 0, 4}}), HasSubstr("GROUP with tensor cores"));
  EXPECT_THAT(After({}, {kTc, {OptOp::kUpcast, 2, 0}}), HasSubstr("tensor core's threads"));
  // A local axis that was added later is no thread of the tile's.
  EXPECT_THAT(After({}, {kTc, {OptOp::kLocal, 0, 4}, {OptOp::kUpcast, 6, 0}}),
              HasSubstr("4 yellow"));
}

TEST(TensorCore, ARefusalChangesNothing) {
  UOpGraph graph;
  Kernel k = Made(Text({.m = 4}), graph);
  const std::string before = testing::Axes(k);
  EXPECT_FALSE(k.Apply(kTcPads).ok());
  EXPECT_EQ(testing::Axes(k), before);
  EXPECT_TRUE(k.applied_opts().empty());
  EXPECT_EQ(k.tensor_core(), nullptr);
}

TEST(TensorCore, ItsTileCountsAsOneElementAThread) {
  UOpGraph graph;
  Kernel k = Made(Text({}), graph);
  ASSERT_TRUE(k.ApplyAll({kTc, {OptOp::kUpcast, 0, 4}}).ok());
  EXPECT_EQ(k.UpcastProduct(), 4);
  EXPECT_EQ(k.LocalProduct(), 32);
}

TEST(TensorCore, HeuristicsTakeThemWhereTheyFit) {
  EXPECT_EQ(Chosen({}, kCuda), "TC(0, 0) UPCAST(0, 4) UPCAST(0, 4) LOCAL(0, 4)");
  EXPECT_EQ(Chosen({.m = 128}, kCuda), "TC(0, 0) UPCAST(0, 4) UPCAST(1, 4) LOCAL(1, 4)");
  EXPECT_EQ(Chosen({.m = 16, .n = 8}, kHip).find("TC"), std::string::npos);
  EXPECT_EQ(Chosen({.m = 30}, kCuda).find("TC"), std::string::npos);
  EXPECT_EQ(Chosen({}, kCpu).find("TC"), std::string::npos);
}

}  // namespace
}  // namespace beamd

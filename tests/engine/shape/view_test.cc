#include "engine/shape/view.h"

#include <array>

#include "gtest/gtest.h"

namespace beamd {
namespace {

using Pairs = std::vector<std::pair<SInt, SInt>>;

TEST(View, CreateIsRowMajorAndContiguousByDefault) {
  const View v = View::Create({2, 3, 4});
  EXPECT_EQ(v.strides, (Shape{12, 4, 1}));
  EXPECT_TRUE(v.contiguous);
  EXPECT_EQ(v.size(), SInt(24));
  EXPECT_EQ(View::Create({}).strides, Shape{});
}

TEST(View, CreateZeroesStridesOfUnitAxes) {
  EXPECT_EQ(View::Create({2, 1, 3}, Shape{3, 99, 1}), View::Create({2, 1, 3}));
}

TEST(View, CreateDropsAFullMask) {
  EXPECT_EQ(View::Create({2, 3}, std::nullopt, 0, Mask{{0, 2}, {0, 3}}), View::Create({2, 3}));
}

TEST(View, CreateMovesTheOnlyValidElementIntoTheOffset) {
  const View v = View::Create({4, 3}, std::nullopt, 5, Mask{{2, 3}, {0, 3}});
  EXPECT_EQ(v.strides, (Shape{0, 1}));
  EXPECT_EQ(v.offset, SInt(11));
}

TEST(View, CreateGivesOneFormToNothingValid) {
  const View v = View::Create({4, 3}, std::nullopt, 5, Mask{{1, 4}, {2, 2}});
  EXPECT_EQ(v.mask, (Mask{{0, 0}, {0, 0}}));
  EXPECT_EQ(v.strides, (Shape{0, 0}));
  EXPECT_EQ(v.offset, SInt(0));
}

TEST(View, CreateGivesOneFormToNoElements) {
  const View v = View::Create({4, 0}, Shape{7, 3}, 5, Mask{{1, 2}, {0, 0}});
  EXPECT_EQ(v, View::Create({4, 0}));
  EXPECT_TRUE(v.contiguous);
}

TEST(View, ReshapeSplitsAndMergesWhatOneStrideWalks) {
  const View rows = View::Create({4, 6}, Shape{8, 1});
  EXPECT_EQ(rows.Reshape({2, 2, 2, 3}), View::Create({2, 2, 2, 3}, Shape{16, 8, 3, 1}));
  EXPECT_EQ(rows.Reshape({2, 2, 2, 3})->Reshape({4, 6}), rows);
  EXPECT_EQ(rows.Reshape({24}), std::nullopt);
}

TEST(View, ReshapeMergesBroadcastAxes) {
  EXPECT_EQ(View::Create({2, 3, 5}, Shape{0, 0, 1}).Reshape({6, 5}),
            View::Create({6, 5}, Shape{0, 1}));
  EXPECT_EQ(View::Create({3, 5}, Shape{0, 1}).Reshape({15}), std::nullopt);
  EXPECT_EQ(View::Create({3, 5}, Shape{1, 0}).Reshape({15}), std::nullopt);
}

TEST(View, ReshapeCarriesAMaskWhereABoxCanSayIt) {
  const View padded = View::Create({8, 3}).Pad(Pairs{{4, 4}, {0, 0}});
  EXPECT_EQ(padded.Reshape({4, 4, 3}),
            View::Create({4, 4, 3}, Shape{12, 3, 1}, -12, Mask{{1, 3}, {0, 4}, {0, 3}}));
  EXPECT_EQ(padded.Reshape({48}), View::Create({48}, Shape{1}, -12, Mask{{12, 36}}));
  const View cut = View::Create({6}).Pad(Pairs{{1, 1}});
  EXPECT_EQ(cut.Reshape({2, 4}), std::nullopt);
}

TEST(View, ReshapeOfAMaskedElementToRankZeroTakesTwoViews) {
  const View nothing = View::Create({1}, std::nullopt, 0, Mask{{0, 0}});
  EXPECT_EQ(nothing.Reshape({}), std::nullopt);
}

TEST(View, PadAndShrinkUndoEachOther) {
  const View v = View::Create({4, 6});
  const View padded = v.Pad(Pairs{{1, 2}, {0, 3}});
  EXPECT_EQ(padded, View::Create({7, 9}, Shape{6, 1}, -6, Mask{{1, 5}, {0, 6}}));
  EXPECT_EQ(padded.Shrink(Pairs{{1, 5}, {0, 6}}), v);
  EXPECT_EQ(v.Pad(Pairs{{0, 0}, {0, 0}}), v);
}

TEST(View, ExpandKeepsTheMaskOfAUnitAxis) {
  const View valid = View::Create({3, 1}, std::nullopt, 0, Mask{{1, 3}, {0, 1}});
  EXPECT_EQ(valid.Expand({3, 5}).mask, (Mask{{1, 3}, {0, 5}}));
}

TEST(View, StrideFlipsBeforeItSkips) {
  const std::array<int64_t, 1> backwards = {-2};
  EXPECT_EQ(View::Create({5}).Stride(backwards), View::Create({3}, Shape{-2}, 4));
  const std::array<int, 1> axis = {0};
  EXPECT_EQ(View::Create({5}).Flip(axis).Flip(axis), View::Create({5}));
}

TEST(View, ComposeProjectsStridesOntoTheInnerView) {
  const View inner = View::Create({4, 6}, Shape{1, 4});
  EXPECT_EQ(inner.Compose(View::Create({2, 6}, Shape{12, 1})), View::Create({2, 6}, Shape{2, 4}));
  EXPECT_EQ(inner.Compose(View::Create({24})), std::nullopt);
}

TEST(View, ComposeProjectsTheInnerMask) {
  const View inner = View::Create({4}).Pad(Pairs{{2, 2}});
  EXPECT_EQ(inner.Compose(View::Create({4}, Shape{2}, 1)),
            View::Create({4}, Shape{2}, -1, Mask{{1, 3}}));
}

TEST(View, ComposePadsBackWhatTheOuterViewMasks) {
  const View inner = View::Create({4, 6}, Shape{1, 4});
  const View outer = View::Create({6, 6}, std::nullopt, -6, Mask{{1, 5}, {0, 6}});
  EXPECT_EQ(inner.Compose(outer), View::Create({6, 6}, Shape{1, 4}, -1, Mask{{1, 5}, {0, 6}}));
}

TEST(View, ComposeOfNoElementsIsTheOuterView) {
  const View inner = View::Create({14, 3}, Shape{4, 0}, 1, Mask{{0, 12}, {1, 2}});
  EXPECT_EQ(inner.Compose(View::Create({1, 2, 0, 7})), View::Create({1, 2, 0, 7}));
}

TEST(View, ComposeKeepsApartWhatOnlyMultiplyingOutWouldMerge) {
  const View inner = View::Create({12, 3}, Shape{-3, -1}, 35);
  EXPECT_EQ(inner.Compose(View::Create({3, 4}, Shape{-4, 1}, 8)), std::nullopt);
}

TEST(View, InvertUndoesPermutationsAndFlips) {
  const std::array<int, 3> order = {2, 0, 1};
  const std::array<int, 1> axis = {1};
  const View v = View::Create({2, 3, 4}).Permute(order).Flip(axis);
  const std::optional<View> inverse = v.Invert({2, 3, 4});
  ASSERT_TRUE(inverse);
  EXPECT_EQ(v.Compose(*inverse), View::Create({2, 3, 4}));
  EXPECT_EQ(View::Create({2, 3}, Shape{0, 1}).Invert({3}), std::nullopt);
}

TEST(View, MinifyMergesAxesAndDropsUnitOnes) {
  EXPECT_EQ(View::Create({2, 1, 3, 4}).Minify(), View::Create({24}));
  EXPECT_EQ(View::Create({2, 3, 1, 4}, Shape{12, 4, 0, 1}, 5).Minify(),
            View::Create({24}, Shape{1}, 5));
  EXPECT_EQ(View::Create({2, 3}, Shape{4, 1}).Minify(), View::Create({2, 3}, Shape{4, 1}));
}

TEST(View, SizesMayBeExpressions) {
  UOpGraph graph;
  const SInt n(graph.Variable("n", 1, 10));
  const View v = View::Create({2, n, 4});
  EXPECT_EQ(v.strides, (Shape{n * 4, 4, 1}));
  EXPECT_TRUE(v.contiguous);
  EXPECT_EQ(v.Reshape({n * 2, 4}), View::Create({n * 2, 4}));
  const std::array<int, 3> order = {1, 0, 2};
  const View permuted = v.Permute(order);
  EXPECT_FALSE(permuted.contiguous);
  EXPECT_EQ(permuted.Reshape({n, 2, 2, 2}), View::Create({n, 2, 2, 2}, Shape{4, n * 4, 2, 1}));
  const View padded = v.Pad(Pairs{{0, 0}, {0, n}, {0, 0}});
  EXPECT_EQ(padded.shape, (Shape{2, n * 2, 4}));
  EXPECT_EQ(padded.Shrink(Pairs{{0, 2}, {0, n}, {0, 4}}), v);
}

TEST(View, PrintsEveryField) {
  EXPECT_EQ(ToString(View::Create({2, 3}, std::nullopt, 1, Mask{{0, 2}, {0, 2}})),
            "View(shape=(2, 3), strides=(3, 1), offset=1, mask=((0, 2), (0, 2)), "
            "contiguous=False)");
  EXPECT_EQ(ToString(View::Create({4})),
            "View(shape=(4), strides=(1), offset=0, mask=None, contiguous=True)");
}

}  // namespace
}  // namespace beamd

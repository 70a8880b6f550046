#include "engine/uop/view_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/uop/text.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;

class ViewIndexTest : public ::testing::Test {
 protected:
  UOp Parse(absl::string_view text) {
    const absl::StatusOr<UOp> root = ParseText(text, graph_);
    EXPECT_TRUE(root.ok()) << root.status();
    return *root;
  }
  // Elements of all points in row-major order; -1 where masked.
  static std::vector<int64_t> Elements(const ViewIndex& view) {
    std::vector<int64_t> elements, point(view.shape().size());
    int64_t count = 1;
    for (const int64_t dim : view.shape()) count *= dim;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i;
      for (size_t axis = point.size(); axis-- > 0;) {
        point[axis] = rest % view.shape()[axis];
        rest /= view.shape()[axis];
      }
      elements.push_back(view.Index(point).value_or(-1));
    }
    return elements;
  }
  std::vector<int64_t> ElementsOf(absl::string_view text, const VariableValues& values = {}) {
    return Elements(ViewIndex::Create(Parse(text), values).value());
  }

  UOpGraph graph_;
};

TEST_F(ViewIndexTest, OneViewIsStridesOffsetAndMask) {
  EXPECT_THAT(ElementsOf("%0 = VIEW void view[shape (2,3) strides (3,1) offset 0]"),
              ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(ElementsOf("%0 = VIEW void view[shape (2,2) strides (0,-1) offset 5]"),
              ElementsAre(5, 4, 5, 4));
  EXPECT_THAT(ElementsOf("%0 = VIEW void view[shape (4) strides (1) offset -1 mask (1:3)]"),
              ElementsAre(-1, 0, 1, -1));
  EXPECT_THAT(ElementsOf("%0 = VIEW void view[shape () strides () offset 3]"), ElementsAre(3));
  EXPECT_THAT(ElementsOf("%0 = VIEW void view[shape (2,0) strides (1,1) offset 0]"), ElementsAre());
}

TEST_F(ViewIndexTest, OuterViewsCountTheElementsOfInnerOnes) {
  // A 2x3 array transposed, then read as a row; then the same with a row of padding.
  EXPECT_THAT(ElementsOf("%0 = VIEW void view[shape (3,2) strides (1,3) offset 0] "
                         "view[shape (6) strides (1) offset 0]"),
              ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(ElementsOf("%0 = VIEW void view[shape (2,2) strides (1,2) offset -1 mask (1:2,0:2)] "
                         "view[shape (4) strides (-1) offset 3]"),
              ElementsAre(2, 0, -1, -1));
}

TEST_F(ViewIndexTest, SizesTakeTheirVariablesValues) {
  constexpr absl::string_view kText =
      "%0 = DEFINE_VAR int32 var \"n\" 1..8\n"
      "%1 = CONST int32 2\n"
      "%2 = MUL int32 (%0, %1)\n"
      "%3 = VIEW void (%0, %2) view[shape (2,$0) strides ($1,1) offset $0 mask (0:2,0:$0)]";
  EXPECT_THAT(ElementsOf(kText, {{"n", 1}}), ElementsAre(1, 3));
  EXPECT_THAT(ElementsOf(kText, {{"n", 2}}), ElementsAre(2, 3, 6, 7));
  EXPECT_FALSE(ViewIndex::Create(Parse(kText), {}).ok());
  EXPECT_FALSE(ViewIndex::Create(Parse(kText), {{"n", -1}}).ok());
}

TEST_F(ViewIndexTest, WalksValidPointsInOrder) {
  const ViewIndex view =
      ViewIndex::Create(
          Parse("%0 = VIEW void view[shape (2,3) strides (0,1) offset 0 mask (0:2,1:3)]"), {})
          .value();
  std::vector<int64_t> elements;
  view.ForEachValid([&](std::span<const int64_t> point, int64_t element, bool left_view) {
    EXPECT_EQ(view.Index(point), element);
    EXPECT_FALSE(left_view);
    elements.push_back(element);
    return elements.size() < 3;
  });
  EXPECT_THAT(elements, ElementsAre(1, 2, 1));
  EXPECT_EQ(view.WalkLength(), 4);
  EXPECT_EQ(view.WithoutRepeats().WalkLength(), 2);
}

TEST_F(ViewIndexTest, TellsAnIndexThatLeavesAnInnerView) {
  const ViewIndex view =
      ViewIndex::Create(Parse("%0 = VIEW void view[shape (2,2) strides (2,1) offset 0] "
                              "view[shape (5) strides (1) offset 0]"),
                        {})
          .value();
  bool left = false;
  const int64_t inside[] = {3}, outside[] = {4};
  view.Index(inside, &left);
  EXPECT_FALSE(left);
  view.Index(outside, &left);
  EXPECT_TRUE(left);
  EXPECT_FALSE(IndexBoundsOf(view).inside);
}

TEST_F(ViewIndexTest, BoundsOfOneViewAreExact) {
  const IndexBounds b = IndexBoundsOf(
      Parse("%0 = VIEW void view[shape (4,3) strides (-3,2) offset 9 mask (1:3,0:2)]"));
  EXPECT_TRUE(b.exact);
  EXPECT_EQ(b.index, (Interval{3, 8}));
  EXPECT_TRUE(
      IndexBoundsOf(Parse("%0 = VIEW void view[shape (4,0) strides (1,1) offset 0]")).empty);
  EXPECT_TRUE(
      IndexBoundsOf(Parse("%0 = VIEW void view[shape (4) strides (1) offset 0 mask (2:2)]")).empty);
}

TEST_F(ViewIndexTest, BoundsCoverEveryValueOfTheVariables) {
  const IndexBounds b =
      IndexBoundsOf(Parse("%0 = DEFINE_VAR int32 var \"n\" 2..8\n"
                          "%1 = CONST int32 -3\n"
                          "%2 = ADD int32 (%0, %1)\n"
                          "%3 = VIEW void (%0, %2) view[shape ($1,2) strides (1,$0) offset 0]"));
  EXPECT_FALSE(b.sizes_ok);
  EXPECT_FALSE(b.exact);
  EXPECT_EQ(b.index, (Interval{0, 12}));
}

// Chains as programs make them and as they don't: what bounds say holds for every point.
TEST_F(ViewIndexTest, BoundsHoldForRandomChains) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    ViewsArg arg;
    const int64_t count = draw(1, 4);
    for (int64_t n = 0; n < count; ++n) {
      ViewArg& v = arg.views.emplace_back();
      const int64_t rank = draw(0, 3);
      v.offset.value = draw(-6, 6);
      if (draw(0, 1) == 1) v.mask.emplace();
      for (int64_t i = 0; i < rank; ++i) {
        const int64_t dim = draw(0, 9) == 0 ? 0 : draw(1, 5);
        v.shape.push_back({dim, -1});
        v.strides.push_back({draw(-4, 4), -1});
        const int64_t begin = draw(0, dim);
        if (v.mask) v.mask->push_back({{begin, -1}, {draw(begin, dim), -1}});
      }
    }
    const UOp view = graph_.Make(Op::kView, DType(), {}, graph_.Intern(arg));
    const ViewIndex index = ViewIndex::Create(view, {}).value();
    const IndexBounds bounds = IndexBoundsOf(view);
    bool any = false;
    Interval seen{INT64_MAX, INT64_MIN};
    index.ForEachValid([&](std::span<const int64_t>, int64_t element, bool left_view) {
      any = true;
      EXPECT_TRUE(!left_view || !bounds.inside) << ToText(view);
      if (!left_view) seen = {std::min(seen.min, element), std::max(seen.max, element)};
      return true;
    });
    EXPECT_TRUE(!any || !bounds.empty) << ToText(view);
    if (!any || !bounds.inside) continue;
    EXPECT_LE(bounds.index.min, seen.min) << ToText(view);
    EXPECT_GE(bounds.index.max, seen.max) << ToText(view);
    EXPECT_TRUE(!bounds.exact || bounds.index == seen) << ToText(view);
  }
}

TEST_F(ViewIndexTest, SizeBoundsCoverEveryValue) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    const int64_t lo = draw(-5, 5), hi = lo + draw(0, 10);
    std::vector<UOp> pool = {graph_.Variable("n", lo, hi),
                             graph_.Const(Scalar::kInt32, draw(-4, 4))};
    for (int i = 0; i < 6; ++i) {
      constexpr Op kOps[] = {Op::kAdd, Op::kMul,   Op::kIdiv, Op::kMod, Op::kMax,
                             Op::kSub, Op::kCmpLt, Op::kNeg,  Op::kAnd, Op::kShl};
      const Op op = kOps[draw(0, 9)];
      const auto pick = [&] { return pool[draw(0, static_cast<int64_t>(pool.size()) - 1)]; };
      UOp u = op == Op::kNeg ? Alu(op, pick()) : Alu(op, pick(), pick());
      if (op == Op::kCmpLt) u = Cast(u, Scalar::kInt32);
      pool.push_back(u);
    }
    const Interval bounds = SizeBounds(pool.back());
    for (int64_t n = lo; n <= hi; ++n) {
      const int64_t value = SizeValue(pool.back(), {{"n", n}}).value();
      EXPECT_LE(bounds.min, value) << ToText(pool.back());
      EXPECT_GE(bounds.max, value) << ToText(pool.back());
    }
  }
}

}  // namespace
}  // namespace beamd

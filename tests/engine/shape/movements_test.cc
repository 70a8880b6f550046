#include "engine/shape/movements.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/shape/naive_indexer.h"

namespace beamd {
namespace {

using ::beamd::testing::NaiveIndexer;
using ::beamd::testing::Numbers;
using ::beamd::testing::Product;

std::vector<std::pair<int64_t, int64_t>> Pairs(const std::vector<int64_t>& values) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < values.size(); i += 2) pairs.emplace_back(values[i], values[i + 1]);
  return pairs;
}

NaiveIndexer Moved(NaiveIndexer at, const std::vector<Movement>& moves) {
  for (const Movement& move : moves) {
    const std::vector<int64_t> values = Numbers(move.values);
    const std::vector<int> axes(values.begin(), values.end());
    if (move.op == Op::kReshape) at = at.Reshape(values);
    if (move.op == Op::kExpand) at = at.Expand(values);
    if (move.op == Op::kPermute) at = at.Permute(axes);
    if (move.op == Op::kFlip) at = at.Flip(axes);
    if (move.op == Op::kPad) at = at.Pad(Pairs(values));
    if (move.op == Op::kShrink) at = at.Shrink(Pairs(values));
  }
  return at;
}

std::string Text(const std::vector<Movement>& moves) {
  std::string text;
  for (const Movement& move : moves) {
    absl::StrAppend(&text, text.empty() ? "" : " ", Name(move.op));
    for (const SInt& v : move.values) absl::StrAppend(&text, ",", ToString(v));
  }
  return text;
}
std::string TextOf(const ShapeTracker& st, const Shape& base) {
  const auto moves = MovementsOf(st, base);
  return moves ? Text(*moves) : "none";
}

void ExpectSame(const ShapeTracker& st, const std::vector<int64_t>& base) {
  const auto moves = MovementsOf(st, Shape(base.begin(), base.end()));
  ASSERT_TRUE(moves) << ToString(st);
  EXPECT_EQ(Moved(NaiveIndexer::FromShape(base), *moves), NaiveIndexer::FromViews(st.views()))
      << ToString(st) << " as " << Text(*moves);
}

TEST(MovementsOf, FindsThePlainOnesBack) {
  const Shape base = {4, 6};
  const ShapeTracker st = ShapeTracker::FromShape(base);
  EXPECT_EQ(TextOf(st, base), "");
  EXPECT_EQ(TextOf(st.Permute(std::vector{1, 0}), base), "PERMUTE,1,0");
  EXPECT_EQ(TextOf(st.Reshape({2, 12}), base), "RESHAPE,2,12");
  EXPECT_EQ(TextOf(st.Flip(std::vector{0}), base), "FLIP,0");
  EXPECT_EQ(TextOf(st.Shrink(Mask{{1, 3}, {2, 6}}), base), "SHRINK,1,3,2,6");
  EXPECT_EQ(TextOf(st.Shrink(Mask{{2, 3}, {0, 6}}), base), "SHRINK,2,3,0,6");
  EXPECT_EQ(TextOf(st.Shrink(Mask{{0, 4}, {5, 6}}).Reshape({4}), base), "SHRINK,0,4,5,6 RESHAPE,4");
  EXPECT_EQ(TextOf(st.Pad(Mask{{0, 1}, {2, 0}}), base), "PAD,0,1,2,0");
  EXPECT_EQ(TextOf(st.Reshape({4, 1, 6}).Expand({4, 5, 6}), base), "RESHAPE,4,1,6 EXPAND,4,5,6");
  EXPECT_EQ(TextOf(ShapeTracker::FromShape({}).Reshape({1, 1}).Expand({2, 3}), {}),
            "RESHAPE,1,1 EXPAND,2,3");
}

TEST(MovementsOf, KeepsSymbolicOnes) {
  UOpGraph graph;
  const SInt n(graph.Variable("n", 1, 8));
  const Shape base = {n, 4};
  const ShapeTracker st = ShapeTracker::FromShape(base);
  EXPECT_EQ(TextOf(st.Permute(std::vector{1, 0}), base), "PERMUTE,1,0");
  EXPECT_EQ(TextOf(st.Reshape({n * 4}), base), "RESHAPE,(n*4)");
  EXPECT_EQ(TextOf(ShapeTracker::FromShape({8, 4}).Shrink(Mask{{0, n}, {0, 4}}), {8, 4}),
            "SHRINK,0,n,0,4");
  EXPECT_EQ(TextOf(st.Pad(Mask{{0, 8 - n}, {0, 0}}), base), "PAD,0,((n*-1)+8),0,0");
}

TEST(MovementsOf, ShowsAnyViewOfNumbers) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 4000; ++round) {
    std::vector<View> views;
    std::vector<int64_t> base;
    // Each view anywhere inside what the one before shows.
    for (int64_t left = draw(1, 2); left > 0; --left) {
      Shape shape, strides;
      Mask mask;
      int64_t least = 0, most = 0;
      bool some = true;
      for (int64_t rank = draw(0, 3); rank > 0; --rank) {
        const int64_t size = draw(1, 4), stride = draw(-3, 5), begin = draw(0, size - 1);
        const int64_t end = draw(begin == 0 ? 1 : begin, size);
        shape.push_back(size);
        strides.push_back(stride);
        mask.emplace_back(begin, end);
        some = some && begin < end;
        const int64_t first = begin * stride, last = (end - 1) * stride;
        least += std::min(first, last);
        most += std::max(first, last);
      }
      if (!some) least = most = 0;
      const int64_t slack = draw(0, 5);
      int64_t room = most - least + 1 + slack;
      if (views.empty()) {
        base = {room};
      } else {
        room = views.back().size().number();
        if (room < most - least + 1) break;
      }
      const int64_t offset = draw(0, room - (most - least + 1)) - least;
      views.push_back(View::Create(shape, strides, offset, mask));
    }
    ExpectSame(ShapeTracker(views), base);
    if (HasFailure()) return;
  }
}

TEST(MovementsOf, ShowsWhatMovementsMade) {
  std::mt19937 random(8);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 4000; ++round) {
    std::vector<int64_t> base;
    for (int64_t rank = draw(0, 3); rank > 0; --rank)
      base.push_back(draw(0, 40) == 0 ? 0 : draw(1, 5));
    ShapeTracker st = ShapeTracker::FromShape(Shape(base.begin(), base.end()));
    for (int64_t left = draw(1, 6); left > 0; --left) {
      const std::vector<int64_t> shape = Numbers(st.shape());
      const int rank = static_cast<int>(shape.size());
      std::vector<int> order(rank);
      for (int i = 0; i < rank; ++i) order[i] = i;
      std::ranges::shuffle(order, random);
      Mask ranges;
      Shape to;
      switch (draw(0, 5)) {
        case 0:
          st = st.Permute(order);
          break;
        case 1:
          if (rank > 0) order.resize(draw(1, rank));
          st = st.Flip(order);
          break;
        case 2:
          for (int i = 0; i < rank; ++i) ranges.emplace_back(draw(0, 2), draw(0, 2));
          if (Product(shape) < 500) st = st.Pad(ranges);
          break;
        case 3:
          for (const int64_t size : shape) {
            const int64_t begin = draw(0, size);
            ranges.emplace_back(begin, draw(begin, size));
          }
          if (draw(0, 2) == 0) st = st.Shrink(ranges);
          break;
        case 4:
          for (const int64_t size : shape) to.push_back(size == 1 ? draw(1, 3) : size);
          st = st.Expand(to);
          break;
        default:
          // Neighbours merged.
          for (int i = 0; i < rank; ++i) {
            if (!to.empty() && draw(0, 1) == 0) {
              to.back() = to.back() * shape[i];
            } else {
              to.push_back(shape[i]);
            }
          }
          if (draw(0, 1) == 0) to.push_back(1);
          st = st.Reshape(to);
      }
    }
    ExpectSame(st, base);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace beamd

#include "engine/shape/shape_tracker.h"

#include <algorithm>
#include <array>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/symbolic/symbolic.h"
#include "gtest/gtest.h"
#include "tests/engine/shape/naive_indexer.h"

namespace beamd {
namespace {

using ::beamd::testing::ForEachPoint;
using ::beamd::testing::NaiveIndexer;
using ::beamd::testing::Product;
using Pairs = std::vector<std::pair<SInt, SInt>>;

// A variable and the values that it is tried at; without one, a single pass.
struct Unknown {
  UOp variable;
  std::vector<int64_t> values = {0};
};

int64_t ValueOf(const SInt& v, const Unknown& n, int64_t value) {
  return v.is_number() ? v.number() : EvaluateInt(v.expr(), {n.variable}, {value}).value();
}

std::vector<int64_t> ValuesOf(const Shape& shape, const Unknown& n, int64_t value) {
  std::vector<int64_t> values;
  for (const SInt& s : shape) values.push_back(ValueOf(s, n, value));
  return values;
}

// The views with a number in place of the variable, as they are.
std::vector<View> Bind(const std::vector<View>& views, const Unknown& n, int64_t value) {
  const auto bind = [&](const SInt& v) { return SInt(ValueOf(v, n, value)); };
  std::vector<View> bound = views;
  for (View& v : bound) {
    for (SInt& s : v.shape) s = bind(s);
    for (SInt& s : v.strides) s = bind(s);
    v.offset = bind(v.offset);
    if (!v.mask) continue;
    for (auto& [begin, end] : *v.mask) {
      begin = bind(begin);
      end = bind(end);
    }
  }
  return bound;
}

// Every point through the index expressions.
NaiveIndexer ThroughUOps(const ShapeTracker& st, const Unknown& n, int64_t value) {
  UOpGraph graph;
  std::vector<UOp> leaves;
  for (size_t i = 0; i < st.shape().size(); ++i) {
    leaves.push_back(graph.Make(Op::kRange, Scalar::kInt64, {st.shape()[i].ToUOp(graph)},
                                graph.Intern(RangeArg{.axis = static_cast<int32_t>(i)})));
  }
  const IndexedUOps at = st.ToIndexedUOps(graph, leaves);
  if (n.variable) leaves.push_back(graph.Import(n.variable));
  NaiveIndexer result{ValuesOf(st.shape(), n, value), {}};
  ForEachPoint(result.shape, [&](std::vector<int64_t> values, int64_t) {
    if (n.variable) values.push_back(value);
    const bool valid = EvaluateInt(at.valid, leaves, values).value() != 0;
    result.places.push_back(valid ? EvaluateInt(at.index, leaves, values).value()
                                  : NaiveIndexer::kMasked);
  });
  return result;
}

// Along `axis`, everywhere: true if `same` holds of each two neighbours.
template <typename Fn>
bool AllNeighbours(const NaiveIndexer& at, size_t axis, Fn same) {
  int64_t step = 1;
  for (size_t i = axis + 1; i < at.shape.size(); ++i) step *= at.shape[i];
  bool all = true;
  ForEachPoint(at.shape, [&](const std::vector<int64_t>& point, int64_t position) {
    if (point[axis] == 0) return;
    all = all && same(at.places[position - step], at.places[position]);
  });
  return all;
}

// What holds of every ShapeTracker that should put elements where `want` does.
void ExpectPlaces(const ShapeTracker& st, const Unknown& n, size_t pass, const NaiveIndexer& want) {
  const int64_t value = n.values[pass];
  EXPECT_EQ(NaiveIndexer::FromViews(Bind(st.views(), n, value)), want);
  EXPECT_EQ(NaiveIndexer::FromViews(Bind(st.Simplify().views(), n, value)), want);
  EXPECT_EQ(ThroughUOps(st, n, value), want);
  if (n.variable) {
    EXPECT_GE(st.RealSize(), want.RealSize());
  } else {
    EXPECT_EQ(st.RealSize(), want.RealSize());
  }
  const std::vector<std::optional<SInt>> strides = st.RealStrides(/*ignore_valid=*/true);
  for (size_t axis = 0; axis < want.shape.size(); ++axis) {
    if (!st.AxisIsMasked(static_cast<int>(axis))) {
      EXPECT_TRUE(AllNeighbours(want, axis,
                                [](int64_t a, int64_t b) {
                                  return (a == NaiveIndexer::kMasked) ==
                                         (b == NaiveIndexer::kMasked);
                                }))
          << "axis " << axis;
    }
    // Over several views 0.10.0 tells the linear part of an axis that may bend: 0 alone is firm.
    if (!strides[axis] || (st.views().size() > 1 && *strides[axis] != 0)) continue;
    const int64_t stride = ValueOf(*strides[axis], n, value);
    EXPECT_TRUE(AllNeighbours(want, axis,
                              [stride](int64_t a, int64_t b) {
                                return a == NaiveIndexer::kMasked || b == NaiveIndexer::kMasked ||
                                       b - a == stride;
                              }))
        << "axis " << axis;
  }
}

// A random chain of movements, done on views and element by element for each value.
class Chain {
 public:
  Chain(uint32_t seed, UOpGraph* graph) : random_(seed) {
    Shape shape;
    for (int i = 0, rank = 1 + Draw(4); i < rank; ++i) shape.push_back(Pick({1, 2, 3, 4, 6}));
    if (graph != nullptr) {
      n_ = {graph->Variable("n", 1, 5, Scalar::kInt64), {1, 3, 5}};
      shape[Draw(shape.size())] = SInt(n_.variable);
    }
    st_ = ShapeTracker::FromShape(shape);
    for (const int64_t value : n_.values) {
      naive_.push_back(NaiveIndexer::FromShape(ValuesOf(shape, n_, value)));
    }
  }

  void Step() {
    switch (Draw(8)) {
      case 0:
        return Permute();
      case 1:
        return Pad();
      case 2:
        return Shrink();
      case 3:
        return Expand();
      case 4:
        return Flip();
      default:
        return Reshape();
    }
  }

  void Check() const {
    for (size_t i = 0; i < naive_.size(); ++i) ExpectPlaces(st_, n_, i, naive_[i]);
  }

  const ShapeTracker& st() const { return st_; }
  int64_t elements() const { return Product(naive_.back().shape); }

 private:
  int64_t Draw(int64_t below) { return static_cast<int64_t>(random_() % below); }
  int64_t Pick(std::initializer_list<int64_t> values) {
    return values.begin()[Draw(values.size())];
  }
  const Shape& shape() const { return st_.shape(); }

  template <typename Fn>
  void Apply(ShapeTracker st, Fn naive) {
    for (size_t i = 0; i < naive_.size(); ++i) naive_[i] = naive(naive_[i], n_.values[i]);
    st_ = std::move(st);
  }

  std::vector<std::pair<int64_t, int64_t>> Values(const Pairs& pairs, int64_t value) const {
    std::vector<std::pair<int64_t, int64_t>> values;
    for (const auto& [a, b] : pairs) {
      values.emplace_back(ValueOf(a, n_, value), ValueOf(b, n_, value));
    }
    return values;
  }

  void Permute() {
    std::vector<int> order(shape().size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[Draw(i)]);
    Apply(st_.Permute(order), [&](const auto& at, int64_t) { return at.Permute(order); });
  }

  void Pad() {
    if (elements() > 300) return;
    Pairs amounts;
    for (size_t i = 0; i < shape().size(); ++i) {
      amounts.emplace_back(Pick({0, 0, 1, 2}), Pick({0, 0, 1, 3}));
    }
    if (n_.variable && Draw(4) == 0) amounts[Draw(amounts.size())].second = SInt(n_.variable);
    Apply(st_.Pad(amounts),
          [&](const auto& at, int64_t value) { return at.Pad(Values(amounts, value)); });
  }

  void Shrink() {
    Pairs ranges;
    for (const SInt& s : shape()) {
      SInt begin = 0, end = s;
      if (s.is_number() && Draw(2) == 0) {
        begin = Draw(s.number());
        end = begin + 1 + Draw((s - begin).number());
      } else if (!s.is_number() && Draw(2) == 0 && s.min() > 1) {
        (Draw(2) == 0 ? begin : end) = Draw(2) == 0 ? SInt(1) : s - 1;
        if (!ProvenLt(begin, end)) begin = 0, end = s;
      }
      ranges.emplace_back(begin, end);
    }
    Apply(st_.Shrink(ranges),
          [&](const auto& at, int64_t value) { return at.Shrink(Values(ranges, value)); });
  }

  void Expand() {
    if (elements() > 300) return;
    Shape wider = shape();
    for (SInt& s : wider) {
      if (s != 1 || Draw(2) == 0) continue;
      s = n_.variable && Draw(2) == 0 ? SInt(n_.variable) : SInt(1 + Draw(4));
    }
    Apply(st_.Expand(wider),
          [&](const auto& at, int64_t value) { return at.Expand(ValuesOf(wider, n_, value)); });
  }

  void Flip() {
    std::vector<int> axes;
    for (size_t i = 0; i < shape().size(); ++i) {
      if (Draw(3) == 0) axes.push_back(static_cast<int>(i));
    }
    Apply(st_.Flip(axes), [&](const auto& at, int64_t) { return at.Flip(axes); });
  }

  // Merges two axes, splits one, adds or drops one of size 1, or undoes the reshape before.
  void Reshape() {
    Shape next = shape();
    const size_t axis = Draw(std::max<size_t>(next.size(), 1));
    const int64_t how = Draw(5);
    if (how == 0 && ProvenEq(Prod(before_), Prod(next))) {
      next = before_;
    } else if (how <= 2 && next.size() >= 2 && axis + 1 < next.size()) {
      next[axis] = next[axis] * next[axis + 1];
      next.erase(next.begin() + axis + 1);
    } else if (!next.empty() && next[axis].is_number() && next.size() < 6) {
      const int64_t size = next[axis].number();
      int64_t factor = 1 + Draw(size);
      while (size % factor != 0) --factor;
      next[axis] = factor;
      next.insert(next.begin() + axis + 1, SInt(size / factor));
    } else {
      std::erase(next, SInt(1));
    }
    before_ = shape();
    Apply(st_.Reshape(next),
          [&](const auto& at, int64_t value) { return at.Reshape(ValuesOf(next, n_, value)); });
  }

  std::mt19937 random_;
  Unknown n_;
  ShapeTracker st_;
  std::vector<NaiveIndexer> naive_;
  Shape before_;
};

TEST(ShapeTracker, RandomChainsPlaceEveryElement) {
  std::array<int, 5> of_views = {};
  for (uint32_t seed = 0; seed < 400; ++seed) {
    Chain chain(seed, nullptr);
    for (uint32_t i = 0; i < 4 + seed % 20; ++i) chain.Step();
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", ToString(chain.st())));
    chain.Check();
    if (HasFailure()) return;
    ++of_views[std::min<size_t>(chain.st().views().size(), 4)];
  }
  for (int views = 1; views <= 4; ++views) EXPECT_GT(of_views[views], 5) << views << " views";
}

TEST(ShapeTracker, RandomChainsWithAVariablePlaceEveryElement) {
  int multi = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    UOpGraph graph;
    Chain chain(seed, &graph);
    for (uint32_t i = 0; i < 3 + seed % 7; ++i) chain.Step();
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", ToString(chain.st())));
    chain.Check();
    if (HasFailure()) return;
    multi += chain.st().views().size() > 1;
  }
  EXPECT_GT(multi, 30);
}

// A view whose valid points lie in [0, below), with useless strides and masks left in.
ViewArg RandomView(std::mt19937& random, int64_t below) {
  const auto draw = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  ViewArg v;
  v.mask.emplace();
  bool masked = false;
  int64_t lo = 0, hi = 0;
  for (int64_t i = 0, rank = 1 + draw(4); i < rank; ++i) {
    const int64_t size = 1 + draw(5);
    int64_t begin = 0, end = size;
    if (draw(3) == 0) {
      begin = draw(size);
      end = begin + 1 + draw(size - begin);
      masked = true;
    }
    const int64_t room = below - 1 - (hi - lo);
    const int64_t most = room / std::max<int64_t>(end - 1 - begin, 1);
    int64_t stride = draw(std::min<int64_t>(most, 12) + 1) * (draw(3) == 0 ? -1 : 1);
    if (size == 1) stride = draw(100);
    const int64_t first = size == 1 ? 0 : begin * stride;
    const int64_t last = size == 1 ? 0 : (end - 1) * stride;
    lo += std::min(first, last);
    hi += std::max(first, last);
    v.shape.push_back({size});
    v.strides.push_back({stride});
    v.mask->push_back({{begin}, {end}});
  }
  v.offset.value = draw(below - (hi - lo)) - lo;
  if (!masked && draw(2) == 0) v.mask.reset();
  return v;
}

TEST(ShapeTracker, HandMadeViewsPlaceEveryElement) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    ViewsArg arg;
    std::vector<View> as_given;
    int64_t below = 200;
    for (uint32_t k = 0; k <= seed % 4; ++k) {
      arg.views.push_back(RandomView(random, below));
      const ViewArg& v = arg.views.back();
      View& given = as_given.emplace_back();
      below = 1;
      given.mask = v.mask ? std::optional<Mask>(Mask()) : std::nullopt;
      for (size_t i = 0; i < v.shape.size(); ++i) {
        below *= v.shape[i].value;
        given.shape.push_back(v.shape[i].value);
        given.strides.push_back(v.shape[i].value == 1 ? 0 : v.strides[i].value);
        if (!v.mask) continue;
        given.mask->emplace_back((*v.mask)[i].first.value, (*v.mask)[i].second.value);
      }
      given.offset = v.offset.value;
    }
    UOpGraph graph;
    const ShapeTracker st = ShapeTracker::FromUOp(
        graph.Make(Op::kView, Scalar::kVoid, {}, graph.Intern(std::move(arg))));
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", ToString(st)));
    ExpectPlaces(st, {}, 0, NaiveIndexer::FromViews(as_given));
    if (HasFailure()) return;
  }
}

TEST(ShapeTracker, ComposedTrackersPlaceEveryElement) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Chain below(seed, nullptr);
    for (int i = 0; i < 6; ++i) below.Step();
    ShapeTracker outer = ShapeTracker::FromShape(below.st().shape());
    NaiveIndexer want = NaiveIndexer::FromViews(below.st().views());
    if (want.shape.empty()) continue;
    std::vector<int> order(want.shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(order.size() - 1 - i);
    const std::vector<int64_t> flat = {Product(want.shape)};
    const std::array<std::pair<int64_t, int64_t>, 1> pad = {{{1, 2}}};
    want = want.Permute(order).Reshape(flat).Pad(pad);
    outer = outer.Permute(order).Reshape({flat[0]}).Pad(Pairs{{1, 2}});
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ExpectPlaces(below.st().Compose(outer), {}, 0, want);
    if (HasFailure()) return;
  }
}

TEST(ShapeTracker, ReshapeThatOneViewCannotSayAddsAView) {
  const std::array<int, 2> order = {1, 0};
  const ShapeTracker st = ShapeTracker::FromShape({2, 3}).Permute(order);
  EXPECT_EQ(st.views().size(), 1u);
  const ShapeTracker flat = st.Reshape({6});
  EXPECT_EQ(flat.views().size(), 2u);
  EXPECT_EQ(flat.Reshape({3, 2}).Simplify(), st);
}

TEST(ShapeTracker, RealStridesOfOneViewAreItsStrides) {
  using Strides = std::vector<std::optional<SInt>>;
  const ShapeTracker st = ShapeTracker::FromShape({4, 6});
  EXPECT_EQ(st.RealStrides(), (Strides{6, 1}));
  const ShapeTracker padded = st.Pad(Pairs{{1, 1}, {0, 0}});
  EXPECT_EQ(padded.RealStrides(), (Strides{std::nullopt, 1}));
  EXPECT_EQ(padded.RealStrides(/*ignore_valid=*/true), (Strides{6, 1}));
  EXPECT_EQ(padded.UnitStrideAxes(), (std::vector<int>{1}));
  EXPECT_TRUE(padded.AxisIsMasked(0));
  EXPECT_FALSE(padded.AxisIsMasked(1));
}

TEST(ShapeTracker, RealStridesSeeThroughSeveralViews) {
  using Strides = std::vector<std::optional<SInt>>;
  const std::array<int, 2> order = {1, 0};
  const ShapeTracker flat = ShapeTracker::FromShape({8, 4}).Permute(order).Reshape({32});
  EXPECT_EQ(flat.RealStrides(), Strides{std::nullopt});
  EXPECT_EQ(flat.Reshape({4, 2, 4}).RealStrides(), (Strides{1, 16, 4}));
}

TEST(ShapeTracker, RealStridesFoldWhatTheMaskMakesNonNegative) {
  using Strides = std::vector<std::optional<SInt>>;
  // Rows of a transposed matrix, the first of which is padding: out of it the index is negative,
  // and its quotient by the row's length would truncate.
  const std::array<int, 2> order = {1, 0};
  const ShapeTracker st =
      ShapeTracker::FromShape({4, 3}).Permute(order).Reshape({12}).Pad(Pairs{{4, 0}});
  ASSERT_EQ(st.views().size(), 2u);
  const ShapeTracker rows(
      {st.views()[0], View::Create({4, 4}, Shape{4, 1}, -4, Mask{{1, 4}, {0, 4}})});
  EXPECT_EQ(rows.RealStrides(/*ignore_valid=*/true), (Strides{1, 3}));
}

TEST(ShapeTracker, RealStridesFoldWhatAMiddleMaskMakesNonNegative) {
  // Upsampling by a mask that leaves the first of two, padded, cut into windows: the row of an
  // element is found only if the padding is known to be out of the way.
  const Mask firsts{{0, 3}, {0, 4}, {0, 1}, {0, 4}, {0, 1}};
  const View upsampled = View::Create({3, 4, 2, 4, 2}, Shape{16, 4, 0, 1, 0}, 0, firsts);
  const Mask inside{{0, 3}, {0, 2}, {1, 8}, {0, 2}, {1, 8}};
  const View padded = View::Create({3, 2, 9, 2, 9}, Shape{64, 0, 8, 0, 1}, -9, inside);
  const View windows = View::Create({3, 8, 8, 2, 2}, Shape{324, 18, 1, 180, 10});
  const ShapeTracker st({upsampled, padded, windows});
  EXPECT_EQ(st.Simplify().views().size(), 3u);
  EXPECT_EQ(st.RealStrides()[0], SInt(16));
  EXPECT_FALSE(st.AxisIsMasked(0));
  EXPECT_TRUE(st.AxisIsMasked(1));
}

TEST(ShapeTracker, RealSizeTakesTheMasksIntoAccount) {
  EXPECT_EQ(ShapeTracker::FromShape({4, 6}).Pad(Pairs{{2, 2}, {0, 3}}).RealSize(), 24);
  EXPECT_EQ(ShapeTracker({View::Create({4}, Shape{3}, -3, Mask{{1, 3}})}).RealSize(), 4);
  EXPECT_EQ(ShapeTracker({View::Create({4}, Shape{-1}, 10)}).RealSize(), 11);
  EXPECT_EQ(ShapeTracker({View::Create({4}, Shape{1}, 0, Mask{{0, 0}})}).RealSize(), 0);
  EXPECT_EQ(ShapeTracker::FromShape({4, 0}).RealSize(), 0);
  EXPECT_EQ(ShapeTracker::FromShape({}).RealSize(), 1);
}

TEST(ShapeTracker, RealSizeOfALargeViewIsFoundWithoutVisitingIt) {
  const std::array<int, 2> order = {1, 0};
  const ShapeTracker st = ShapeTracker::FromShape({1 << 20, 1 << 10})
                              .Permute(order)
                              .Reshape({1 << 30})
                              .Pad(Pairs{{7, 9}})
                              .Shrink(Pairs{{0, 1 << 30}});
  ASSERT_EQ(st.views().size(), 2u);
  // The last rows of the last column fell off; the column before it is whole.
  EXPECT_EQ(st.RealSize(), (1 << 30) - 1);
}

TEST(ShapeTracker, RealSizeCoversEveryValueOfAVariable) {
  UOpGraph graph;
  const SInt n(graph.Variable("n", 1, 10));
  EXPECT_EQ(ShapeTracker::FromShape({n, 4}).RealSize(), 40);
  EXPECT_EQ(ShapeTracker({View::Create({1, 4}, Shape{0, 1}, n * 4)}).RealSize(), 44);
  EXPECT_EQ(ShapeTracker::FromShape({n, 4}).Pad(Pairs{{2, 2}, {0, 3}}).RealSize(), 40);
  const std::array<int, 1> axis = {0};
  EXPECT_EQ(ShapeTracker::FromShape({n, 4}).Flip(axis).RealSize(), 40);
  // What is behind the first n of ten, which is nothing for n = 10.
  EXPECT_EQ(ShapeTracker::FromShape({10}).Shrink(Pairs{{n, 10}}).RealSize(), 10);
  EXPECT_EQ(ShapeTracker::FromShape({10}).Shrink(Pairs{{n, 10}}).Flip(axis).RealSize(), 10);
}

TEST(ShapeTracker, IndexesARankOfZero) {
  UOpGraph graph;
  const IndexedUOps at = ShapeTracker::FromShape({}).ToIndexedUOps(graph, {});
  EXPECT_TRUE(at.index.is_const_int(0));
  EXPECT_TRUE(at.valid.is_const_int(1));
}

TEST(ShapeTracker, InvertUndoesAPermutation) {
  const std::array<int, 3> order = {2, 0, 1};
  const ShapeTracker st = ShapeTracker::FromShape({2, 3, 4}).Permute(order);
  const std::optional<ShapeTracker> inverse = st.Invert({2, 3, 4});
  ASSERT_TRUE(inverse);
  EXPECT_EQ(st.Compose(*inverse), ShapeTracker::FromShape({2, 3, 4}));
  EXPECT_EQ(ShapeTracker::FromShape({3, 1}).Expand({3, 2}).Invert({3}), std::nullopt);
}

TEST(ShapeTracker, NodesCarryTheViewsThereAndBack) {
  UOpGraph graph, other;
  const SInt n(graph.Variable("n", 1, 10));
  const ShapeTracker st =
      ShapeTracker::FromShape({n + 1, 4}).Pad(Pairs{{0, 2}, {1, 0}}).Reshape({(n + 3) * 5});
  const UOp node = st.ToUOp(graph);
  EXPECT_TRUE(node.is(Op::kView));
  EXPECT_EQ(ShapeTracker::FromUOp(node), st);
  EXPECT_EQ(ToString(ShapeTracker::FromUOp(st.ToUOp(other))), ToString(st));
  EXPECT_EQ(&st.ToUOp(other).graph(), &other);
}

TEST(ShapeTracker, NodesOfInt32SizesBecomeInt64) {
  UOpGraph graph;
  const UOp n = graph.Variable("n", 1, 10);
  ViewArg v;
  v.shape = {{0, 0}, {4}};
  v.strides = {{4}, {1}};
  const ShapeTracker st =
      ShapeTracker::FromUOp(graph.Make(Op::kView, Scalar::kVoid, {n}, graph.Intern(ViewsArg{{v}})));
  EXPECT_EQ(st, ShapeTracker::FromShape({SInt(n), 4}));
  EXPECT_TRUE(st.contiguous());
  EXPECT_EQ(st.size(), SInt(n) * 4);
}

}  // namespace
}  // namespace beamd

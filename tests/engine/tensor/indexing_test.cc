#include <algorithm>
#include <optional>
#include <random>
#include <variant>

#include "tests/engine/tensor/tensor_world.h"

namespace beamd {
namespace {

using testing::Array;
using testing::Coords;
using testing::Counting;
using testing::ExpectFails;
using testing::ExpectGradient;
using testing::Filled;
using testing::World;

constexpr std::nullopt_t kNone = std::nullopt;

// One index, as a plain value.
struct PlainSlice {
  std::optional<int64_t> begin, end;
  int64_t step = 1;
};
struct PlainNewAxis {};
using PlainIndex = std::variant<int64_t, PlainSlice, PlainNewAxis, Array>;

// Indices for all axes of `shape`.
struct PlainIndices {
  std::vector<PlainIndex> entries;

  std::vector<Index> Of(World& w) const {
    std::vector<Index> indices;
    for (const PlainIndex& entry : entries) {
      if (const auto* at = std::get_if<int64_t>(&entry)) {
        indices.emplace_back(*at);
      } else if (const auto* slice = std::get_if<PlainSlice>(&entry)) {
        Slice s;
        if (slice->begin) s.begin = *slice->begin;
        if (slice->end) s.end = *slice->end;
        s.step = slice->step;
        indices.emplace_back(s);
      } else if (const auto* array = std::get_if<Array>(&entry)) {
        indices.emplace_back(w.Make(*array, Scalar::kInt32));
      } else {
        indices.emplace_back(NewAxis());
      }
    }
    return indices;
  }
};

// Python's list(range(size))[slice].
std::vector<int64_t> Places(const PlainSlice& slice, int64_t size) {
  const auto clip = [&](int64_t at, int64_t low, int64_t high) {
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  std::vector<int64_t> places;
  if (slice.step > 0) {
    const int64_t end = slice.end ? clip(*slice.end, 0, size) : size;
    for (int64_t i = slice.begin ? clip(*slice.begin, 0, size) : 0; i < end; i += slice.step) {
      places.push_back(i);
    }
  } else {
    const int64_t end = slice.end ? clip(*slice.end, -1, size - 1) : -1;
    for (int64_t i = slice.begin ? clip(*slice.begin, -1, size - 1) : size - 1; i > end;
         i += slice.step) {
      places.push_back(i);
    }
  }
  return places;
}

// For each place of the result, the place in the array that it shows; nullopt: out of bounds.
struct Shown {
  Coords shape;
  std::vector<std::optional<int64_t>> elements;
};

Shown Show(const Array& a, const PlainIndices& indices) {
  // Axes of the result before the index arrays' own are put among them.
  struct Axis {
    size_t of;                    // axis of a
    std::vector<int64_t> places;  // of a slice
    bool is_new = false;
  };
  std::vector<Axis> axes;
  std::vector<std::pair<size_t, const Array*>> arrays;
  std::vector<size_t> array_at;  // among the axes of the view, arrays counted
  Coords base(a.shape.size()), picked;
  size_t axis = 0, view_axis = 0;
  for (const PlainIndex& entry : indices.entries) {
    if (const auto* at = std::get_if<int64_t>(&entry)) {
      base[axis] = *at < 0 ? *at + a.shape[axis] : *at;
      ++axis;
    } else if (const auto* slice = std::get_if<PlainSlice>(&entry)) {
      axes.push_back({axis, Places(*slice, a.shape[axis])});
      ++axis;
      ++view_axis;
    } else if (const auto* array = std::get_if<Array>(&entry)) {
      arrays.emplace_back(axis++, array);
      array_at.push_back(view_axis++);
      for (size_t i = 0; i < array->shape.size(); ++i) {
        if (picked.size() < array->shape.size()) picked.insert(picked.begin(), 1);
      }
      for (size_t i = 0; i < array->shape.size(); ++i) {
        int64_t& size = picked[picked.size() - array->shape.size() + i];
        if (size == 1) size = array->shape[i];
      }
    } else {
      axes.push_back({0, {0}, true});
      ++view_axis;
    }
  }
  // Where the picked axes stand: in the place of adjacent arrays, else in front.
  size_t front = 0;
  if (!array_at.empty() && array_at.back() - array_at.front() + 1 == array_at.size()) {
    front = array_at.front();
  }
  Shown shown;
  for (const Axis& x : axes) shown.shape.push_back(static_cast<int64_t>(x.places.size()));
  shown.shape.insert(shown.shape.begin() + front, picked.begin(), picked.end());
  Filled(shown.shape, [&](const Coords& at) {
    Coords place = base;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (!axes[i].is_new)
        place[axes[i].of] = axes[i].places[at[i < front ? i : i + picked.size()]];
    }
    bool inside = true;
    for (const auto& [of, array] : arrays) {
      Coords own(array->shape.size());
      for (size_t i = 0; i < own.size(); ++i) {
        own[i] = array->shape[i] == 1 ? 0 : at[front + picked.size() - own.size() + i];
      }
      const auto value = static_cast<int64_t>((*array)(own));
      place[of] = value < 0 ? value + a.shape[of] : value;
      inside = inside && place[of] >= 0 && place[of] < a.shape[of];
    }
    shown.elements.push_back(inside ? std::optional(a.At(place)) : std::nullopt);
    return 0.0;
  });
  return shown;
}

class RandomIndices {
 public:
  explicit RandomIndices(unsigned seed) : random_(seed) {}

  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  Coords MakeShape() {
    Coords shape(Between(1, 4));
    for (int64_t& size : shape) size = Between(1, 4);
    return shape;
  }

  PlainIndices Make(const Coords& shape, bool arrays) {
    Coords picked(Between(0, 2));
    for (int64_t& size : picked) size = Between(1, 3);
    PlainIndices indices;
    for (int64_t size : shape) {
      if (Between(0, 4) == 0) indices.entries.emplace_back(PlainNewAxis());
      const int64_t kind = Between(0, arrays ? 3 : 2);
      if (kind == 0) {
        indices.entries.emplace_back(Between(-size, size - 1));
      } else if (kind == 3) {
        indices.entries.emplace_back(MakeArray(picked, size));
      } else {
        PlainSlice slice;
        if (Between(0, 2) != 0) slice.begin = Between(-size - 1, size + 1);
        if (Between(0, 2) != 0) slice.end = Between(-size - 1, size + 1);
        slice.step = kind == 1 ? 1 : Between(0, 1) == 0 ? Between(1, 6) : -Between(1, 6);
        indices.entries.emplace_back(slice);
      }
    }
    return indices;
  }

 private:
  // Some axes of 1, or left away in front.
  Array MakeArray(const Coords& picked, int64_t size) {
    Coords shape(picked.begin() + Between(0, static_cast<int64_t>(picked.size())), picked.end());
    for (int64_t& s : shape) s = Between(0, 3) == 0 ? 1 : s;
    return Filled(shape, [&](const Coords&) { return Between(-size, size); });
  }

  std::mt19937 random_;
};

TEST(Get, IsWhatPythonShows) {
  RandomIndices random(1);
  for (int round = 0; round < 300; ++round) {
    World w;
    const Array a = Counting(random.MakeShape());
    const PlainIndices indices = random.Make(a.shape, /*arrays=*/round % 2 == 1);
    const Shown shown = Show(a, indices);
    size_t next = 0;
    const Array want = Filled(shown.shape, [&](const Coords&) {
      const std::optional<int64_t> element = shown.elements[next++];
      return element ? a.values[*element] : 0;
    });
    ASSERT_EQ(w.Values(w.Make(a).Get(indices.Of(w))), want) << "round " << round;
  }
}

TEST(Set, WritesWhatPythonShows) {
  RandomIndices random(2);
  for (int round = 0; round < 300; ++round) {
    World w;
    const Array a = Counting(random.MakeShape());
    const PlainIndices indices = random.Make(a.shape, /*arrays=*/round % 2 == 1);
    const Shown shown = Show(a, indices);
    // Zeros too: a later 0 overwrites.
    const Array values = Filled(shown.shape, [&](const Coords&) { return -random.Between(0, 5); });
    Array want = a;
    for (size_t i = 0; i < shown.elements.size(); ++i) {
      if (shown.elements[i]) want.values[*shown.elements[i]] = values.values[i];
    }
    Tensor x = w.Make(a);
    const absl::Status status = x.Set(indices.Of(w), w.Make(values));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(w.Values(x), want) << "round " << round;
  }
}

TEST(Get, TakesAnEllipsisAndFillsUpWithWholeAxes) {
  World w;
  const Array a = Counting({2, 3, 4});
  const Tensor x = w.Make(a);
  EXPECT_EQ(w.Values(x.Get({Ellipsis(), 1})), Filled({2, 3}, [&](const Coords& i) {
              return a({i[0], i[1], 1});
            }));
  EXPECT_EQ(w.Values(x.Get({1, Ellipsis(), NewAxis(), -1})), Filled({3, 1}, [&](const Coords& i) {
              return a({1, i[0], 3});
            }));
  EXPECT_EQ(w.Values(x.Get({1})), Filled({3, 4}, [&](const Coords& i) {
              return a({1, i[0], i[1]});
            }));
  EXPECT_EQ(w.Values(x.Get({Ellipsis()})), a);
  EXPECT_EQ(w.Values(x.Get({1, Ellipsis(), 2, 3})), (Array{{}, {24}}));
}

TEST(Get, TakesLongStepsAsOneElement) {
  World w;
  const Tensor x = w.Make(Counting({5}));
  EXPECT_EQ(w.Values(x.Get({Slice{1, kNone, INT64_MAX}})), (Array{{1}, {2}}));
  EXPECT_EQ(w.Values(x.Get({Slice{kNone, kNone, INT64_MIN}})), (Array{{1}, {5}}));
}

TEST(Get, TakesAConstantTensorAsANumber) {
  World w;
  const Tensor x = w.Make(Counting({3, 2}));
  const Tensor one = Tensor::Scalar0(w.context, 1);
  EXPECT_EQ(x.Get({one}).lazydata(), x.Get({1}).lazydata());
  ExpectFails(x.Get({Tensor::Scalar0(w.context, 3)}), "get", "index 3 is out of bounds");
}

TEST(Get, KeepsWhatIsNotFiniteInItsPlace) {
  World w;
  const Tensor x = w.Make({{4}, {1, INFINITY, NAN, 4}});
  const Tensor at = w.Make({{3}, {3, 0, -1}}, Scalar::kInt32);
  EXPECT_EQ(w.Values(x.Get({at})), (Array{{3}, {4, 1, 4}}));
  EXPECT_EQ(w.Values(x.Gather(0, at)), (Array{{3}, {4, 1, 0}}));
}

TEST(Get, TakesIndicesAndValuesOfEveryIntegerDType) {
  World w;
  for (Scalar s : {Scalar::kInt8, Scalar::kUint8, Scalar::kInt16, Scalar::kUint16, Scalar::kInt32,
                   Scalar::kUint32, Scalar::kInt64, Scalar::kUint64}) {
    const Tensor got = w.Make(Counting({300}), Scalar::kInt32).Get({w.Make({{2}, {7, 100}}, s)});
    EXPECT_EQ(got.dtype(), Scalar::kInt32);
    EXPECT_EQ(w.Values(got), (Array{{2}, {8, 101}})) << Name(s);
    const Tensor small = w.Make(Counting({5}), s).Get({w.Make({{2}, {1, -1}}, Scalar::kInt64)});
    EXPECT_EQ(small.dtype(), s);
    EXPECT_EQ(w.Values(small), (Array{{2}, {2, 5}})) << Name(s);
  }
  const Tensor flags = w.Make({{3}, {0, 1, 1}}, Scalar::kBool);
  const Tensor got = flags.Get({w.Make({{4}, {2, 0, 1, 5}}, Scalar::kInt32)});
  EXPECT_EQ(got.dtype(), Scalar::kBool);
  EXPECT_EQ(w.Values(got), (Array{{4}, {1, 0, 1, 0}}));
}

TEST(Get, FollowsVariables) {
  World w;
  const SInt n{w.context.Variable("n", 0, 3)};
  const Tensor x = w.Make(Counting({4, 3}));
  const Tensor rows = x.Get({Slice{n, n + 1}});
  EXPECT_EQ(rows.shape(), (Shape{1, 3}));
  ASSERT_TRUE(w.context.Bind(n.expr(), 2).ok());
  EXPECT_EQ(w.Values(rows), (Array{{1, 3}, {7, 8, 9}}));
  EXPECT_EQ(w.Values(x.Get({n, Slice{1, kNone}})), (Array{{2}, {8, 9}}));
  EXPECT_EQ(x.Get({Slice{0, n}, Slice{kNone, kNone, -1}}).shape(), (Shape{n, 3}));
  ExpectFails(x.Get({n + 1}), "get", "index (n+1) is out of bounds on axis 0 of size 4");
  ExpectFails(x.Get({Slice{0, n + 2}}), "get", "isn't within axis 0 of size 4");
  ExpectFails(x.Get({Slice{0, n, 2}}), "get", "takes numbers");
  // To the end, which may be where it begins.
  const SInt m{w.context.Variable("m", 1, 4)};
  for (const auto& [begin, want] :
       {std::pair(3, Array{{3}, {10, 11, 12}}), {4, {{3}, {0, 0, 0}}}}) {
    ASSERT_TRUE(w.context.Bind(m.expr(), begin).ok());
    EXPECT_EQ(w.Values(x.Get({Slice{m, kNone}}).Sum(0)), want);
  }
  const Tensor part = x.Get({Slice{0, n}});
  ExpectFails(part.Get({w.Make({{1}, {0}}, Scalar::kInt32)}), "get", "axis 0 is symbolic");
}

TEST(Get, RefusesIndicesThatDoNotFit) {
  World w;
  const Tensor x = w.Make(Counting({2, 3}));
  const Tensor at = w.Make({{2}, {0, 1}}, Scalar::kInt32);
  ExpectFails(x.Get({2}), "get", "index 2 is out of bounds on axis 0 of size 2");
  ExpectFails(x.Get({0, -4}), "get", "index -4 is out of bounds on axis 1 of size 3");
  ExpectFails(x.Get({0, 0, 0}), "get", "3 indices are too many for 2 axes");
  ExpectFails(x.Get({Ellipsis(), Ellipsis()}), "get", "more than one ellipsis");
  ExpectFails(x.Get({Slice{0, 1, 0}}), "get", "a slice of axis 0 has step 0");
  ExpectFails(x.Get({w.Make({{2}, {0, 1}})}), "get", "only integer tensors index, not float64");
  ExpectFails(x.Get({at.Bool()}), "get", "not bool");
  ExpectFails(x.Get({at, w.Make({{3}, {0, 1, 2}}, Scalar::kInt32)}), "get",
              "indices don't broadcast");
  ExpectFails(x.Get({at.Reshape({3})}), "reshape", "another size");
}

TEST(Get, HasTheGradientOfWhatItShows) {
  World w;
  const Tensor at = w.Make({{3}, {1, 0, 1}}, Scalar::kInt32);
  const Array a = Counting({2, 5});
  ExpectGradient(w, a, [](const Tensor& x) { return x.Get({1, Slice{kNone, kNone, -2}}); });
  ExpectGradient(w, a, [&](const Tensor& x) { return x.Get({at, Slice{1, 4}}); });
  ExpectGradient(w, a, [&](const Tensor& x) { return x.Get({at, at}); });
  ExpectGradient(w, a, [&](const Tensor& x) { return x.Gather(1, at.Reshape({1, 3})); });
}

TEST(Set, BroadcastsAndConverts) {
  World w;
  Tensor x = w.Make(Counting({2, 3}), Scalar::kInt32);
  ASSERT_TRUE(x.Set({1}, 7.9).ok());
  EXPECT_EQ(w.Values(x), (Array{{2, 3}, {1, 2, 3, 7, 7, 7}}));
  ASSERT_TRUE(x.Set({Ellipsis(), Slice{0, 2}}, w.Make({{2, 1}, {-1, -2}})).ok());
  EXPECT_EQ(w.Values(x), (Array{{2, 3}, {-1, -1, 3, -2, -2, 7}}));
  EXPECT_EQ(x.dtype(), Scalar::kInt32);
  ASSERT_TRUE(x.Set({Slice{}}, 0).ok());
  EXPECT_EQ(w.Values(x), (Array{{2, 3}, {0, 0, 0, 0, 0, 0}}));
}

TEST(Set, MayReadWhatItWrites) {
  World w;
  Tensor x = w.Make(Counting({5}));
  ASSERT_TRUE(x.Set({Slice{1, kNone}}, x.Get({Slice{0, 4}})).ok());
  EXPECT_EQ(w.Values(x), (Array{{5}, {1, 1, 2, 3, 4}}));
  ASSERT_TRUE(x.Set({Slice{kNone, kNone, -1}}, x + 10).ok());
  EXPECT_EQ(w.Values(x), (Array{{5}, {14, 13, 12, 11, 11}}));
}

TEST(Set, MayReadAWindowOfWhatItWrites) {
  World w;
  Tensor x = w.Make(Counting({4, 5}), Scalar::kInt32).Contiguous();
  ASSERT_TRUE(x.Realize().ok());
  ASSERT_TRUE(x.Set({Slice{1, 4}}, x.Get({Slice{0, 3}})).ok());
  EXPECT_EQ(w.Values(x).values, (std::vector<double>{1, 2, 3, 4, 5,  1,  2,  3,  4,  5,  //
                                                     6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  const Tensor window = x.Get({Slice{0, 3}}).Contiguous();
  ASSERT_TRUE(window.Realize().ok());
  ASSERT_TRUE(x.Set({Slice{1, 4}}, window).ok());
  EXPECT_EQ(w.Values(x).values, (std::vector<double>{1, 2, 3, 4, 5, 1, 2, 3, 4, 5,  //
                                                     1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(Set, LeavesWhatWasComputedBefore) {
  World w;
  Tensor x = w.Make(Counting({3}));
  const Tensor before = x * 2;
  EXPECT_EQ(w.Values(before), (Array{{3}, {2, 4, 6}}));
  ASSERT_TRUE(x.Set({0}, 100).ok());
  EXPECT_EQ(w.Values(before), (Array{{3}, {2, 4, 6}}));
  EXPECT_EQ(w.Values(x * 2), (Array{{3}, {200, 4, 6}}));
}

// Each step of a decoder writes its row of a cache.
TEST(Set, FollowsVariables) {
  World w;
  const SInt n{w.context.Variable("n", 1, 4)};
  Tensor x = w.Make(Counting({4, 2}));
  for (int step : {3, 1}) {
    ASSERT_TRUE(w.context.Bind(n.expr(), step).ok());
    ASSERT_TRUE(x.Set({Slice{n - 1, n}}, -step).ok());
  }
  EXPECT_EQ(w.Values(x), (Array{{4, 2}, {-1, -1, 3, 4, -3, -3, 7, 8}}));
  ASSERT_TRUE(w.context.Bind(n.expr(), 2).ok());
  ASSERT_TRUE(x.Set({Slice{0, n}, Slice{kNone, kNone, -1}}, w.Make({{2}, {5, 6}})).ok());
  EXPECT_EQ(w.Values(x), (Array{{4, 2}, {6, 5, 6, 5, -3, -3, 7, 8}}));
}

TEST(Set, TakesTheLastOfSeveralValues) {
  World w;
  Tensor x = w.Make(Counting({3}));
  const Tensor at = w.Make({{2, 2}, {1, 2, 2, 1}}, Scalar::kInt32);
  ASSERT_TRUE(x.Set({at}, w.Make({{2, 2}, {5, 6, 0, 8}})).ok());
  EXPECT_EQ(w.Values(x), (Array{{3}, {1, 8, 0}}));
  const Array many = Filled({3000}, [](const Coords& i) { return i[0] % 7; });
  Tensor y = w.Make(Counting({7}));
  ASSERT_TRUE(y.Set({w.Make(many, Scalar::kInt32)}, w.Make(Counting({3000}))).ok());
  EXPECT_EQ(w.Values(y), (Array{{7}, {2997, 2998, 2999, 3000, 2994, 2995, 2996}}));
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::string& why) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("set: "));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(why));
}

TEST(Set, RefusesWhatItCannotWrite) {
  using enum absl::StatusCode;
  World w;
  Tensor x = w.Make(Counting({2, 3}));
  const Tensor at = w.Make({{2}, {0, 1}}, Scalar::kInt32);
  ExpectRefused(x.Set({3}, 1), kInvalidArgument, "index 3 is out of bounds on axis 0");
  ExpectRefused(x.Set({0}, w.Make(Counting({2}))), kInvalidArgument, "(2) can't broadcast to (3)");
  ExpectRefused(x.Set({at}, w.Make(Counting({3, 3}))), kInvalidArgument, "(3, 3)");
  Tensor turned = x.T();
  ExpectRefused(turned.Set({0}, 1), kFailedPrecondition, "Contiguous()");
  Tensor zeros = Tensor::Zeros(w.context, {3});
  ExpectRefused(zeros.Set({0}, 1), kFailedPrecondition, "Contiguous()");
  Tensor owned = zeros.Contiguous();
  EXPECT_TRUE(owned.Set({0}, 1).ok());
  EXPECT_EQ(w.Values(owned), (Array{{3}, {1, 0, 0}}));
  Tensor learned = w.Make(Counting({2}));
  learned.set_requires_grad(true);
  ExpectRefused(learned.Set({0}, 1), kUnimplemented, "gradient");
  ExpectRefused(x.Set({0}, learned.Get({Slice{0, 1}})), kUnimplemented, "gradient");
  EXPECT_EQ(w.Values(x), Counting({2, 3}));
  Tensor none = w.Make({{0, 3}, {}});
  EXPECT_TRUE(none.Set({Slice{}}, 1).ok());
  EXPECT_EQ(Tensor().Set({0}, 1).code(), kFailedPrecondition);
}

TEST(Gather, PicksAlongAnAxis) {
  World w;
  const Array a = Counting({3, 4, 2});
  const Array at = Filled({2, 5, 1}, [n = 0](const Coords&) mutable { return n++ * 3 % 4; });
  EXPECT_EQ(w.Values(w.Make(a).Gather(1, w.Make(at, Scalar::kInt64))),
            Filled({2, 5, 1}, [&](const Coords& i) {
              return a({i[0], static_cast<int64_t>(at(i)), i[2]});
            }));
  // Whole numbers of a float dtype are places too.
  EXPECT_EQ(w.Values(w.Make(a).Gather(-2, w.Make(at))),
            w.Values(w.Make(a).Gather(1, w.Make(at, Scalar::kInt32))));
  const Tensor x = w.Make(a);
  ExpectFails(x.Gather(3, w.Make(at)), "gather", "axis 3");
  ExpectFails(x.Gather(0, w.Make(Counting({2, 2}))), "gather",
              "an index of 2 axes don't fit 3 axes");
  ExpectFails(x.Gather(1, w.Make(Counting({4, 1, 1}))), "gather",
              "an index of shape (4, 1, 1) doesn't fit (3, 4, 2) beside axis 1");
}

TEST(Scatter, WritesTheLastOrAddsAll) {
  RandomIndices random(3);
  for (int round = 0; round < 60; ++round) {
    World w;
    const Array a = Counting(random.MakeShape());
    const auto axis =
        static_cast<size_t>(random.Between(0, static_cast<int64_t>(a.shape.size()) - 1));
    Coords sizes, wide;
    for (size_t i = 0; i < a.shape.size(); ++i) {
      sizes.push_back(random.Between(1, i == axis ? 6 : a.shape[i]));
      wide.push_back(sizes.back() + random.Between(0, 1));
    }
    const Array at =
        Filled(sizes, [&](const Coords&) { return random.Between(0, a.shape[axis] - 1); });
    const Array source = Filled(wide, [&](const Coords&) { return random.Between(-3, 3); });
    Array written = a, added = a;
    Filled(sizes, [&](const Coords& place) {
      Coords to = place;
      to[axis] = static_cast<int64_t>(at(place));
      written.values[a.At(to)] = source(place);
      added.values[a.At(to)] += source(place);
      return 0.0;
    });
    const Tensor x = w.Make(a), index = w.Make(at, Scalar::kInt32), values = w.Make(source);
    const int dim = static_cast<int>(axis);
    ASSERT_EQ(w.Values(x.Scatter(dim, index, values)), written) << "round " << round;
    ASSERT_EQ(w.Values(x.Scatter(dim, index, values, /*add=*/true)), added) << "round " << round;
  }
}

TEST(Scatter, TakesNumbersAndHasGradients) {
  World w;
  const Array a = Counting({4});
  const Tensor at = w.Make({{3}, {2, 0, 2}}, Scalar::kInt32);
  EXPECT_EQ(w.Values(w.Make(a).Scatter(0, at, -1.5)), (Array{{4}, {-1.5, 2, -1.5, 4}}));
  EXPECT_EQ(w.Values(w.Make(a).Scatter(0, at, 2, true)), (Array{{4}, {3, 2, 7, 4}}));
  const Tensor values = w.Make({{3}, {10, 20, 30}});
  for (bool add : {false, true}) {
    ExpectGradient(w, a, [&](const Tensor& x) { return x.Scatter(0, at, values, add); });
    ExpectGradient(w, {{3}, {10, 20, 30}},
                   [&](const Tensor& x) { return w.Make(a).Scatter(0, at, x, add); });
  }
  const Tensor x = w.Make(a);
  ExpectFails(x.Scatter(1, at, 1), "scatter", "axis 1");
  ExpectFails(x.Scatter(0, at.Reshape({3, 1}), 1), "scatter", "an index of 2 axes");
  ExpectFails(x.Scatter(0, at, w.Make(Counting({2}))), "scatter",
              "values of shape (2) are too few for an index of (3)");
  ExpectFails(w.Make(Counting({2, 2})).Scatter(0, w.Make(Counting({1, 3}), Scalar::kInt32), 1),
              "scatter", "an index of shape (1, 3) doesn't fit (2, 2) beside axis 0");
}

TEST(OneHot, MarksTheClass) {
  World w;
  const Tensor x = w.Make({{3}, {2, 0, 1}}, Scalar::kUint8);
  EXPECT_EQ(x.OneHot(4).dtype(), Scalar::kInt32);
  EXPECT_EQ(w.Values(x.OneHot(4)), (Array{{3, 4}, {0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0}}));
  EXPECT_EQ(w.Values(x.OneHot()), (Array{{3, 3}, {0, 0, 1, 1, 0, 0, 0, 1, 0}}));
  ExpectFails(x.OneHot(-2), "one_hot", "-2 classes");
  LazyContext nowhere;
  EXPECT_EQ(
      Tensor::Ones(nowhere, {2}, {.dtype = Scalar::kInt32}).Contiguous().OneHot().status().code(),
      absl::StatusCode::kFailedPrecondition);
}

TEST(MaskedFill, ReplacesWhereTheMaskHolds) {
  World w;
  const Tensor mask = w.Make({{3}, {1, 0, 1}}, Scalar::kBool);
  EXPECT_EQ(w.Values(w.Make(Counting({2, 3})).MaskedFill(mask, -INFINITY)),
            (Array{{2, 3}, {-INFINITY, 2, -INFINITY, -INFINITY, 5, -INFINITY}}));
}

}  // namespace
}  // namespace beamd

// A context whose tensors are computed by the reference evaluator, and plain arrays to hold against
// what comes out.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/tensor/tensor.h"
#include "tests/testing/unfused.h"

namespace beamd::testing {

using Coords = std::vector<int64_t>;

// Row-major.
struct Array {
  Coords shape;
  std::vector<double> values;

  int64_t At(const Coords& place) const {
    int64_t index = 0;
    for (size_t i = 0; i < shape.size(); ++i) index = index * shape[i] + place[i];
    return index;
  }
  double operator()(const Coords& place) const { return values[At(place)]; }
  bool operator==(const Array&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Array& a) {
  return out << ::testing::PrintToString(a.shape) << ": " << ::testing::PrintToString(a.values);
}

inline int64_t Count(const Coords& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// The array of `shape` whose element at each place is value(place).
inline Array Filled(const Coords& shape, const std::function<double(const Coords&)>& value) {
  Array a{shape, {}};
  for (int64_t n = 0; n < Count(shape); ++n) {
    Coords place(shape.size());
    int64_t left = n;
    for (size_t i = shape.size(); i-- > 0; left /= shape[i]) place[i] = left % shape[i];
    a.values.push_back(value(place));
  }
  return a;
}

// 1, 2, 3, ...
inline Array Counting(const Coords& shape) {
  double next = 0;
  return Filled(shape, [&](const Coords&) { return ++next; });
}

// What realises in a World: the evaluator, or what a library linked into the test put here.
inline std::function<Realizer*()>& RealizerOfWorlds() {
  static std::function<Realizer*()> get = [] {
    static UnfusedRealizer evaluator;
    return &evaluator;
  };
  return get;
}

struct World {
  Tensor Make(const Array& a, Scalar dtype = Scalar::kFloat64) {
    return Tensor::From(context, a.values, Shape(a.shape.begin(), a.shape.end()), {.dtype = dtype});
  }

  // What a tensor of numbers computes; the test fails where it can't.
  static Array Values(const Tensor& t) {
    const absl::StatusOr<std::vector<double>> values = t.Cast(Scalar::kFloat64).ToVector<double>();
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return {};
    Array a{{}, *values};
    for (const SInt& size : t.shape()) a.shape.push_back(size.number());
    return a;
  }

  Realizer& realizer = *RealizerOfWorlds()();
  LazyContext context{"cpu:0", &realizer};
};

// A failed tensor of this code whose message begins with the operation and has `why` in it.
inline void ExpectFails(const Tensor& t, const std::string& operation, const std::string& why,
                        absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  EXPECT_FALSE(t.ok()) << operation << " gave " << ::testing::PrintToString(t.ok());
  EXPECT_EQ(t.status().code(), code) << t.status();
  EXPECT_THAT(std::string(t.status().message()), ::testing::StartsWith(operation + ": "));
  EXPECT_THAT(std::string(t.status().message()), ::testing::HasSubstr(why));
}

// The gradient of sum(f(x) * w), w different everywhere, against central differences.
inline void ExpectGradient(World& world, const Array& at,
                           const std::function<Tensor(const Tensor&)>& f) {
  const auto loss = [&](const Tensor& x) {
    const Tensor y = f(x);
    const Array weights = Filled(World::Values(y.Detach()).shape, [n = 0](const Coords&) mutable {
      return 0.25 * static_cast<double>(++n * 7 % 11) - 1;
    });
    return y.Mul(world.Make(weights)).Sum();
  };
  Tensor x = world.Make(at);
  x.set_requires_grad(true);
  const absl::Status status = loss(x).Backward();
  ASSERT_TRUE(status.ok()) << status;
  const Array got = World::Values(x.grad());
  ASSERT_EQ(got.shape, at.shape);
  for (size_t i = 0; i < at.values.size(); ++i) {
    const auto moved = [&](double by) {
      Array other = at;
      other.values[i] += by;
      return World::Values(loss(world.Make(other))).values[0];
    };
    const double step = 1e-5;
    const double want = (moved(step) - moved(-step)) / (2 * step);
    EXPECT_NEAR(got.values[i], want, 1e-6 * (1 + std::abs(want))) << "element " << i;
  }
}

}  // namespace beamd::testing

#include <algorithm>
#include <cmath>
#include <limits>

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

constexpr double kInf = std::numeric_limits<double>::infinity();

const Array& Table() {
  static const auto* const kTable = new Array{{2, 3}, {3, -1, 2, 0.5, 5, -4}};
  return *kTable;
}

void ExpectNear(const Tensor& got, const Array& want) {
  const Array values = World::Values(got);
  ASSERT_EQ(values.shape, want.shape);
  for (size_t i = 0; i < want.values.size(); ++i) {
    EXPECT_NEAR(values.values[i], want.values[i], 1e-12 * (1 + std::abs(want.values[i]))) << i;
  }
}

TEST(Reductions, FoldSomeAxesOrAll) {
  World w;
  const Tensor x = w.Make(Table());
  EXPECT_EQ(w.Values(x.Sum()), (Array{{}, {5.5}}));
  EXPECT_EQ(w.Values(x.Sum(0)), (Array{{3}, {3.5, 4, -2}}));
  EXPECT_EQ(w.Values(x.Sum(-1, true)), (Array{{2, 1}, {4, 1.5}}));
  EXPECT_EQ(w.Values(x.Sum({0, 1}, true)), (Array{{1, 1}, {5.5}}));
  EXPECT_EQ(w.Values(x.Sum(std::vector<int>{})), Table());
  EXPECT_EQ(w.Values(x.Prod(1)), (Array{{2}, {-6, -10}}));
  EXPECT_EQ(w.Values(x.Max(0)), (Array{{3}, {3, 5, 2}}));
  EXPECT_EQ(w.Values(x.Min()), (Array{{}, {-4}}));
  EXPECT_EQ(w.Values(x.Mean(1)), (Array{{2}, {4.0 / 3, 0.5}}));
  EXPECT_EQ(w.Values(x.Gt(2).Any(1)), (Array{{2}, {1, 1}}));
  EXPECT_EQ(w.Values(x.Gt(2).All(0, true)), (Array{{1, 3}, {0, 0, 0}}));
  EXPECT_EQ(w.Values(x.All()), (Array{{}, {1}}));
  EXPECT_EQ(w.Values(w.Make(Counting({})).Sum(-1)), (Array{{}, {1}}));
}

TEST(Reductions, OfNothingGiveTheIdentity) {
  World w;
  const Tensor x = w.Make({{0, 2}, {}});
  EXPECT_EQ(w.Values(x.Sum(0)), (Array{{2}, {0, 0}}));
  EXPECT_EQ(w.Values(x.Prod(0)), (Array{{2}, {1, 1}}));
  EXPECT_EQ(w.Values(x.Max(0)), (Array{{2}, {-kInf, -kInf}}));
  EXPECT_EQ(w.Values(x.Min(0)), (Array{{2}, {kInf, kInf}}));
  EXPECT_EQ(w.Values(x.Any()), (Array{{}, {0}}));
  EXPECT_EQ(w.Values(x.All()), (Array{{}, {1}}));
  EXPECT_TRUE(std::isnan(w.Values(x.Mean()).values[0]));
  EXPECT_EQ(x.Sum(1).shape(), (Shape{0}));
}

TEST(Reductions, RefuseAxesThatAreNone) {
  World w;
  const Tensor x = w.Make(Table());
  ExpectFails(x.Sum(2), "sum", "2");
  ExpectFails(x.Prod(-3), "prod", "-3");
  ExpectFails(x.Max({0, -2}), "max", "");
  ExpectFails(x.Min(2), "min", "2");
  ExpectFails(x.Any(2), "any", "2");
  ExpectFails(x.All(2), "all", "2");
  ExpectFails(x.Mean(2), "mean", "2");
  ExpectFails(x.Var(2), "var", "2");
  ExpectFails(x.Std(2), "std", "2");
  ExpectFails(x.StdMean(2).second, "mean", "2");
  ExpectFails(x.Softmax(2), "softmax", "2");
  ExpectFails(x.LogSoftmax(2), "log_softmax", "2");
  ExpectFails(x.Logsumexp(2), "logsumexp", "2");
  ExpectFails(x.Logcumsumexp(2), "logcumsumexp", "2");
  ExpectFails(x.Argmax(2), "argmax", "axis 2 is none of 2");
  ExpectFails(x.Argmin(2), "argmin", "axis 2 is none of 2");
  ExpectFails(x.Cumsum(2), "cumsum", "axis 2 is none of 2");
  ExpectFails(x.Cummax(2), "cummax", "axis 2 is none of 2");
  ExpectFails(w.Make(Counting({})).Sum(1), "sum", "1");
  ExpectFails(x.Reshape({5}).Std(), "reshape", "another size");
}

TEST(Sum, AccumulatesInTheLeastWidthThatHolds) {
  using enum Scalar;
  World w;
  for (const auto& [from, to] : {std::pair(kBool, kInt32),
                                 {kInt8, kInt32},
                                 {kUint8, kUint32},
                                 {kInt16, kInt32},
                                 {kUint16, kUint32},
                                 {kInt32, kInt32},
                                 {kInt64, kInt64},
                                 {kUint64, kUint64},
                                 {kFloat16, kFloat16},
                                 {kBFloat16, kBFloat16},
                                 {kFloat32, kFloat32},
                                 {kFloat64, kFloat64}}) {
    const Tensor ones = w.Make(Filled({300}, [](const Coords&) { return 1; }), from);
    EXPECT_EQ(ones.Sum().dtype(), to) << Name(from);
    EXPECT_EQ(w.Values(ones.Sum()).values[0], 300) << Name(from);
    EXPECT_EQ(ones.Cumsum().dtype(), to) << Name(from);
    EXPECT_EQ(ones.Prod().dtype(), from) << Name(from);
    EXPECT_EQ(ones.Mean().dtype(), IsFloat(from) ? from : kFloat32) << Name(from);
    EXPECT_EQ(w.Values(ones.Mean()).values[0], 1) << Name(from);
  }
  // Summed in float16 it stays at 2048, where the next number is 2050.
  const Tensor many = w.Make(Filled({4000}, [](const Coords&) { return 1; }), kFloat16);
  EXPECT_EQ(w.Values(many.Sum()).values[0], 4000);
  EXPECT_EQ(many.Sum({}, false, kFloat32).dtype(), kFloat32);
  const Tensor bytes = w.Make(Filled({300}, [](const Coords&) { return 1; }), kUint8);
  EXPECT_EQ(w.Values(bytes.Sum({}, false, kUint8)), (Array{{}, {300 - 256}}));
  EXPECT_EQ(w.Values(bytes.Mul(2).Prod(0, false, kInt64)).values[0], 0);
}

TEST(Max, ComparesEveryDType) {
  using enum Scalar;
  World w;
  const Tensor small = w.Make({{3}, {0, 255, 7}}, kUint8);
  EXPECT_EQ(w.Values(small.Max()), (Array{{}, {255}}));
  EXPECT_EQ(w.Values(small.Min()), (Array{{}, {0}}));
  EXPECT_EQ(small.Min().dtype(), kUint8);
  const Tensor ends = w.Make({{3}, {-2147483648.0, 5, 2147483647}}, kInt32);
  EXPECT_EQ(w.Values(ends.Min()).values[0], -2147483648.0);
  EXPECT_EQ(w.Values(ends.Max()).values[0], 2147483647);
  const Tensor flags = w.Make({{2, 2}, {0, 1, 1, 1}}, kBool);
  EXPECT_EQ(w.Values(flags.Max(1)), (Array{{2}, {1, 1}}));
  EXPECT_EQ(w.Values(flags.Min(1)), (Array{{2}, {0, 1}}));
  EXPECT_EQ(flags.Min(1).dtype(), kBool);
  EXPECT_TRUE(std::isnan(w.Values(w.Make({{3}, {1, NAN, 2}}).Max()).values[0]));
  EXPECT_TRUE(std::isnan(w.Values(w.Make({{3}, {1, NAN, 2}}).Min()).values[0]));
}

TEST(Var, DividesByTheCountLessTheCorrection) {
  World w;
  const Tensor x = w.Make(Table());
  // Squared distances from the means 4/3 and 1/2 of the rows.
  const double a = (25.0 + 49 + 4) / 9, b = 0 + 20.25 + 20.25;
  ExpectNear(x.Var(1), {{2}, {a / 2, b / 2}});
  ExpectNear(x.Var(1, true, 0), {{2, 1}, {a / 3, b / 3}});
  ExpectNear(x.Std(1), {{2}, {std::sqrt(a / 2), std::sqrt(b / 2)}});
  const auto [std, mean] = x.StdMean(1);
  ExpectNear(std, {{2}, {std::sqrt(a / 2), std::sqrt(b / 2)}});
  ExpectNear(mean, {{2}, {4.0 / 3, 0.5}});
  EXPECT_TRUE(std::isnan(w.Values(w.Make(Counting({1})).Var()).values[0]));
  EXPECT_EQ(w.Values(x.Var(1, false, 5)).values, (std::vector<double>{kInf, kInf}));
}

TEST(Softmax, SurvivesLargeNumbers) {
  World w;
  const Array large = {{2, 2}, {1000, 1001, -1000, -kInf}};
  const double e = std::exp(1);
  ExpectNear(w.Make(large).Softmax(), {{2, 2}, {1 / (1 + e), e / (1 + e), 1, 0}});
  ExpectNear(w.Make(large).Softmax(0).Get({Slice{}, 0}), {{2}, {1, 0}});
  const Array logs = w.Values(w.Make(large).LogSoftmax());
  EXPECT_NEAR(logs.values[1], -std::log1p(1 / e), 1e-9);
  EXPECT_EQ(logs.values[3], -kInf);
  EXPECT_EQ(w.Make(large, Scalar::kFloat16).Softmax(-1, Scalar::kFloat32).dtype(),
            Scalar::kFloat32);
  EXPECT_EQ(w.Make(large, Scalar::kInt32).Softmax().dtype(), Scalar::kFloat32);
}

TEST(Logsumexp, SurvivesLargeNumbers) {
  World w;
  const Tensor x = w.Make({{2, 2}, {1000, 1001, -1000, -1000}});
  const double first = 1001 + std::log1p(std::exp(-1)), second = -1000 + std::log(2);
  ExpectNear(x.Logsumexp(1), {{2}, {first, second}});
  ExpectNear(x.Logsumexp(1, true), {{2, 1}, {first, second}});
  ExpectNear(x.Logsumexp(), {{}, {first}});
  ExpectNear(x.Logcumsumexp(1), {{2, 2}, {1000, first, -1000, second}});
}

TEST(Argmax, TakesTheFirstOfThoseThatTie) {
  World w;
  const Tensor x = w.Make({{2, 4}, {1, 3, 3, 0, 2, 2, 1, 1}});
  EXPECT_EQ(x.Argmax().dtype(), Scalar::kInt32);
  EXPECT_EQ(w.Values(x.Argmax()), (Array{{}, {1}}));
  EXPECT_EQ(w.Values(x.Argmax(1)), (Array{{2}, {1, 0}}));
  EXPECT_EQ(w.Values(x.Argmax(0, true)), (Array{{1, 4}, {1, 0, 0, 1}}));
  EXPECT_EQ(w.Values(x.Argmin(1)), (Array{{2}, {3, 2}}));
  EXPECT_EQ(w.Values(x.Argmin()), (Array{{}, {3}}));
  const Tensor bytes = w.Make({{3}, {1, 0, 255}}, Scalar::kUint8);
  EXPECT_EQ(w.Values(bytes.Argmax()), (Array{{}, {2}}));
  EXPECT_EQ(w.Values(bytes.Argmin()), (Array{{}, {1}}));
  const Tensor ends = w.Make({{3}, {0, -2147483648.0, 1}}, Scalar::kInt32);
  EXPECT_EQ(w.Values(ends.Argmin()), (Array{{}, {1}}));
  EXPECT_EQ(w.Values(w.Make({{2}, {1, 0}}, Scalar::kBool).Argmin()), (Array{{}, {1}}));
  EXPECT_EQ(w.Values(w.Make(Counting({})).Argmax(0)), (Array{{}, {0}}));
  ExpectFails(w.Make({{0}, {}}).Argmax(0), "argmax", "axis 0 has 0 elements");
}

// Around the length from which there are two stages.
TEST(Cumsum, RunsAlongAnAxisOfAnyLength) {
  World w;
  for (int64_t length : {1, 5, 512, 513, 768}) {
    const Array a = Filled({2, length, 2}, [](const Coords& i) {
      return (i[0] + 1.0) * (i[1] * 37 % 19 - 9) + i[2] * 100 - 1000;
    });
    Array sums = a, maxima = a;
    Filled(a.shape, [&](const Coords& i) {
      if (i[1] == 0) return 0;
      const int64_t at = a.At(i), before = a.At({i[0], i[1] - 1, i[2]});
      sums.values[at] += sums.values[before];
      maxima.values[at] = std::max(maxima.values[at], maxima.values[before]);
      return 0;
    });
    // The sums are whole numbers: exact in any order.
    EXPECT_EQ(w.Values(w.Make(a).Cumsum(1)), sums) << length;
    EXPECT_EQ(w.Values(w.Make(a).Cummax(-2)), maxima) << length;
    EXPECT_EQ(w.Values(w.Make(a, Scalar::kInt32).Cummax(1)), maxima) << length;
  }
  EXPECT_EQ(w.Values(w.Make(Counting({})).Cumsum()), (Array{{}, {1}}));
  EXPECT_EQ(w.Make({{0, 2}, {}}).Cumsum().shape(), (Shape{0, 2}));
  const Tensor flags = w.Make({{4}, {0, 1, 0, 1}}, Scalar::kBool);
  EXPECT_EQ(w.Values(flags.Cummax()), (Array{{4}, {0, 1, 1, 1}}));
  EXPECT_EQ(w.Values(flags.Cumsum()), (Array{{4}, {0, 1, 1, 2}}));
  const Tensor bytes = w.Make({{3}, {0, 0, 9}}, Scalar::kUint8);
  EXPECT_EQ(w.Values(bytes.Cummax()), (Array{{3}, {0, 0, 9}}));
}

TEST(Reductions, CountSymbolicAxes) {
  World w;
  const SInt n{w.context.Variable("n", 1, 4)};
  const Tensor x = w.Make(Counting({4, 2})).Shrink({{{0, n}}, std::nullopt});
  const Tensor mean = x.Mean(0), var = x.Var(0), sums = x.Cumsum(0).Sum(0);
  ASSERT_TRUE(w.context.Bind(n.expr(), 3).ok());
  EXPECT_EQ(w.Values(mean), (Array{{2}, {3, 4}}));
  EXPECT_EQ(w.Values(var), (Array{{2}, {4, 4}}));
  EXPECT_EQ(w.Values(sums), (Array{{2}, {1 + 4 + 9, 2 + 6 + 12}}));
  ExpectFails(x.Argmax(0), "argmax", "axis 0 has n elements");
}

TEST(Reductions, HaveGradients) {
  World w;
  const Array& a = Table();
  using Method = Tensor (*)(const Tensor&);
  for (Method f : std::initializer_list<Method>{
           [](const Tensor& x) { return x.Sum(1); },
           [](const Tensor& x) { return x.Prod(0, true); },
           [](const Tensor& x) { return x.Max(1); },
           [](const Tensor& x) {
             return x.Min({0, 1});
           },
           [](const Tensor& x) { return x.Mean(0); },
           [](const Tensor& x) { return x.Var(1); },
           [](const Tensor& x) {
             return x.Std({0, 1}, true);
           },
           [](const Tensor& x) { return x.Softmax(); },
           [](const Tensor& x) { return x.LogSoftmax(0); },
           [](const Tensor& x) { return x.Logsumexp(1); },
           [](const Tensor& x) { return x.Logcumsumexp(1); },
           [](const Tensor& x) { return x.Cumsum(1); },
           [](const Tensor& x) { return x.Cummax(1); },
       }) {
    ExpectGradient(w, a, f);
  }
}

// Each element goes into its own sum and all after it.
TEST(Cumsum, HasTheGradientOfBothStages) {
  World w;
  Tensor x = w.Make(Counting({600}));
  x.set_requires_grad(true);
  ASSERT_TRUE(x.Cumsum().Sum().Backward().ok());
  EXPECT_EQ(w.Values(x.grad()),
            Filled({600}, [](const Coords& i) { return 600 - static_cast<double>(i[0]); }));
}

// 3 and 3 tie: half of the gradient each. The product's gradient is product / x.
TEST(Reductions, KeepTheGradientsOfTheSeedsAtTheEdges) {
  World w;
  Tensor x = w.Make({{4}, {3, 1, 3, 0}});
  x.set_requires_grad(true);
  ASSERT_TRUE(x.Max().Backward().ok());
  EXPECT_EQ(w.Values(x.grad()), (Array{{4}, {0.5, 0, 0.5, 0}}));
  x.clear_grad();
  ASSERT_TRUE(x.Prod().Backward().ok());
  const Array product = w.Values(x.grad());
  EXPECT_EQ(product.values[0], 0);
  EXPECT_TRUE(std::isnan(product.values[3]));
}

}  // namespace
}  // namespace beamd

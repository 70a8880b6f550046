// Tensors against plain loops, run by an executor in this process.
#include "client/thin/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client/thin/errors.h"
#include "client/thin/optimizer.h"
#include "tests/client/thin/fake_executor.h"

namespace beamd::thin {
namespace {

using ::beamd::testing::FakeExecutor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;

// One for all: equal kernels of different tests are compiled once.
class TensorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new FakeExecutor(); }
  static void TearDownTestSuite() { delete server_; }

  static std::unique_ptr<Session> Opened() {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(server_->address());
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  template <typename T = float>
  std::vector<T> Values(const Tensor& t) {
    const absl::StatusOr<std::vector<T>> values = t.ToVector<T>(*session_);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : std::vector<T>();
  }
  void ExpectNear(const Tensor& t, const std::vector<double>& want, double tolerance = 2e-6) {
    const std::vector<float> got = Values(t);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << i;
    }
  }

  static FakeExecutor* server_;
  const std::unique_ptr<Session> session_ = Opened();
};
FakeExecutor* TensorTest::server_ = nullptr;

std::vector<float> Some(int64_t count, int salt = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((i * 7 + salt * 3) % 23) / 8 - 1.3F);
  }
  return values;
}
Tensor Made(const std::vector<int64_t>& shape, int salt = 0) {
  return Tensor::From(Some(Elements({shape.begin(), shape.end()}), salt), shape);
}

TEST_F(TensorTest, ComputesElementByElement) {
  const std::vector<float> values = {-2.5, -1, -0.25, 0.5, 1, 3};
  const Tensor x = Tensor::From(values, {6});
  const auto expect = [&](const Tensor& t, const std::function<double(double)>& f) {
    std::vector<double> want;
    for (const float v : values) want.push_back(f(v));
    ExpectNear(t, want, 4e-6);
  };
  expect(-x, [](double v) { return -v; });
  expect(x.Exp(), [](double v) { return std::exp(v); });
  expect(x.Exp2(), [](double v) { return std::exp2(v); });
  expect(x.Abs().Log(), [](double v) { return std::log(std::abs(v)); });
  expect(x.Sin(), [](double v) { return std::sin(v); });
  expect(x.Cos(), [](double v) { return std::cos(v); });
  expect(x.Square().Sqrt(), [](double v) { return std::abs(v); });
  expect(x.Square().Rsqrt(), [](double v) { return 1 / std::abs(v); });
  expect(x.Reciprocal(), [](double v) { return 1 / v; });
  expect(x.Tanh(), [](double v) { return std::tanh(v); });
  expect(x.Sigmoid(), [](double v) { return 1 / (1 + std::exp(-v)); });
  expect(x.Silu(), [](double v) { return v / (1 + std::exp(-v)); });
  expect(x.Relu(), [](double v) { return std::max(v, 0.0); });
  expect(x.Gelu(), [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  });
  expect(x.Maximum(0.75), [](double v) { return std::max(v, 0.75); });
  expect(x.Minimum(0.75), [](double v) { return std::min(v, 0.75); });
  expect(3 - x * 2 / 4 + 1, [](double v) { return 4 - v / 2; });
  expect(Tensor::Where(x.Less(0), x * 10, 1), [](double v) { return v < 0 ? v * 10 : 1; });
  expect(x.Detach(), [](double v) { return v; });
}

TEST_F(TensorTest, PromotesAndBroadcasts) {
  const Tensor ints = Tensor::From<int32_t>({7, -7, 3}, {3, 1});
  const Tensor row = Tensor::From<float>({1, 2}, {2});
  EXPECT_EQ((ints + row).dtype(), kFloat32);
  EXPECT_THAT(Values(ints + row), ElementsAre(8, 9, -6, -5, 4, 5));
  EXPECT_EQ((ints * 2).dtype(), kInt32);
  EXPECT_EQ((ints * 2.5).dtype(), kFloat32);
  EXPECT_EQ((ints / 2).dtype(), kFloat32);
  EXPECT_EQ((Tensor::From<uint8_t>({1}, {1}) + Tensor::From<int8_t>({1}, {1})).dtype(), kInt16);
  EXPECT_EQ((row.Cast(kFloat16) * 2.5).dtype(), kFloat16);
  EXPECT_THAT(Values<int32_t>(ints.Idiv(2)), ElementsAre(3, -3, 1));
  EXPECT_THAT(Values<int32_t>(ints.Mod(4)), ElementsAre(3, -3, 3));
  EXPECT_THAT(Values<int32_t>(ints.Minimum(4)), ElementsAre(4, -7, 3));
  EXPECT_THAT(Values<uint8_t>(ints.Less(0).Cast(kUint8)), ElementsAre(0, 1, 0));
  EXPECT_THAT(Values<bool>(ints.Equal(3).LogicalNot()), ElementsAre(true, true, false));
  EXPECT_THAT(Values<int32_t>(Tensor(1) - Tensor(true)), ElementsAre(0));
  EXPECT_THAT(Values<int32_t>(row.Bitcast(kInt32)), ElementsAre(0x3F800000, 0x40000000));
}

TEST_F(TensorTest, MovesElements) {
  const Tensor x = Tensor::From<int32_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_THAT(Values<int32_t>(x.Transpose()), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(Values<int32_t>(x.Flip({1}).Slice(1, 0, 2)), ElementsAre(2, 1, 5, 4));
  EXPECT_THAT(Values<int32_t>(x.Slice(0, 1, 2).Pad({{1, 0}, {0, 1}})),
              ElementsAre(0, 0, 0, 0, 3, 4, 5, 0));
  EXPECT_EQ(ToString(x.Unsqueeze(-1).Reshape({-1, 2}).shape()), "(3, 2)");
  EXPECT_EQ(ToString(x.Unsqueeze(1).Squeeze(1).Flatten().shape()), "(6)");
  EXPECT_THAT(Values<int32_t>(Tensor::Cat({x, x * 10}, 1)),
              ElementsAre(0, 1, 2, 0, 10, 20, 3, 4, 5, 30, 40, 50));
  EXPECT_THAT(Values<bool>(Tensor::Cat({x.Less(1).Slice(0, 0, 1), x.Less(9).Slice(0, 1, 2)}, 0)),
              ElementsAre(true, false, false, true, true, true));
}

TEST_F(TensorTest, Counts) {
  EXPECT_THAT(Values<int32_t>(Tensor::Arange(5)), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(Values(Tensor::Arange(3, 0.5, 0.25, kFloat32)), ElementsAre(0.5, 0.75, 1));
  EXPECT_THAT(Values<int64_t>(Tensor::Arange(3, 5, -2, kInt64)), ElementsAre(5, 3, 1));
  EXPECT_TRUE(Values<int32_t>(Tensor::Arange(0)).empty());
  // No program walks fifty thousand times fifty thousand places.
  const std::vector<int32_t> many = Values<int32_t>(Tensor::Arange(50257));
  EXPECT_EQ(many[50256], 50256);
  EXPECT_FALSE(Tensor::Arange(3, 0.5).ok());
}

TEST_F(TensorTest, DrawsTheSameForOneSeed) {
  const std::vector<float> draws = Values(Tensor::Normal({10000}, 3, 1, 2));
  const double mean = std::accumulate(draws.begin(), draws.end(), 0.0) / 10000;
  EXPECT_NEAR(mean, 1, 0.1);
  EXPECT_EQ(draws, Values(Tensor::Normal({10000}, 3, 1, 2)));
  EXPECT_NE(draws, Values(Tensor::Normal({10000}, 4, 1, 2)));
  for (const float v : Values(Tensor::Uniform({1000}, 1, -1, 3))) {
    EXPECT_GE(v, -1);
    EXPECT_LT(v, 3);
  }
}

TEST_F(TensorTest, Reduces) {
  const Tensor x = Made({3, 4});
  const std::vector<float> v = Some(12);
  std::vector<double> sums(3), most(3, -1e9), least(4, 1e9), var(3), argmax(3);
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 4; ++k) {
      sums[i] += v[4 * i + k];
      if (v[4 * i + k] > most[i]) argmax[i] = k;
      most[i] = std::max<double>(most[i], v[4 * i + k]);
      least[k] = std::min<double>(least[k], v[4 * i + k]);
    }
    for (int k = 0; k < 4; ++k) var[i] += std::pow(v[4 * i + k] - sums[i] / 4, 2) / 4;
  }
  ExpectNear(x.Sum({1}), sums);
  ExpectNear(x.Max({-1}), most);
  ExpectNear(x.Min({0}), least);
  ExpectNear(x.Var({1}), var);
  ExpectNear(x.Mean(), {std::accumulate(sums.begin(), sums.end(), 0.0) / 12});
  ExpectNear(x.Argmax().Cast(kFloat32), argmax);
  EXPECT_EQ(ToString(x.Sum({0}, true).shape()), "(1, 4)");
  EXPECT_EQ(x.Less(0).Sum().dtype(), kInt32);
  EXPECT_EQ(x.Cast(kFloat16).Sum().dtype(), kFloat16);
  EXPECT_THAT(Values<int32_t>(Tensor::From<int32_t>({INT32_MIN, 5, INT32_MAX}, {3}).Min()),
              ElementsAre(INT32_MIN));
  EXPECT_THAT(Values<uint32_t>(Tensor::From<uint32_t>({7, 3, 9}, {3}).Min()), ElementsAre(3));
  ExpectNear(Tensor::From<float>({2, 3, 4}, {3}).Prod(), {24});
}

TEST_F(TensorTest, MultipliesMatrices) {
  const Tensor a = Made({2, 3, 5}), b = Made({5, 4}, 1);
  const std::vector<float> x = Some(30), y = Some(20, 1);
  std::vector<double> want;
  for (int i = 0; i < 6; ++i) {
    for (int k = 0; k < 4; ++k) {
      want.push_back(0);
      for (int j = 0; j < 5; ++j) want.back() += double{x[5 * i + j]} * y[4 * j + k];
    }
  }
  EXPECT_EQ(ToString(a.Matmul(b).shape()), "(2, 3, 4)");
  ExpectNear(a.Matmul(b), want);
  EXPECT_EQ(ToString(a.Matmul(Made({5})).shape()), "(2, 3)");
  EXPECT_EQ(ToString(Made({5}).Matmul(b).shape()), "(4)");
  EXPECT_EQ(ToString(Made({5}).Matmul(Made({5})).shape()), "()");
  EXPECT_FALSE(a.Matmul(a).ok());
}

// Out of range: 0.
double At(const std::vector<float>& x, int n, int c, int y, int i, int channels, int side) {
  if (y < 0 || i < 0 || y >= side || i >= side) return 0;
  return x[((n * channels + c) * side + y) * side + i];
}

TEST_F(TensorTest, Convolves) {
  constexpr int kSide = 7, kIn = 4, kOut = 6, kKernel = 3;
  const std::vector<float> x = Some(2 * kIn * kSide * kSide);
  for (const WindowOptions& o :
       {WindowOptions{}, WindowOptions{.stride = 2, .padding = 1},
        WindowOptions{.padding = 2, .dilation = 2}, WindowOptions{.stride = 3, .groups = 2},
        WindowOptions{.stride = 2, .padding = 1, .dilation = 2, .groups = 2}}) {
    const int in = kIn / o.groups, out = kOut / o.groups;
    const std::vector<float> w = Some(kOut * in * kKernel * kKernel, 2);
    const int side = (kSide + 2 * o.padding - o.dilation * (kKernel - 1) - 1) / o.stride + 1;
    std::vector<double> want;
    for (int n = 0; n < 2; ++n) {
      for (int c = 0; c < kOut; ++c) {
        for (int place = 0; place < side * side; ++place) {
          double sum = 0;
          for (int k = 0; k < in * kKernel * kKernel; ++k) {
            const int ky = k / kKernel % kKernel, kx = k % kKernel;
            sum += w[c * in * kKernel * kKernel + k] *
                   At(x, n, c / out * in + k / (kKernel * kKernel),
                      place / side * o.stride - o.padding + ky * o.dilation,
                      place % side * o.stride - o.padding + kx * o.dilation, kIn, kSide);
          }
          want.push_back(sum);
        }
      }
    }
    const Tensor got = Tensor::From(x, {2, kIn, kSide, kSide})
                           .Conv2d(Tensor::From(w, {kOut, in, kKernel, kKernel}), o);
    ASSERT_EQ(ToString(got.shape()), ToString(Shape{2, kOut, side, side})) << got.status();
    ExpectNear(got, want, 1e-5);
  }
  EXPECT_FALSE(Made({1, 3, 2, 2}).Conv2d(Made({1, 3, 3, 3})).ok());
  EXPECT_FALSE(Made({1, 3, 4, 4}).Conv2d(Made({1, 2, 3, 3})).ok());
}

TEST_F(TensorTest, Pools) {
  const Tensor x = Tensor::From<float>({1, 2, 3, 4, 5, 6, 7, 8, -9}, {1, 1, 3, 3});
  ExpectNear(x.MaxPool2d(2, {.stride = 1}), {5, 6, 8, 8});
  ExpectNear(x.MaxPool2d(), {5});
  ExpectNear((x * -1).MaxPool2d(3, {.stride = 2, .padding = 1}), {-1, -2, -4, 9});
  ExpectNear(x.AvgPool2d(2, {.stride = 1}), {3, 4, 6, 2.5});
}

TEST_F(TensorTest, NormalisesAndLoses) {
  const Tensor logits = Made({3, 5});
  const std::vector<float> v = Some(15);
  const std::vector<int32_t> labels = {4, 0, 2};
  std::vector<double> soft, logs, norm;
  double loss = 0;
  for (int i = 0; i < 3; ++i) {
    double sum = 0, mean = 0, var = 0;
    for (int k = 0; k < 5; ++k) sum += std::exp(v[5 * i + k]);
    for (int k = 0; k < 5; ++k) mean += v[5 * i + k] / 5;
    for (int k = 0; k < 5; ++k) var += std::pow(v[5 * i + k] - mean, 2) / 5;
    for (int k = 0; k < 5; ++k) {
      soft.push_back(std::exp(v[5 * i + k]) / sum);
      logs.push_back(std::log(soft.back()));
      norm.push_back((v[5 * i + k] - mean) / std::sqrt(var + 1e-5));
      if (k == labels[i]) loss -= logs.back() / 3;
    }
  }
  ExpectNear(logits.Softmax(), soft);
  ExpectNear(logits.LogSoftmax(), logs, 1e-5);
  ExpectNear(logits.Transpose().Softmax(0).Transpose(), soft);
  ExpectNear(logits.Layernorm(), norm, 1e-5);
  ExpectNear(logits.CrossEntropy(Tensor::From(labels, {3})), {loss});
}

TEST_F(TensorTest, LooksRowsUp) {
  const Tensor table = Tensor::From<float>({1, 2, INFINITY, 4, 5, NAN}, {3, 2});
  const Tensor ids = Tensor::From<int64_t>({2, 0, 7}, {3});
  EXPECT_THAT(Values(table.Embedding(ids)), ElementsAre(5, IsNan(), 1, 2, 0, 0));
  EXPECT_THAT(Values<bool>(Tensor::From<int32_t>({1}, {1}).OneHot(3)),
              ElementsAre(false, true, false));
}

// ---- what lies on the server ----

TEST_F(TensorTest, ComputesOnce) {
  const Tensor x = Made({4}), y = (x + 1).Square();
  EXPECT_EQ(y.buffer(), nullptr);
  ASSERT_TRUE(Compute(*session_, {y, x}).ok());
  ASSERT_NE(y.buffer(), nullptr);
  ASSERT_NE(x.buffer(), nullptr);
  const int runs = server_->calls().run, downloads = server_->calls().download;
  std::vector<double> want;
  for (const float v : Some(4)) want.push_back(std::pow(v + 1, 2));
  ExpectNear(y, want);
  EXPECT_EQ(server_->calls().run, runs);
  EXPECT_EQ(server_->calls().download, downloads);  // it came with the answer
  const Tensor z = y + y;
  EXPECT_EQ(Values(z)[0], 2 * Values(y)[0]);
  EXPECT_EQ(server_->last_request().graph().nodes_size(), 3);  // BUFFER, ADD, SINK
}

TEST_F(TensorTest, AssignsInPlace) {
  const Tensor w = Tensor::From<float>({1, 2, 3, 4}, {2, 2});
  ASSERT_TRUE(Compute(*session_, {w}).ok());
  const uint64_t handle = w.buffer()->handle();
  const Tensor assigned = w.Assign(w * 10);
  const Tensor before = w + 1;  // of the same run: what was there before
  ASSERT_TRUE(Compute(*session_, {assigned, before}).ok());
  EXPECT_THAT(Values(before), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Values(w), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(Values(assigned), ElementsAre(10, 20, 30, 40));
  EXPECT_EQ(assigned.buffer()->handle(), handle);
  // Once, however often the result is used.
  EXPECT_THAT(Values(assigned + 0), ElementsAre(10, 20, 30, 40));
  // A part, and as what something is made of.
  const Tensor part = w.Slice(1, 1, 2).Assign(-1);
  EXPECT_THAT(Values(part * 2), ElementsAre(-2, -2));
  EXPECT_THAT(Values(w), ElementsAre(10, -1, 30, -1));
  EXPECT_THAT(Values(part), ElementsAre(-1, -1));
  ASSERT_TRUE(Compute(*session_, {w.Assign(w + 1)}).ok());
  EXPECT_THAT(Values(part), ElementsAre(0, 0));
  EXPECT_FALSE((w + 1).Assign(w).ok());
  EXPECT_FALSE(w.Assign(Tensor::Zeros({3})).ok());
}

TEST_F(TensorTest, TakesVariables) {
  const Variable pos{"pos", 0, 7};
  const Tensor cache = Tensor::Zeros({8, 2}).Contiguous();
  ASSERT_TRUE(Compute(*session_, {cache}).ok());
  std::vector<double> rows;
  for (int i = 0; i < 5; ++i) {
    const float v = static_cast<float>(i + 1);
    const Tensor row = Tensor::From<float>({v, -v}, {1, 2});
    const Tensor written = cache.Slice(0, pos, pos + 1).Assign(row);
    const Tensor seen = cache.Slice(0, 0, pos + 1);
    RunOptions options{.variables = {{"pos", i}}};
    ASSERT_TRUE(Compute(*session_, {written}, options).ok());
    const Tensor sum = seen.Sum({0}), mean = seen.Mean({0});
    const Tensor next = Tensor::Of(pos) * 10;
    const Tensor soft = seen.Softmax(0).Square().Sum({0});
    const absl::StatusOr<RunReport> report = Compute(*session_, {sum, mean, next, soft}, options);
    ASSERT_TRUE(report.ok()) << report.status();
    rows.push_back(v);
    const double total = std::accumulate(rows.begin(), rows.end(), 0.0);
    ExpectNear(sum, {total, -total});
    ExpectNear(mean, {total / v, -total / v});
    EXPECT_THAT(Values<int32_t>(next), ElementsAre(10 * i));
    double norm = 0, squares = 0;
    for (const double row : rows) norm += std::exp(row);
    for (const double row : rows) squares += std::pow(std::exp(row) / norm, 2);
    EXPECT_NEAR(Values(soft)[0], squares, 1e-5);
  }
  EXPECT_FALSE(Compute(*session_, {cache.Slice(0, 0, pos + 1).Sum()}).ok());  // no value
}

TEST_F(TensorTest, GivesGradients) {
  Tensor w = Made({5, 3}), b = Made({3}, 1), x = Made({4, 5}, 2), unused = Made({2}, 3);
  const Tensor labels = Tensor::From<int32_t>({0, 2, 1, 2}, {4});
  const auto loss_of = [&](const Tensor& w, const Tensor& b) {
    return (x.Matmul(w) + b).Tanh().CrossEntropy(labels) + b.Square().Sum() * 0;
  };
  const Tensor loss = loss_of(w, b);
  const absl::StatusOr<RunReport> report = Compute(*session_, {loss}, {.gradients_of = {w, b}});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->gradients.size(), 2);
  EXPECT_EQ(report->gradients[0].shape(), w.shape());
  const std::vector<float> of_w = Values(report->gradients[0]), of_b = Values(report->gradients[1]);
  const auto difference = [&](std::vector<float> at, const std::vector<int64_t>& shape, int place,
                              bool is_w) {
    double values[2];
    for (const int side : {0, 1}) {
      std::vector<double> wide(at.begin(), at.end());
      wide[place] += side == 0 ? 1e-4 : -1e-4;
      const Tensor moved = Tensor::From(wide, shape);
      const Tensor other =
          is_w ? loss_of(moved, b.Cast(kFloat64)) : loss_of(w.Cast(kFloat64), moved);
      values[side] = *other.Item<double>(*session_);
    }
    return (values[0] - values[1]) / 2e-4;
  };
  for (const int place : {0, 7, 14}) {
    EXPECT_NEAR(of_w[place], difference(Some(15), {5, 3}, place, true), 1e-5) << place;
  }
  for (const int place : {0, 1, 2}) {
    EXPECT_NEAR(of_b[place], difference(Some(3, 1), {3}, place, false), 1e-5) << place;
  }
  // What isn't in the graph, isn't memory, or was computed before.
  const absl::Status absent =
      Compute(*session_, {loss_of(w, b)}, {.gradients_of = {unused}}).status();
  EXPECT_EQ(DetailOf(absent)->field(), "gradients[0]");
  EXPECT_FALSE(Compute(*session_, {loss_of(w, b)}, {.gradients_of = {w * 2}}).ok());
  EXPECT_FALSE(Compute(*session_, {loss}, {.gradients_of = {w}}).ok());
  EXPECT_FALSE(Compute(*session_, {w * 2}, {.gradients_of = {w}}).ok());
}

TEST_F(TensorTest, Trains) {
  for (const bool adam : {false, true}) {
    const Tensor w = Tensor::Normal({2, 1}, 1), x = Tensor::Normal({32, 2}, 2);
    const Tensor y = x.Matmul(Tensor::From<float>({3, -2}, {2, 1}));
    Optimizer optimizer = adam ? Optimizer({w}, AdamOptions{.lr = 0.3})
                               : Optimizer({w}, SgdOptions{.lr = 0.1, .momentum = 0.5});
    std::vector<int> nodes;
    for (int step = 0; step < 60; ++step) {
      const Tensor loss = (x.Matmul(w) - y).Square().Mean();
      const absl::StatusOr<RunReport> report = Compute(*session_, {loss}, {.gradients_of = {w}});
      ASSERT_TRUE(report.ok()) << report.status();
      const absl::Status stepped = optimizer.Step(*session_, report->gradients);
      ASSERT_TRUE(stepped.ok()) << stepped;
      nodes.push_back(server_->last_request().graph().nodes_size());
      if (step == 40) optimizer.set_lr(0.02);
    }
    EXPECT_THAT(nodes, ::testing::Each(nodes[0]));
    ExpectNear(w, {3, -2}, 0.02);
  }
}

// ---- mistakes ----

TEST_F(TensorTest, FailsWithTheFirstMistake) {
  const Tensor x = Made({2, 3});
  EXPECT_EQ((x + Made({2})).Exp().Sum().status().message(),
            "add: the shapes (2, 3) and (2) don't broadcast");
  EXPECT_THAT((x.Matmul(x)).status().message(), HasSubstr("matmul: (2, 3) by (2, 3)"));
  EXPECT_FALSE(x.Reshape({4, 2}).ok());
  EXPECT_FALSE(x.Reshape({-1, 4}).ok());
  EXPECT_FALSE(x.Reshape({-2, 3}).ok());
  EXPECT_FALSE(x.Permute({0, 0}).ok());
  EXPECT_FALSE(x.Shrink({{0, 3}, {0, 3}}).ok());
  EXPECT_FALSE(x.Slice(0, 1, 0).ok());
  EXPECT_FALSE(x.Pad({{0, 0}}).ok());
  EXPECT_FALSE(x.Pad({{0, -1}, {0, 0}}).ok());
  EXPECT_FALSE(x.Sum({2}).ok());
  EXPECT_FALSE(x.Sum({0, -2}).ok());
  EXPECT_FALSE(x.Expand({2, 4}).ok());
  EXPECT_FALSE(x.Transpose(0, 0).ok());
  EXPECT_FALSE(x.Bitcast(kInt64).ok());
  EXPECT_FALSE(x.OneHot(3).ok());
  EXPECT_FALSE(Tensor::Cat({}, 0).ok());
  EXPECT_FALSE(Tensor::Cat({x, Made({2})}, 0).ok());
  EXPECT_FALSE(Tensor::From<float>({1, 2}, {3}).ok());
  EXPECT_FALSE(Tensor::Ones({int64_t{1} << 30, int64_t{1} << 30}).ok());
  EXPECT_FALSE(Tensor::Ones({-1}).ok());
  EXPECT_FALSE(Tensor::Of({"n", 3, 2}).ok());
  EXPECT_FALSE(Tensor().ok());
  EXPECT_FALSE(Compute(*session_, {x, Tensor()}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(x.ToVector<int32_t>(*session_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(x.Item<float>(*session_).status()));
  const Variable one{"n", 0, 3}, other{"n", 0, 4};
  EXPECT_FALSE(Compute(*session_, {Tensor::Of(one) + Tensor::Of(other)}).ok());
}

TEST_F(TensorTest, IsAsDeepAsItLikes) {
  Tensor x = Made({2});
  for (int i = 0; i < 50000; ++i) x = x + 1;
  EXPECT_TRUE(x.ok());
  EXPECT_EQ(ToGraph({x})->nodes_size(), 50000 * 4 + 2);
}

TEST_F(TensorTest, RunsFromManyThreads) {
  const Tensor shared = Made({64});
  std::vector<std::thread> threads;
  std::vector<float> sums(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 5; ++k) {
        const absl::StatusOr<float> sum = (shared * i).Sum().Item<float>(*session_);
        sums[i] = sum.ok() ? *sum : NAN;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(sums[i], sums[1] * i, 1e-4);
  std::future<absl::StatusOr<RunReport>> later = ComputeAsync(*session_, {shared.Square()});
  const absl::StatusOr<RunReport> report = later.get();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->statistics.kernels(), 0);
}

TEST_F(TensorTest, NamesBuffersInOrderInFiles) {
  const Tensor a = Made({2}), b = Made({2}, 1);
  const absl::StatusOr<v1::Graph> graph = ToGraph({b * a + b});
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->nodes(0).buffer_arg().id(), 0);
  EXPECT_EQ(graph->nodes(1).buffer_arg().id(), 1);
  EXPECT_EQ(graph->nodes_size(), 5);
}

}  // namespace
}  // namespace beamd::thin

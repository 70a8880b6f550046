// A small convolution network learns which way stripes run, by Adam on the server.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "client/thin/optimizer.h"
#include "client/thin/tensor.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/server.h"

namespace beamd::thin {
namespace {

constexpr int kSide = 12, kClasses = 4, kBatch = 32;

// Stripes along one of four directions, at any phase, under noise.
void NextStripes(std::mt19937& random, std::vector<float>* pixels, std::vector<int32_t>* labels) {
  std::normal_distribution<float> noise(0, 0.3F);
  pixels->clear();
  labels->clear();
  for (int i = 0; i < kBatch; ++i) {
    const int label = static_cast<int>(random() % kClasses);
    const int phase = static_cast<int>(random() % 4);
    labels->push_back(label);
    for (int row = 0; row < kSide; ++row) {
      for (int column = 0; column < kSide; ++column) {
        const int along[kClasses] = {row, column, row + column, row - column + kSide};
        pixels->push_back(((along[label] + phase) % 4 < 2 ? 1.0F : -1.0F) + noise(random));
      }
    }
  }
}

Tensor Weights(const std::vector<int64_t>& shape, int64_t inputs, uint64_t seed) {
  const float bound = 1 / std::sqrt(static_cast<float>(inputs));
  return Tensor::Uniform(shape, seed, -bound, bound);
}

// Over the batch and the places, as in training.
Tensor BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& bias) {
  const Tensor centred = x - x.Mean({0, 2, 3}, true);
  const Tensor normal = centred * (centred.Square().Mean({0, 2, 3}, true) + 1e-5).Rsqrt();
  return normal * scale.Reshape({1, -1, 1, 1}) + bias.Reshape({1, -1, 1, 1});
}

TEST(ConvNet, LearnsStripes) {
  const std::unique_ptr<Session> session = testing::ExampleSession();
  ASSERT_NE(session, nullptr);
  const Tensor first = Weights({8, 1, 3, 3}, 9, 1), scale = Tensor::Uniform({8}, 2, 1, 1);
  const Tensor bias = Tensor::Uniform({8}, 3, 0, 0), second = Weights({16, 8, 3, 3}, 72, 4);
  const Tensor head = Weights({64, kClasses}, 64, 5);
  Optimizer optimizer({first, scale, bias, second, head}, AdamOptions{.lr = 0.01});
  const auto logits = [&](const Tensor& x) {
    const Tensor wide = BatchNorm(x.Conv2d(first, {.padding = 1}), scale, bias).Relu().MaxPool2d();
    return wide.Conv2d(second).Relu().MaxPool2d().Flatten(1).Matmul(head);
  };
  std::mt19937 random(11);
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  float loss_now = 0;
  constexpr int kSteps = 30;
  for (int step = 0; step < kSteps; ++step) {
    NextStripes(random, &pixels, &labels);
    const Tensor x = Tensor::From(pixels, {kBatch, 1, kSide, kSide});
    const Tensor loss = logits(x).CrossEntropy(Tensor::From(labels, {kBatch}));
    const absl::StatusOr<RunReport> report =
        Compute(*session, {loss}, {.gradients_of = optimizer.parameters()});
    ASSERT_TRUE(report.ok()) << report.status();
    const absl::Status stepped = optimizer.Step(*session, report->gradients);
    ASSERT_TRUE(stepped.ok()) << stepped;
    const absl::StatusOr<float> value = loss.Item<float>(*session);
    ASSERT_TRUE(value.ok()) << value.status();
    loss_now = *value;
  }
  EXPECT_LT(loss_now, 0.1F);

  NextStripes(random, &pixels, &labels);
  const absl::StatusOr<std::vector<int32_t>> guesses =
      logits(Tensor::From(pixels, {kBatch, 1, kSide, kSide})).Argmax(1).ToVector<int32_t>(*session);
  ASSERT_TRUE(guesses.ok()) << guesses.status();
  int right = 0;
  for (int i = 0; i < kBatch; ++i) right += (*guesses)[i] == labels[i] ? 1 : 0;
  EXPECT_GE(right, kBatch - 3);
}

}  // namespace
}  // namespace beamd::thin

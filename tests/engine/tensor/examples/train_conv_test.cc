// A small convolution network learns which way stripes run, by Adam.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "engine/tensor/nn/layers.h"
#include "engine/tensor/nn/optim.h"
#include "engine/tensor/tensor.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd {
namespace {

constexpr int kSide = 12;
constexpr int kClasses = 4;
constexpr int kBatch = 32;

struct ConvNet : nn::Module {
  explicit ConvNet(LazyContext& context)
      : first(context, 1, 8, 3, {.padding = 1}),
        norm(context, 8),
        second(context, 8, 16, 3),
        head(context, 16 * 2 * 2, kClasses) {
    Register("first", first);
    Register("norm", norm);
    Register("second", second);
    Register("head", head);
  }
  Tensor operator()(const Tensor& x) {
    const Tensor wide = norm(first(x)).Relu().MaxPool2d();
    return head(second(wide).Relu().MaxPool2d().Flatten(1));
  }

  nn::Conv2d first;
  nn::BatchNorm norm;
  nn::Conv2d second;
  nn::Linear head;
};

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

TEST(ConvNet, LearnsStripes) {
  testing::LazyRuntime lazy;
  Tensor::ManualSeed(lazy.context, 5);
  lazy.context.training = true;
  ConvNet model(lazy.context);
  const auto optimizer = nn::Adam(model.Parameters(), {.lr = 0.01});
  std::mt19937 random(11);
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  float last = 0;
  constexpr int kSteps = 25;
  for (int step = 0; step < kSteps; ++step) {
    NextStripes(random, &pixels, &labels);
    const Tensor x = Tensor::From(lazy.context, pixels, {kBatch, 1, kSide, kSide});
    const Tensor y = Tensor::From(lazy.context, labels, {kBatch});
    optimizer->ZeroGrad();
    const Tensor loss = model(x).SparseCategoricalCrossentropy(y);
    const absl::Status backward = loss.Backward();
    ASSERT_TRUE(backward.ok()) << backward;
    const absl::Status stepped = optimizer->Step();
    ASSERT_TRUE(stepped.ok()) << stepped;
    const absl::StatusOr<float> value = loss.Item<float>();
    ASSERT_TRUE(value.ok()) << value.status();
    last = *value;
  }
  EXPECT_LT(last, 0.1F);

  // What it learnt holds with the running statistics too.
  lazy.context.training = false;
  NextStripes(random, &pixels, &labels);
  const absl::StatusOr<std::vector<int32_t>> guesses =
      model(Tensor::From(lazy.context, pixels, {kBatch, 1, kSide, kSide}))
          .Argmax(1)
          .ToVector<int32_t>();
  ASSERT_TRUE(guesses.ok()) << guesses.status();
  int right = 0;
  for (int i = 0; i < kBatch; ++i) right += (*guesses)[i] == labels[i] ? 1 : 0;
  EXPECT_GE(right, kBatch - 3);
}

}  // namespace
}  // namespace beamd

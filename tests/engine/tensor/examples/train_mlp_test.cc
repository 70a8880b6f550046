// A 784-256-10 MLP learns noisy patterns, one a class, by stochastic gradient descent.
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

constexpr int kPixels = 784;
constexpr int kClasses = 10;
constexpr int kBatch = 64;

struct Mlp : nn::Module {
  explicit Mlp(LazyContext& context) : hidden(context, kPixels, 256), out(context, 256, kClasses) {
    Register("hidden", hidden);
    Register("out", out);
  }
  Tensor operator()(const Tensor& x) const { return out(hidden(x).Relu()); }

  nn::Linear hidden;
  nn::Linear out;
};

// Batches without an end: a class' pattern under twice as much noise.
class Patterns {
 public:
  Patterns() {
    for (float& pixel : patterns_) pixel = normal_(random_);
  }
  void Next(std::vector<float>* pixels, std::vector<int32_t>* labels) {
    pixels->clear();
    labels->clear();
    for (int i = 0; i < kBatch; ++i) {
      labels->push_back(static_cast<int32_t>(random_() % kClasses));
      for (int p = 0; p < kPixels; ++p) {
        pixels->push_back(patterns_[labels->back() * kPixels + p] + 2 * normal_(random_));
      }
    }
  }

 private:
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  std::vector<float> patterns_ = std::vector<float>(size_t{kClasses} * kPixels);
};

TEST(Mlp, LearnsPatterns) {
  testing::LazyRuntime lazy;
  Tensor::ManualSeed(lazy.context, 3);
  lazy.context.training = true;
  const Mlp model(lazy.context);
  const auto optimizer = nn::SGD(model.Parameters(), {.lr = 0.02});
  Patterns patterns;
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  float first = 0;
  float last = 0;
  constexpr int kSteps = 60;
  for (int step = 0; step < kSteps; ++step) {
    patterns.Next(&pixels, &labels);
    const Tensor x = Tensor::From(lazy.context, pixels, {kBatch, kPixels});
    const Tensor y = Tensor::From(lazy.context, labels, {kBatch});
    optimizer->ZeroGrad();
    const Tensor loss = model(x).SparseCategoricalCrossentropy(y);
    const absl::Status backward = loss.Backward();
    ASSERT_TRUE(backward.ok()) << backward;
    const absl::Status stepped = optimizer->Step();
    ASSERT_TRUE(stepped.ok()) << stepped;
    const absl::StatusOr<float> value = loss.Item<float>();
    ASSERT_TRUE(value.ok()) << value.status();
    if (step == 0) first = *value;
    last = *value;
  }
  EXPECT_GT(first, 1.5F);  // about log(10)
  EXPECT_LT(last, 0.1F);
}

}  // namespace
}  // namespace beamd

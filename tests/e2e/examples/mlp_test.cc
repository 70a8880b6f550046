// A 784-256-10 MLP learns noisy patterns, one a class: gradients and steps are the server's.
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

constexpr int kPixels = 784, kHidden = 256, kClasses = 10, kBatch = 64;

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

// Uniform within one over the square root of the inputs.
Tensor Weights(int in, int out, uint64_t seed) {
  const float bound = 1 / std::sqrt(static_cast<float>(in));
  return Tensor::Uniform({in, out}, seed, -bound, bound);
}

TEST(Mlp, LearnsPatterns) {
  const std::unique_ptr<Session> session = testing::ExampleSession();
  ASSERT_NE(session, nullptr);
  const Tensor w1 = Weights(kPixels, kHidden, 1), b1 = Tensor::Uniform({kHidden}, 2, 0, 0);
  const Tensor w2 = Weights(kHidden, kClasses, 3), b2 = Tensor::Uniform({kClasses}, 4, 0, 0);
  Optimizer optimizer({w1, b1, w2, b2}, SgdOptions{.lr = 0.02});
  Patterns patterns;
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  float first = 0, last = 0;
  constexpr int kSteps = 60;
  for (int step = 0; step < kSteps; ++step) {
    patterns.Next(&pixels, &labels);
    const Tensor x = Tensor::From(pixels, {kBatch, kPixels}), y = Tensor::From(labels, {kBatch});
    const Tensor loss = ((x.Matmul(w1) + b1).Relu().Matmul(w2) + b2).CrossEntropy(y);
    const absl::StatusOr<RunReport> report =
        Compute(*session, {loss}, {.gradients_of = optimizer.parameters()});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->statistics.captured(), step > 0 && testing::KeepsPlans());
    const absl::Status stepped = optimizer.Step(*session, report->gradients);
    ASSERT_TRUE(stepped.ok()) << stepped;
    const absl::StatusOr<float> value = loss.Item<float>(*session);
    ASSERT_TRUE(value.ok()) << value.status();
    if (step == 0) first = *value;
    last = *value;
  }
  EXPECT_GT(first, 1.5F);  // about log(10)
  EXPECT_LT(last, 0.1F);
}

}  // namespace
}  // namespace beamd::thin

// Inference of ResNet-50's shape on a small image against plain loops.
#include "tests/e2e/examples/resnet.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "client/thin/tensor.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/server.h"

namespace beamd::thin {
namespace {

constexpr int kSide = 32;

TEST(ResNet50, EqualsLoops) {
  const std::unique_ptr<Session> session = testing::ExampleSession();
  ASSERT_NE(session, nullptr);
  const testing::ResNet50 model;
  std::vector<float> image(3 * kSide * kSide);
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  const Tensor logits = model.Logits(Tensor::From(image, {1, 3, kSide, kSide}));
  const absl::StatusOr<std::vector<float>> got = logits.ToVector<float>(*session);
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<double> want = model.LogitsByLoops(image, kSide);
  ASSERT_EQ(got->size(), want.size());
  double most = 0;
  for (const double w : want) most = std::max(most, std::abs(w));
  EXPECT_GT(most, 0.01);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR((*got)[i], want[i], 1e-4 * most) << i;
}

}  // namespace
}  // namespace beamd::thin

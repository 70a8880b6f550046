// Losses and normalisations: reductions, edges, mistakes. Their values are held against NumPy in
// golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/tensor/tensor.h"
#include "tests/engine/tensor/both_realizers.h"

namespace beamd::testing {
namespace {

class LossTest : public BothRealizersTest {
 protected:
  Tensor Labels(const Values& values) { return Vector(values, Scalar::kInt32); }
};
INSTANTIATE_TEST_SUITE_P(On, LossTest, Realizers(), RealizerName);

TEST_P(LossTest, ReductionsAgree) {
  const Tensor logits = Make({1, 2, -1, 0.5, 3, 0}, {2, 3});
  const Tensor labels = Labels({2, 0});
  const Values each = Read(logits.SparseCategoricalCrossentropy(labels, -1, 0, Reduction::kNone));
  ASSERT_EQ(each.size(), 2U);
  ExpectNear(Read(logits.SparseCategoricalCrossentropy(labels)), {(each[0] + each[1]) / 2}, 1e-6);
  ExpectNear(Read(logits.SparseCategoricalCrossentropy(labels, -1, 0, Reduction::kSum)),
             {each[0] + each[1]}, 1e-6);
  ExpectNear(Read(logits.CrossEntropy(labels, Reduction::kNone)), each, 1e-6);
  ExpectNear(Read(logits.LogSoftmax().NllLoss(labels, Tensor(), std::nullopt, Reduction::kNone)),
             each, 1e-6);
}

TEST_P(LossTest, TheMeanIsOverTheLabelsThatCount) {
  const Tensor logits = Make({1, 2, -1, 0.5, 3, 0}, {2, 3});
  ExpectNear(Read(logits.SparseCategoricalCrossentropy(Labels({2, 0}), 0)),
             Read(logits.Get({Slice{0, 1}}).SparseCategoricalCrossentropy(Labels({2}))), 1e-6);
  // None does.
  ExpectNear(Read(logits.SparseCategoricalCrossentropy(Labels({0, 0}), 0)), {kNan});
  ExpectNear(Read(logits.LogSoftmax().NllLoss(Labels({0, 0}), Tensor(), 0)), {kNan});
}

TEST_P(LossTest, LargeLogitsDoNotOverflow) {
  const Tensor logits = Make({1000, -1000}, {1, 2});
  ExpectNear(Read(logits.SparseCategoricalCrossentropy(Labels({1}))), {2000}, 1e-6);
  ExpectNear(Read(logits.BinaryCrossentropyLogits(Make({0, 1}, {1, 2}), Reduction::kNone)),
             {1000, 1000}, 1e-6);
}

TEST_P(LossTest, LabelsMayHaveSeveralAxes) {
  const Tensor logits = Make({1, 2, 3, 4, 5, 7, 1, 0}, {2, 2, 2});
  const Tensor labels = Labels({0, 1, 1, 0}).Reshape({2, 2});
  ExpectNear(Read(logits.SparseCategoricalCrossentropy(labels, -1, 0, Reduction::kNone)),
             Read(logits.Reshape({4, 2}).SparseCategoricalCrossentropy(labels.Flatten(), -1, 0,
                                                                       Reduction::kNone)));
}

TEST_P(LossTest, AConstantIsNormalisedToZero) {
  ExpectNear(Read(Make({3, 3, 3, 3}, {2, 2}).Layernorm()), {0, 0, 0, 0});
}

class LossErrorTest : public TensorTest {};

TEST_F(LossErrorTest, MistakesAreNamed) {
  const Tensor logits = Make(Values(6, 0), {2, 3});
  const Tensor labels = Vector({0, 1}, Scalar::kInt32);
  const Tensor three = Vector({0, 1, 2}, Scalar::kInt32);
  const std::string sparse = "sparse_categorical_crossentropy";
  ExpectFails(logits.SparseCategoricalCrossentropy(three), sparse, "labels (3) for logits (2, 3)");
  ExpectFails(logits.SparseCategoricalCrossentropy(labels, -1, 1.5), sparse,
              "label_smoothing 1.5 is not in [0, 1]");
  ExpectFails(logits.SparseCategoricalCrossentropy(labels, -1, kNan), sparse, "label_smoothing");
  ExpectFails(logits.CrossEntropy(labels, Reduction::kMean, -0.5), "cross_entropy", "-0.5");
  ExpectFails(three.CrossEntropy(labels), "cross_entropy", "no axis of classes in (3)");
  ExpectFails(logits.NllLoss(logits), "nll_loss", "labels (2, 3) for log-probabilities (2, 3)");
  ExpectFails(logits.NllLoss(Vector({0, 1})), "nll_loss", "labels of float32, not integers");
  ExpectFails(logits.NllLoss(labels, Vector({1, 2})), "nll_loss", "weights (2) for 3 classes");
  ExpectFails(logits.NllLoss(labels, Make(Values(6, 1), {3, 2})), "nll_loss",
              "weights (3, 2) for 3 classes");
  EXPECT_FALSE(logits.BinaryCrossentropy(three.Reshape({3, 1})).ok());
  EXPECT_EQ(logits.CrossEntropy(Tensor()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(LossErrorTest, NormalisationsThatCannotBe) {
  const Tensor x = Make(Values(6, 0), {2, 3});
  const Tensor channel = Vector({1, 1, 1});
  EXPECT_FALSE(x.Layernorm(2).ok());
  ExpectFails(x.Batchnorm(Tensor(), Tensor(), channel, channel, 2), "batchnorm", "axis 2");
  EXPECT_FALSE(x.Batchnorm(Tensor(), Tensor(), Vector({1, 1}), channel).ok());
  EXPECT_FALSE(x.Batchnorm(Vector({1, 1}), Tensor(), channel, channel).ok());
  EXPECT_FALSE(x.Batchnorm(Tensor(), Tensor(), Tensor(), channel).ok());
  EXPECT_TRUE(x.Batchnorm(Tensor(), Tensor(), channel, channel, -1).ok());
}

}  // namespace
}  // namespace beamd::testing

#include "engine/tensor/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/tensor/nn/layers.h"
#include "tests/testing/unfused.h"

namespace beamd::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Evaluated {
  testing::UnfusedRealizer realizer;
  LazyContext context{"cpu:0", &realizer};
};

struct Net : Module {
  explicit Net(LazyContext& context)
      : body(context, 3, 4), head(context, 4, 2, /*has_bias=*/false), norm(context, 4) {
    Register("body", body);
    Register("norm", norm);
    Register("head", head);
  }
  Linear body;
  Linear head;
  BatchNorm norm;
};

std::vector<std::string> Names(const Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : module.StateDict()) names.push_back(name);
  return names;
}

TEST(Module, NamesArePathsInOrderOfRegistration) {
  LazyContext context;
  EXPECT_THAT(Names(Net(context)),
              ElementsAre("body.weight", "body.bias", "norm.weight", "norm.bias",
                          "norm.num_batches_tracked", "norm.running_mean", "norm.running_var",
                          "head.weight"));
  EXPECT_THAT(Names(LSTMCell(context, 2, 3)),
              ElementsAre("weight_ih", "weight_hh", "bias_ih", "bias_hh"));
}

TEST(Module, ACopyIsTheSameModule) {
  LazyContext context;
  const Net net(context);
  const Net copy = net;
  EXPECT_TRUE(copy.body.weight.is(net.StateDict()[0].second));
  EXPECT_EQ(copy.Parameters().size(), 8U);
}

TEST(Module, ParametersAreUndecidedUntilTrained) {
  LazyContext context;
  const Net net(context);
  EXPECT_FALSE(net.body.weight.requires_grad().has_value());
  EXPECT_FALSE(net.norm.weight.requires_grad().has_value());
  EXPECT_EQ(net.norm.running_mean.requires_grad(), false);
}

TEST(LoadStateDict, GivesTheNamedTensorsTheirValues) {
  Evaluated lazy;
  const Net from(lazy.context);
  const Net to(lazy.context);
  ASSERT_TRUE(LoadStateDict(to.StateDict(), from.StateDict()).ok());
  EXPECT_EQ(*to.head.weight.ToVector<float>(), *from.head.weight.ToVector<float>());
}

TEST(LoadStateDict, ChangesNothingOnAMistake) {
  Evaluated lazy;
  const Linear layer(lazy.context, 2, 1);
  const std::vector<float> before = *layer.weight.ToVector<float>();
  const Tensor good = Tensor::Zeros(lazy.context, {1, 2});
  EXPECT_THAT(LoadStateDict(layer.StateDict(), {{"weight", good}}).message(),
              HasSubstr("no value for \"bias\""));
  EXPECT_THAT(LoadStateDict(layer.StateDict(), {{"weight", good}, {"bias", good}}).message(),
              HasSubstr("\"bias\" has shape (1), its value (1, 2)"));
  EXPECT_EQ(*layer.weight.ToVector<float>(), before);
  EXPECT_TRUE(LoadStateDict(layer.StateDict(), {{"weight", good}}, /*strict=*/false).ok());
  EXPECT_THAT(*layer.weight.ToVector<float>(), ElementsAre(0, 0));
}

TEST(Layers, MistakesFailWhatIsMadeOfThem) {
  LazyContext context;
  const Tensor x = Tensor::Zeros(context, {1, 4, 5, 5});
  const auto why = [](const Tensor& y) { return std::string(y.status().message()); };
  EXPECT_THAT(why(Conv2d(context, 4, 3, 3, {.groups = 2})(x)), HasSubstr("don't divide"));
  EXPECT_THAT(why(Conv2d(context, 4, 4, 0)(x)), HasSubstr("must be positive"));
  EXPECT_THAT(why(Conv2d(context, 4, 4, 3, {.stride = 2, .same_padding = true})(x)),
              HasSubstr("strided"));
  EXPECT_THAT(why(ConvTranspose2d(context, 0, 4, 3)(x)), HasSubstr("must be positive"));
  EXPECT_THAT(why(Linear(context, 0, 4)(x)), HasSubstr("must be positive"));
  EXPECT_THAT(why(LayerNorm(context, {4})(x)), HasSubstr("last axes"));
  EXPECT_THAT(why(GroupNorm(context, 2, 4)(x.Flatten())), HasSubstr("axis of channels"));
  EXPECT_THAT(why(Embedding(context, 0, 4)(x.Int())), HasSubstr("must be positive"));
  EXPECT_THAT(why(Embedding(context, 4, 4)(x)), HasSubstr("integer"));
  EXPECT_THAT(why(LSTMCell(context, 4, 4)(x).h), HasSubstr("(batch, features)"));
}

TEST(Layers, BatchNormLeavesItsStatisticsAloneOnAMistake) {
  LazyContext context;
  context.training = true;
  BatchNorm norm(context, 4);
  for (const Shape& shape : {Shape{4}, Shape{2, 3, 5}, Shape{1, 4}}) {
    EXPECT_EQ(norm(Tensor::Zeros(context, shape)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(norm.running_mean.ok());
  EXPECT_TRUE(norm(Tensor::Zeros(context, {2, 4})).ok());
}

TEST(Layers, OutputsHaveTheirShapes) {
  LazyContext context;
  const Tensor x = Tensor::Zeros(context, {2, 4, 9, 7});
  EXPECT_EQ(Conv2d(context, 4, 6, {3, 2}, {.stride = 2, .groups = 2})(x).shape(),
            (Shape{2, 6, 4, 3}));
  EXPECT_EQ(Conv2d(context, 4, 6, {4, 2}, {.same_padding = true})(x).shape(), (Shape{2, 6, 9, 7}));
  EXPECT_EQ(Conv1d(context, 4, 6, 3, {.padding = 1})(x.Get({Slice{}, Slice{}, 0})).shape(),
            (Shape{2, 6, 7}));
  EXPECT_EQ(ConvTranspose2d(context, 4, 6, 2, {.stride = 2})(x).shape(), (Shape{2, 6, 18, 14}));
  EXPECT_EQ(
      Embedding(context, 5, 3)(Tensor::Zeros(context, {0}, {.dtype = Scalar::kInt32})).shape(),
      (Shape{0, 3}));
}

}  // namespace
}  // namespace beamd::nn

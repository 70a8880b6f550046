// The tensor graphs in deploy/examples, and that they are what these programs build.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/shape/verify_tensor.h"
#include "engine/tensor/graph.h"
#include "engine/tensor/tensor.h"
#include "engine/uop/text.h"
#include "tests/testing/golden.h"

namespace beamd {
namespace {

void ExpectExample(const std::string& name, const std::string& what, const Tensor& output) {
  ASSERT_TRUE(output.ok()) << output.status();
  UOpGraph graph;
  const absl::StatusOr<TensorGraph> made = GraphFromTensors(std::span(&output, 1), graph);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(VerifyTensorGraph(made->root).ok());
  testing::ExpectFile(absl::StrCat("deploy/examples/", name, ".uops"),
                      absl::StrCat("# ", what, "\n", ToText(made->root)));
}

TEST(Examples, MlpIsALayerAfterTheOther) {
  LazyContext context;
  const Tensor x = Tensor::Empty(context, {64, 784});
  const Tensor w1 = Tensor::Empty(context, {784, 256}), b1 = Tensor::Empty(context, {256});
  const Tensor w2 = Tensor::Empty(context, {256, 10}), b2 = Tensor::Empty(context, {10});
  ExpectExample(
      "mlp", "Digits from 64 images: softmax(relu(x w1 + b1) w2 + b2). Buffers: x, w1, b1, w2, b2.",
      x.Linear(w1, b1).Relu().Linear(w2, b2).Softmax());
}

TEST(Examples, AttentionIsABlockOfATransformer) {
  constexpr int kTokens = 64, kWidth = 128, kHeads = 4;
  LazyContext context;
  const Tensor x = Tensor::Empty(context, {kTokens, kWidth});
  const auto heads = [&](const Tensor& weight) {
    return x.Layernorm()
        .Linear(weight)
        .Reshape({kTokens, kHeads, kWidth / kHeads})
        .Permute({1, 0, 2});
  };
  std::vector<Tensor> weights;
  weights.reserve(4);
  for (int i = 0; i < 4; ++i) weights.push_back(Tensor::Empty(context, {kWidth, kWidth}));
  const Tensor q = heads(weights[0]), k = heads(weights[1]), v = heads(weights[2]);
  const Tensor attended = q.ScaledDotProductAttention(k, v, Tensor(), 0, /*is_causal=*/true)
                              .Permute({1, 0, 2})
                              .Reshape({kTokens, kWidth});
  ExpectExample("attention",
                "Causal attention of 64 tokens over themselves, 4 heads of 32, with its residual.",
                attended.Linear(weights[3]) + x);
}

}  // namespace
}  // namespace beamd

// A decode loop: each token's keys and values are written into a cache at a symbolic position, and
// it attends to all that stand there. One graph serves every position.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "client/thin/tensor.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/server.h"

namespace beamd::thin {
namespace {

constexpr int kMost = 16, kHeads = 4, kDepth = 8, kWidth = kHeads * kDepth;
constexpr int kTokens = 10;

using Rows = std::vector<std::vector<double>>;

std::vector<float> Some(int count, int salt) {
  std::vector<float> values;
  values.reserve(count);
  for (int i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((i * 37 + salt * 11) % 101) / 101 - 0.5F);
  }
  return values;
}

std::vector<double> Times(const std::vector<float>& x, const std::vector<float>& w) {
  std::vector<double> y(kWidth);
  for (int o = 0; o < kWidth; ++o) {
    for (int i = 0; i < kWidth; ++i) y[o] += double{x[i]} * w[i * kWidth + o];
  }
  return y;
}

// What the last token of `queries` attends to, by plain loops.
std::vector<double> Attended(const std::vector<double>& query, const Rows& keys,
                             const Rows& values) {
  std::vector<double> out(kWidth);
  for (int h = 0; h < kHeads; ++h) {
    std::vector<double> weights;
    double sum = 0;
    for (const std::vector<double>& key : keys) {
      double score = 0;
      for (int d = h * kDepth; d < (h + 1) * kDepth; ++d) score += query[d] * key[d];
      weights.push_back(std::exp(score / std::sqrt(kDepth)));
      sum += weights.back();
    }
    for (size_t t = 0; t < keys.size(); ++t) {
      for (int d = h * kDepth; d < (h + 1) * kDepth; ++d) out[d] += weights[t] / sum * values[t][d];
    }
  }
  return out;
}

TEST(KvCache, DecodesAtASymbolicPosition) {
  const std::unique_ptr<Session> session = testing::ExampleSession();
  ASSERT_NE(session, nullptr);
  const std::vector<float> wq = Some(kWidth * kWidth, 1), wk = Some(kWidth * kWidth, 2),
                           wv = Some(kWidth * kWidth, 3);
  const auto weights = [](const std::vector<float>& w) {
    return Tensor::From(w, {kWidth, kWidth});
  };
  const Tensor query_of = weights(wq), key_of = weights(wk), value_of = weights(wv);
  // (heads, places, depth), keys and values apart.
  const Tensor keys = Tensor::Uniform({kHeads, kMost, kDepth}, 1, 0, 0);
  const Tensor values = Tensor::Uniform({kHeads, kMost, kDepth}, 2, 0, 0);
  const Variable pos{"pos", 0, kMost - 1};
  Rows seen_keys, seen_values;
  for (int t = 0; t < kTokens; ++t) {
    const std::vector<float> token = Some(kWidth, 4 + t);
    const Tensor x = Tensor::From(token, {1, kWidth});
    const auto heads = [&](const Tensor& w) {
      return x.Matmul(w).Reshape({1, kHeads, kDepth}).Transpose(0, 1);
    };
    const RunOptions options{.variables = {{"pos", t}}};
    const absl::StatusOr<RunReport> written =
        Compute(*session,
                {keys.Slice(1, pos, pos + 1).Assign(heads(key_of)),
                 values.Slice(1, pos, pos + 1).Assign(heads(value_of))},
                options);
    ASSERT_TRUE(written.ok()) << written.status();
    const Tensor scores =
        heads(query_of).Matmul(keys.Slice(1, 0, pos + 1).Transpose()) / std::sqrt(double{kDepth});
    const Tensor attended =
        scores.Softmax().Matmul(values.Slice(1, 0, pos + 1)).Transpose(0, 1).Reshape({1, kWidth});
    const absl::StatusOr<RunReport> read = Compute(*session, {attended}, options);
    ASSERT_TRUE(read.ok()) << read.status();
    for (const absl::StatusOr<RunReport>* report : {&written, &read}) {
      EXPECT_EQ((*report)->statistics.captured(), t > 0 && testing::KeepsPlans());
    }
    const absl::StatusOr<std::vector<float>> got = attended.ToVector<float>(*session);
    ASSERT_TRUE(got.ok()) << got.status();
    seen_keys.push_back(Times(token, wk));
    seen_values.push_back(Times(token, wv));
    const std::vector<double> want = Attended(Times(token, wq), seen_keys, seen_values);
    for (int i = 0; i < kWidth; ++i) ASSERT_NEAR((*got)[i], want[i], 2e-5) << t << ", " << i;
  }
  // A position that there is no room for is refused, and changes nothing.
  const Tensor late = keys.Slice(1, pos, pos + 1).Assign(0);
  const absl::Status status = Compute(*session, {late}, {.variables = {{"pos", kMost}}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace beamd::thin

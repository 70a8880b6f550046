// A block of GPT-2's shape (12 heads, 768 wide) against NumPy: tests/engine/tensor/make_goldens.py
// has the same block, with the same formula for its weights.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "client/thin/tensor.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/server.h"

namespace beamd::thin {
namespace {

constexpr int kTokens = 5, kWidth = 768, kHeads = 12;

// Fractions of a multiplicative hash: in [-scale/2, scale/2], the same for one salt.
Tensor Formula(uint64_t salt, const std::vector<int64_t>& shape, double scale) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values;
  values.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = (static_cast<uint64_t>(i) * 2654435761U + salt * 40503U) & 0xFFFFFFFFU;
    values.push_back(static_cast<float>((static_cast<double>(bits) / 4294967296.0 - 0.5) * scale));
  }
  return Tensor::From(values, shape);
}

// Weights of `salt` and the bias of the next.
Tensor Linear(const Tensor& x, int in, int out, uint64_t salt) {
  return x.Matmul(Formula(salt, {out, in}, 0.1).Transpose()) + Formula(salt + 1, {out}, 0.2);
}
Tensor Norm(const Tensor& x, uint64_t salt) {
  return x.Layernorm() * (Formula(salt, {kWidth}, 0.2) + 1) + Formula(salt + 1, {kWidth}, 0.2);
}

Tensor Attention(const Tensor& qkv) {
  const auto heads = [&](int part) {
    return qkv.Slice(1, part * kWidth, (part + 1) * kWidth)
        .Reshape({kTokens, kHeads, kWidth / kHeads})
        .Transpose(0, 1);
  };
  const Tensor places = Tensor::Arange(kTokens);
  const Tensor seen = places.Less(places.Unsqueeze(1) + 1);  // a token sees itself and earlier ones
  const Tensor scores = heads(0).Matmul(heads(1).Transpose()) / std::sqrt(double{kWidth} / kHeads);
  return Tensor::Where(seen, scores, -INFINITY)
      .Softmax()
      .Matmul(heads(2))
      .Transpose(0, 1)
      .Reshape({kTokens, kWidth});
}

std::vector<float> Golden(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t header = 0;
  if (bytes.size() < sizeof(header)) return {};
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::vector<float> values((bytes.size() - sizeof(header) - header) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + sizeof(header) + header, values.size() * sizeof(float));
  return values;
}

TEST(Gpt2Block, EqualsNumPy) {
  const std::unique_ptr<Session> session = testing::ExampleSession();
  ASSERT_NE(session, nullptr);
  const Tensor x = Formula(1, {kTokens, kWidth}, 4);
  const Tensor attended = Attention(Linear(Norm(x, 2), kWidth, 3 * kWidth, 4));
  const Tensor y = x + Linear(attended, kWidth, kWidth, 6);
  const Tensor up = Linear(Norm(y, 8), kWidth, 4 * kWidth, 10).Gelu();
  const absl::StatusOr<std::vector<float>> got =
      (y + Linear(up, 4 * kWidth, kWidth, 12)).ToVector<float>(*session);
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<float> want = Golden("tests/golden/tensor/gpt2_block.safetensors");
  ASSERT_EQ(got->size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_LE(std::abs((*got)[i] - want[i]), 1e-4 * std::max(1.0F, std::abs(want[i]))) << i;
  }
}

}  // namespace
}  // namespace beamd::thin

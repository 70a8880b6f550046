// A block of GPT-2's shape (12 heads, 768 wide) against NumPy: make_goldens.py has the same block,
// with the same formula for its weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/tensor/nn/layers.h"
#include "engine/tensor/nn/safetensors.h"
#include "engine/tensor/tensor.h"
#include "tests/testing/lazy_runtime.h"

namespace beamd {
namespace {

constexpr int kTokens = 5;
constexpr int kWidth = 768;
constexpr int kHeads = 12;

// Fractions of a multiplicative hash: in [-scale/2, scale/2], the same for one salt.
Tensor Formula(LazyContext& context, uint64_t salt, const Shape& shape, double scale) {
  std::vector<float> values;
  const int64_t count = Prod(shape).number();
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = (static_cast<uint64_t>(i) * 2654435761U + salt * 40503U) & 0xFFFFFFFFU;
    values.push_back(static_cast<float>((static_cast<double>(bits) / 4294967296.0 - 0.5) * scale));
  }
  return Tensor::From(context, values, shape);
}

struct Block : nn::Module {
  explicit Block(LazyContext& context)
      : before_attention(context, {kWidth}),
        qkv(context, kWidth, 3 * kWidth),
        attention_out(context, kWidth, kWidth),
        before_mlp(context, {kWidth}),
        up(context, kWidth, 4 * kWidth),
        down(context, 4 * kWidth, kWidth) {
    Register("ln_1", before_attention);
    Register("attn.c_attn", qkv);
    Register("attn.c_proj", attention_out);
    Register("ln_2", before_mlp);
    Register("mlp.c_fc", up);
    Register("mlp.c_proj", down);
  }

  // (tokens, width)
  Tensor operator()(const Tensor& x) const {
    const auto heads = [](const Tensor& t) {
      return t.Reshape({kTokens, kHeads, kWidth / kHeads}).Transpose(0, 1);
    };
    const std::vector<Tensor> parts = qkv(before_attention(x)).Chunk(3, 1);
    const Tensor attended = heads(parts[0])
                                .ScaledDotProductAttention(heads(parts[1]), heads(parts[2]),
                                                           Tensor(), 0, /*is_causal=*/true)
                                .Transpose(0, 1)
                                .Reshape({kTokens, kWidth});
    const Tensor y = x + attention_out(attended);
    return y + down(up(before_mlp(y)).Gelu());
  }

  nn::LayerNorm before_attention;
  nn::Linear qkv;
  nn::Linear attention_out;
  nn::LayerNorm before_mlp;
  nn::Linear up;
  nn::Linear down;
};

TEST(Gpt2Block, EqualsNumPy) {
  testing::LazyRuntime lazy;
  const Block block(lazy.context);
  nn::NamedTensors values;
  uint64_t salt = 2;
  for (const auto& [name, tensor] : block.StateDict()) {
    const bool is_matrix = tensor.ndim() == 2;
    Tensor value = Formula(lazy.context, salt++, tensor.shape(), is_matrix ? 0.1 : 0.2);
    if (name == "ln_1.weight" || name == "ln_2.weight") value = value + 1;
    values.emplace_back(name, value);
  }
  const absl::Status loaded = nn::LoadStateDict(block.StateDict(), values);
  ASSERT_TRUE(loaded.ok()) << loaded;

  const absl::StatusOr<std::vector<float>> got =
      block(Formula(lazy.context, 1, {kTokens, kWidth}, 4)).ToVector<float>();
  ASSERT_TRUE(got.ok()) << got.status();
  const absl::StatusOr<nn::Safetensors> golden =
      nn::LoadSafetensorsFile(lazy.context, "tests/golden/tensor/gpt2_block.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const std::vector<float> want = *golden->tensors[0].second.ToVector<float>();
  ASSERT_EQ(got->size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_LE(std::abs((*got)[i] - want[i]), 1e-4 * std::max(1.0F, std::abs(want[i]))) << i;
  }
}

}  // namespace
}  // namespace beamd

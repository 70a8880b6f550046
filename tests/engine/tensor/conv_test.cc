// Convolutions, pooling, resizing: dtypes, symbolic sizes, Winograd against the sum, mistakes. Their
// values are held against NumPy in golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/base/option.h"
#include "engine/tensor/tensor.h"
#include "tests/engine/tensor/both_realizers.h"

namespace beamd::testing {
namespace {

using ::testing::ElementsAre;

// Whole numbers from -4 to 4, none of which repeats soon.
Values Numbers(int count, int first = 0) {
  Values values;
  for (int i = 0; i < count; ++i) values.push_back((i * 7 + first) % 9 - 4);
  return values;
}

class ConvTest : public BothRealizersTest {
 protected:
  Tensor Image(const Shape& shape, Scalar dtype = Scalar::kFloat32) {
    return Make(Numbers(static_cast<int>(Prod(shape).number())), shape, dtype);
  }
};
INSTANTIATE_TEST_SUITE_P(On, ConvTest, Realizers(), RealizerName);

TEST_P(ConvTest, TheResultHasThePromotedDType) {
  const auto dtype_of = [&](Scalar x, Scalar w) {
    return Image({1, 1, 3, 3}, x).Conv2d(Image({1, 1, 2, 2}, w)).dtype();
  };
  EXPECT_EQ(dtype_of(Scalar::kFloat16, Scalar::kFloat16), Scalar::kFloat16);
  EXPECT_EQ(dtype_of(Scalar::kInt32, Scalar::kInt32), Scalar::kInt32);
  EXPECT_EQ(dtype_of(Scalar::kFloat32, Scalar::kFloat64), Scalar::kFloat64);
}

TEST_P(ConvTest, WinogradGivesTheSumsValues) {
  struct Shapes {
    Shape x;
    Shape w;
    int groups;
    PerAxis padding;
  };
  for (const Shapes& s : std::vector<Shapes>{
           {{1, 2, 5, 9}, {3, 2, 3, 3}, 1, 0},
           {{2, 2, 6, 4}, {2, 2, 3, 3}, 1, 1},
           {{1, 4, 4, 7}, {4, 2, 3, 3}, 2, {2, 0}},
           {{1, 1, 3, 3}, {1, 1, 3, 3}, 1, 0},
           {{1, 2, 8}, {2, 2, 3}, 1, 1},
       }) {
    const Tensor x = Image(s.x);
    const Tensor w = Image(s.w);
    const auto convolved = [&] { return x.Conv2d(w, Tensor(), s.groups, 1, 1, s.padding); };
    const Tensor plain = convolved();
    const ScopedOption wino(options::kWino, 1);
    const Tensor fast = convolved();
    EXPECT_EQ(fast.shape(), plain.shape());
    ExpectNear(Read(fast), Read(plain), 1e-4);
  }
}

TEST_P(ConvTest, WinogradKeepsTheDType) {
  const ScopedOption wino(options::kWino, 1);
  const Tensor half = Image({1, 1, 5, 5}, Scalar::kFloat16);
  const Tensor w = Image({1, 1, 3, 3}, Scalar::kFloat16);
  EXPECT_EQ(half.Conv2d(w).dtype(), Scalar::kFloat16);
  // Integers are exact, as without.
  const Tensor ints =
      Image({1, 1, 5, 5}, Scalar::kInt32).Conv2d(Image({1, 1, 3, 3}, Scalar::kInt32));
  EXPECT_EQ(ints.dtype(), Scalar::kInt32);
  const ScopedOption plain(options::kWino, 0);
  EXPECT_EQ(Read(ints),
            Read(Image({1, 1, 5, 5}, Scalar::kInt32).Conv2d(Image({1, 1, 3, 3}, Scalar::kInt32))));
}

TEST_P(ConvTest, ABatchMayBeSymbolic) {
  const Tensor x = Image({3, 2, 4, 4});
  const Tensor w = Image({2, 2, 3, 3});
  const UOp batch = context_.Variable("batch", 1, 3);
  const auto sums = [&](const SInt& size) {
    return Read(x.Shrink({{{0, size}}, std::nullopt, std::nullopt, std::nullopt})
                    .Conv2d(w)
                    .MaxPool2d()
                    .Sum(0));
  };
  for (const int n : {1, 3}) {
    ASSERT_TRUE(context_.Bind(batch, n).ok());
    ExpectNear(sums(SInt(batch)), sums(n), 1e-6);
  }
}

TEST_P(ConvTest, AListOfOneIsOneAxis) {
  const Tensor x = Vector({1, 5, 2, 4, 3}).Reshape({1, 1, 5});
  EXPECT_THAT(Read(x.MaxPool2d({2}, 1)), ElementsAre(5, 5, 4, 4));
  EXPECT_THAT(Read(x.AvgPool2d({5})), ElementsAre(3));
  EXPECT_THAT(Read(x.MaxPool2d({2}, PerAxis{3})), ElementsAre(5, 4));
}

TEST_P(ConvTest, PaddingIsBelowEveryElementOfAMaximum) {
  for (const Scalar dtype : {Scalar::kInt8, Scalar::kInt64, Scalar::kFloat16, Scalar::kFloat64}) {
    const Tensor x = Make({-3, -5, -4}, {1, 1, 3}, dtype);
    const Tensor y = x.MaxPool2d({2}, 1, 1, 1);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_THAT(Read(y), ElementsAre(-3, -3, -4, -4));
  }
  EXPECT_THAT(Read(Make({0, 1, 0}, {3}, Scalar::kBool).MaxPool2d({3}, 1, 1, 1)),
              ElementsAre(1, 1, 1));
}

TEST_P(ConvTest, AveragesOfIntegersAreFloats) {
  const Tensor y = Make({1, 2, 4}, {1, 3}, Scalar::kInt32).AvgPool2d({2}, 1);
  EXPECT_EQ(y.dtype(), Scalar::kFloat32);
  EXPECT_THAT(Read(y), ElementsAre(1.5, 3));
}

TEST_P(ConvTest, ResizingToOneElement) {
  const Tensor x = Vector({1, 2, 4});
  EXPECT_THAT(Read(x.Interpolate({1})), ElementsAre(2));
  EXPECT_THAT(Read(x.Interpolate({1}, InterpolateMode::kLinear, /*align_corners=*/true)),
              ElementsAre(1));
  EXPECT_THAT(Read(x.Interpolate({1}, InterpolateMode::kNearest)), ElementsAre(1));
  const Tensor bytes = Make({10, 20}, {2}, Scalar::kUint8).Interpolate({4});
  EXPECT_EQ(bytes.dtype(), Scalar::kUint8);
  EXPECT_THAT(Read(bytes), ElementsAre(10, 13, 18, 20));
}

class ConvErrorTest : public TensorTest {
 protected:
  Tensor Zeros(const Shape& shape) { return Tensor::Zeros(context_, shape); }
};

TEST_F(ConvErrorTest, ConvolutionsThatCannotBe) {
  const Tensor x = Zeros({1, 4, 5, 5});
  const Tensor w = Zeros({2, 4, 3, 3});
  const std::string op = "conv2d";
  ExpectFails(x.Conv2d(Zeros({2, 3, 3, 3})), op, "input (1, 4, 5, 5) doesn't fit weight");
  ExpectFails(x.Conv2d(Zeros({2, 4, 3})), op, "doesn't fit");
  ExpectFails(x.Conv2d(Zeros({2, 4})), op, "doesn't fit");
  ExpectFails(x.Conv2d(Zeros({2, 4, 0, 3})), op, "doesn't fit");
  ExpectFails(x.Conv2d(Zeros({3, 2, 3, 3}), Tensor(), 2), op, "in 2 groups");
  ExpectFails(x.Conv2d(w, Tensor(), 0), op, "in 0 groups");
  ExpectFails(x.Conv2d(w, Zeros({3})), op, "bias (3) for 2 output channels");
  ExpectFails(x.Conv2d(w, Tensor(), 1, 0), op, "stride (0, 0) is below 1");
  ExpectFails(x.Conv2d(w, Tensor(), 1, {1, 2, 3}), op, "stride has 3 values for 2 axes");
  ExpectFails(x.Conv2d(w, Tensor(), 1, 1, -1), op, "dilation (-1, -1) is below 1");
  ExpectFails(x.Conv2d(w, Tensor(), 1, 1, 1, {1, 2, 3}), op, "padding has 3 values for 2 axes");
  ExpectFails(x.Conv2d(w, Tensor(), 1, 1 << 30), op, "stride of 1073741824 is too large");
  ExpectFails(x.Conv2d(w, Tensor(), 1, 1, 1, -(1 << 30)), op, "too large");
  EXPECT_FALSE(x.Conv2d(Zeros({2, 4, 6, 3})).ok());
}

TEST_F(ConvErrorTest, TransposedConvolutionsThatCannotBe) {
  const Tensor x = Zeros({1, 4, 5, 5});
  const Tensor w = Zeros({4, 2, 3, 3});
  const std::string op = "conv_transpose2d";
  ExpectFails(x.ConvTranspose2d(Zeros({2, 4, 3, 3})), op, "doesn't fit");
  ExpectFails(x.ConvTranspose2d(w, Tensor(), 3), op, "in 3 groups");
  ExpectFails(x.ConvTranspose2d(w, Tensor(), 1, 0), op, "stride");
  ExpectFails(x.ConvTranspose2d(w, Tensor(), 1, 1, 1, -1), op, "padding (-1, -1) is below 0");
  ExpectFails(x.ConvTranspose2d(w, Tensor(), 1, 1, 1 << 28), op, "with dilation 268435456");
  ExpectFails(x.ConvTranspose2d(Zeros({4, 2, 0, 3})), op, "a kernel of 0");
  ExpectFails(x.ConvTranspose2d(w, Tensor(), 1, 1, 1, 0, {1}), op, "output_padding has 1 values");
}

TEST_F(ConvErrorTest, PoolingsThatCannotBe) {
  const Tensor x = Zeros({4, 4});
  ExpectFails(x.MaxPool2d({1, 1, 1}), "max_pool2d", "a kernel of 3 axes over shape (4, 4)");
  ExpectFails(x.MaxPool2d(0), "max_pool2d", "kernel (0, 0) is below 1");
  ExpectFails(x.AvgPool2d(2, 0), "avg_pool2d", "stride (0, 0) is below 1");
  ExpectFails(x.AvgPool2d(2, 1, 0), "avg_pool2d", "dilation (0, 0) is below 1");
  ExpectFails(x.AvgPool2d(2, 1, 1, {1}), "avg_pool2d", "padding has 1 values");
  EXPECT_FALSE(x.MaxPool2d(5).ok());
  EXPECT_FALSE(x.MaxPool2d(5, 1, 1, 0, /*ceil_mode=*/true).ok());
}

TEST_F(ConvErrorTest, SizesThatCannotBe) {
  const Tensor x = Zeros({4, 4});
  ExpectFails(x.Interpolate({}), "interpolate", "0 sizes");
  ExpectFails(x.Interpolate({1, 1, 1}), "interpolate", "3 sizes for shape (4, 4)");
  ExpectFails(x.Interpolate({0}), "interpolate", "to (0)");
  ExpectFails(Zeros({0}).Interpolate({2}), "interpolate", "from (0)");
  ExpectFails(x.Interpolate({2}, InterpolateMode::kNearest, /*align_corners=*/true), "interpolate",
              "align_corners without the linear mode");
}

TEST_F(ConvErrorTest, AFailedOperandFailsTheResult) {
  const Tensor failed = Tensor::Failed(absl::InvalidArgumentError("first"));
  const Tensor x = Zeros({1, 1, 3, 3});
  for (const Tensor& result : {x.Conv2d(failed), failed.Conv2d(x), x.Conv2d(x, failed),
                               failed.ConvTranspose2d(x), x.ConvTranspose2d(x, failed),
                               failed.MaxPool2d(), failed.AvgPool2d(), failed.Interpolate({1})}) {
    EXPECT_EQ(result.status().message(), "first");
  }
}

}  // namespace
}  // namespace beamd::testing

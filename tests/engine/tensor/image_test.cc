// The option IMAGE: products and convolutions over groups of four channels, and images as what
// tensors are stored as.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/option.h"
#include "engine/schedule/schedule.h"
#include "engine/tensor/tensor.h"
#include "tests/engine/tensor/both_realizers.h"

namespace beamd::testing {
namespace {

using ::testing::ElementsAre;

// Whole numbers from -4 to 4: sums of their products are exact, in half floats too while small.
Values Numbers(const Shape& shape, int first) {
  Values values;
  for (int64_t i = 0; i < Prod(shape).number(); ++i) {
    values.push_back(static_cast<double>((i * 7 + first) % 9 - 4));
  }
  return values;
}

class ImageTest : public BothRealizersTest {
 protected:
  Tensor Whole(const Shape& shape, int first = 0, Scalar dtype = Scalar::kFloat32) {
    return Make(Numbers(shape, first), shape, dtype);
  }
  // What a realised tensor lies in: "image(2,3,4) float16", "global float32*".
  static std::string Stored(const Tensor& tensor) {
    EXPECT_TRUE(tensor.Realize().ok()) << tensor.Realize();
    return ToString(tensor.lazydata().base().buffer()->pointer());
  }
  static int KernelsOf(const Tensor& tensor) {
    const LazyBuffer root = tensor.lazydata();
    const absl::StatusOr<Schedule> schedule = CreateSchedule(std::span(&root, 1));
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    return schedule.ok() ? schedule->kernel_count() : -1;
  }
};
INSTANTIATE_TEST_SUITE_P(On, ImageTest, Realizers(), RealizerName);

struct Mode {
  int image, float16;
};
constexpr Mode kModes[] = {{1, 0}, {2, 0}, {2, 1}};

struct ConvCase {
  Shape x, w;
  int groups = 1;
  PerAxis stride = 1, dilation = 1, padding = 0;
  bool bias = false;
};

std::vector<ConvCase> ConvCases() {
  return {
      {.x = {1, 4, 5, 6}, .w = {8, 4, 3, 3}},
      {.x = {2, 8, 4, 4}, .w = {4, 8, 1, 1}, .bias = true},
      {.x = {1, 3, 6, 5}, .w = {5, 3, 3, 2}, .bias = true},  // neither a multiple of 4
      {.x = {2, 1, 5, 5}, .w = {4, 1, 3, 3}},                // one input channel, one group
      {.x = {1, 8, 5, 5}, .w = {8, 1, 3, 3}, .groups = 8},   // depthwise
      {.x = {1, 4, 5, 4}, .w = {8, 1, 3, 3}, .groups = 4},   // two outputs a channel
      {.x = {1, 4, 5, 4}, .w = {16, 1, 2, 2}, .groups = 4},  // four
      {.x = {1, 3, 4, 4}, .w = {3, 1, 3, 3}, .groups = 3},   // depthwise, three
      {.x = {1, 16, 3, 3}, .w = {4, 4, 2, 2}, .groups = 4},  // one output a group
      {.x = {2, 6, 4, 4}, .w = {10, 3, 2, 2}, .groups = 2},
      {.x = {1, 4, 9, 8}, .w = {4, 4, 3, 3}, .stride = 2},
      {.x = {1, 4, 9, 8}, .w = {4, 4, 2, 3}, .stride = {3, 1}, .dilation = {1, 2}},
      {.x = {1, 4, 5, 5}, .w = {4, 4, 3, 3}, .padding = 1},
      {.x = {1, 2, 5, 5}, .w = {3, 2, 3, 3}, .padding = {2, 0, 1, 3}, .bias = true},
      {.x = {1, 4, 1, 1}, .w = {8, 4, 1, 1}},  // channels only
      {.x = {3, 5, 1, 1}, .w = {6, 5, 1, 1}, .bias = true},
      {.x = {1, 4, 1, 1}, .w = {4, 4, 3, 3}, .padding = 1},
  };
}

TEST_P(ImageTest, ConvolutionsHaveThePlainValues) {
  int number = 0;
  for (const ConvCase& c : ConvCases()) {
    const auto convolved = [&] {
      const Tensor bias = c.bias ? Whole({c.w[0]}, 2) : Tensor();
      return Whole(c.x).Conv2d(Whole(c.w, 5), bias, c.groups, c.stride, c.dilation, c.padding);
    };
    const Tensor plain = convolved();
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const Mode& mode : kModes) {
      SCOPED_TRACE(
          absl::StrCat("case ", number, ", IMAGE ", mode.image, ", FLOAT16 ", mode.float16));
      const ScopedOption image(options::kImage, mode.image);
      const ScopedOption half(options::kFloat16, mode.float16);
      const Tensor y = convolved();
      EXPECT_EQ(y.shape(), plain.shape());
      EXPECT_EQ(y.dtype(), Scalar::kFloat32);
      EXPECT_EQ(Read(y), Read(plain));
    }
    ++number;
  }
}

TEST_P(ImageTest, GradientsOfConvolutionsAreThePlainOnes) {
  int number = 0;
  for (const ConvCase& c : ConvCases()) {
    const auto gradients = [&] {
      Tensor x = Whole(c.x), w = Whole(c.w, 5), bias = c.bias ? Whole({c.w[0]}, 2) : Tensor();
      std::vector<Tensor> leaves = {x, w};
      if (c.bias) leaves.push_back(bias);
      for (Tensor& leaf : leaves) leaf.set_requires_grad(true);
      const Tensor y = x.Conv2d(w, bias, c.groups, c.stride, c.dilation, c.padding);
      const absl::Status status = y.Backward(Whole(y.shape(), 1));
      EXPECT_TRUE(status.ok()) << status;
      std::vector<Values> values;
      for (const Tensor& leaf : leaves) {
        EXPECT_EQ(leaf.grad().dtype(), Scalar::kFloat32);
        values.push_back(Read(leaf.grad()));
      }
      return values;
    };
    const std::vector<Values> plain = gradients();
    for (const Mode& mode : kModes) {
      SCOPED_TRACE(
          absl::StrCat("case ", number, ", IMAGE ", mode.image, ", FLOAT16 ", mode.float16));
      const ScopedOption image(options::kImage, mode.image);
      const ScopedOption half(options::kFloat16, mode.float16);
      EXPECT_EQ(gradients(), plain);
    }
    ++number;
  }
}

TEST_P(ImageTest, ProductsHaveThePlainValuesAndGradients) {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{8, 4}, {4, 12}},
      {{3, 5}, {5, 7}},
      {{1, 6}, {6, 4}},
      {{5}, {5, 3}},
      {{4, 5}, {5}},
      {{7}, {7}},
      {{2, 3, 4}, {4, 5}},
      {{2, 3, 4}, {2, 4, 5}},
      {{3, 4}, {2, 4, 5}},
      {{2, 3, 4, 8}, {3, 8, 4}},     // w's batch repeats along x's
      {{2, 3, 4, 8}, {2, 1, 8, 4}},  // and is between
      {{2, 1, 4, 3}, {3, 3, 2}},
      {{4, 1}, {1, 4}},
  };
  for (const auto& [a, b] : cases) {
    const auto multiplied = [&a = a, &b = b, this] {
      Tensor x = Whole(a), w = Whole(b, 5);
      x.set_requires_grad(true);
      w.set_requires_grad(true);
      const Tensor y = x.Matmul(w);
      EXPECT_TRUE(y.ok()) << y.status();
      const absl::Status status = y.Backward(Whole(y.shape(), 1));
      EXPECT_TRUE(status.ok()) << status;
      return std::vector<Values>{Numbers(y.shape(), 0), Read(y), Read(x.grad()), Read(w.grad())};
    };
    const std::vector<Values> plain = multiplied();
    for (const Mode& mode : kModes) {
      SCOPED_TRACE(absl::StrCat(ToString(Whole(a).numel()), " by ", ToString(Whole(b).numel()),
                                ", IMAGE ", mode.image, ", FLOAT16 ", mode.float16));
      const ScopedOption image(options::kImage, mode.image);
      const ScopedOption half(options::kFloat16, mode.float16);
      EXPECT_EQ(multiplied(), plain);
    }
  }
}

TEST_P(ImageTest, ChannelsThatAreAddedBringNoNan) {
  const Tensor x = Make({kInf, 1, kNan, 2, 3, 4}, {1, 3, 1, 2});
  const Tensor w = Whole({2, 3, 1, 1}, 5);
  const Values plain = Read(x.Conv2d(w));
  const ScopedOption image(options::kImage, 2);
  ExpectNear(Read(x.Conv2d(w)), plain);
}

TEST_P(ImageTest, OperandsAndResultLieInImages) {
  const ScopedOption image(options::kImage, 2);
  const Tensor y = Whole({1, 4, 5, 6}).Conv2d(Whole({8, 4, 3, 3}));
  // Rows of the batch; columns and fours of channels.
  EXPECT_EQ(Stored(y), "image(3,8,4) float32");
  const ScopedOption half(options::kFloat16, 1);
  EXPECT_EQ(Stored(Whole({1, 4, 5, 6}).Conv2d(Whole({8, 4, 3, 3}))), "image(3,8,4) float16");
  // What is left of eight output channels has no size of an image.
  EXPECT_EQ(Stored(Whole({1, 4, 5, 6}).Conv2d(Whole({5, 4, 3, 3})).Contiguous()),
            "global float32*");
  // A bias fuses, and what is made of images is one where it fits.
  EXPECT_EQ(Stored(Whole({1, 4, 5, 6}).Conv2d(Whole({8, 4, 3, 3}), Whole({8})).Relu()),
            "image(3,8,4) float16");
  EXPECT_EQ(Stored(Whole({1, 4, 5, 7}).Conv2d(Whole({8, 4, 3, 3}), Whole({8})).Relu()),
            "global float32*");
}

TEST_P(ImageTest, RearrangingTakesAKernelAnOperand) {
  const auto kernels = [&] {
    const auto convolved = [&] { return Whole({1, 4, 5, 6}).Conv2d(Whole({8, 4, 3, 3})); };
    const auto biased = [&] {
      return Whole({1, 4, 5, 6}).Conv2d(Whole({8, 4, 3, 3}), Whole({8})).Relu();
    };
    return std::vector<int>{KernelsOf(convolved()), KernelsOf(biased()),
                            KernelsOf(biased().Conv2d(Whole({4, 8, 1, 1}))),
                            KernelsOf(Whole({8, 4}).Matmul(Whole({4, 12})))};
  };
  EXPECT_THAT(kernels(), ElementsAre(1, 1, 2, 1));
  // 0.10.0 makes as many. Channels come last in memory and first in the result: a bias is added in
  // a kernel of its own, or in the next operand's. Rows of a matrix lie as they should already.
  {
    const ScopedOption image(options::kImage, 1);
    EXPECT_THAT(kernels(), ElementsAre(3, 4, 5, 2));
  }
  // 0.10.0: 3, 5, 6, 3, since the bias is cast to an image and that stored before it is expanded.
  const ScopedOption image(options::kImage, 2);
  EXPECT_THAT(kernels(), ElementsAre(3, 4, 5, 3));
}

TEST_P(ImageTest, OtherDTypesAndShapesTakeTheirOwnWay) {
  const ScopedOption image(options::kImage, 2);
  const Tensor doubles = Whole({1, 4, 3, 3}, 0, Scalar::kFloat64);
  EXPECT_EQ(doubles.Conv2d(Whole({4, 4, 2, 2})).dtype(), Scalar::kFloat64);
  EXPECT_EQ(KernelsOf(doubles.Conv2d(doubles.Shrink(
                {std::nullopt, std::nullopt, std::pair<SInt, SInt>(0, 2), std::nullopt}))),
            1);
  const Tensor ints = Whole({4, 4}, 0, Scalar::kInt32);
  EXPECT_EQ(ints.Matmul(ints).dtype(), Scalar::kInt32);
  EXPECT_EQ(KernelsOf(ints.Matmul(ints)), 1);
  EXPECT_EQ(KernelsOf(Whole({1, 4, 6}).Conv2d(Whole({4, 4, 3}))), 1);
  EXPECT_EQ(Read(Whole({0, 4}).Matmul(Whole({4, 4}))), Values());
  // Half floats stay half floats.
  const Tensor halves = Whole({4, 4}, 0, Scalar::kFloat16);
  EXPECT_EQ(halves.Matmul(halves).dtype(), Scalar::kFloat16);
  EXPECT_EQ(halves.Matmul(halves, false, Scalar::kFloat32).dtype(), Scalar::kFloat32);
  const Values product = Read(halves.Matmul(halves));
  const ScopedOption plain(options::kImage, 0);
  EXPECT_EQ(product, Read(halves.Matmul(halves)));
}

TEST_P(ImageTest, TheMethodsSayWhatTheyDoNotTake) {
  ExpectFails(Whole({1, 4, 6}).ImageConv2d(Whole({4, 4, 3})), "image_conv2d", "two spatial axes");
  ExpectFails(Whole({1, 4, 6, 6}).ImageConv2d(Whole({4, 3, 3, 3})), "image_conv2d", "doesn't fit");
  ExpectFails(Whole({4, 4}, 0, Scalar::kFloat64).ImageDot(Whole({4, 4})), "image_dot", "32 bits");
  ExpectFails(Whole({4, 3}).ImageDot(Whole({4, 4})), "image_dot", "can't multiply");
  ExpectFails(Whole({2, 4, 4}).ImageDot(Whole({3, 4, 4})), "image_dot", "can't multiply");
  ExpectFails(Whole({4}).CastImage(Scalar::kFloat32, 65536, 1), "cast_image", "65536");
  ExpectFails(Whole({4}).CastImage(Scalar::kInt32, 1, 1), "cast_image", "int32");
}

// ---- images as what tensors are stored as ----

TEST_P(ImageTest, AnImageComesBack) {
  const Tensor x = Whole({9 * 8 * 4});
  const Tensor image = x.CastImage(Scalar::kFloat32, 9, 8).Contiguous();
  EXPECT_EQ(Stored(image), "image(9,8,4) float32");
  EXPECT_EQ(Read(image), Read(x));
  EXPECT_EQ(image.dtype(), Scalar::kFloat32);
}

TEST_P(ImageTest, TexelsOfHalfFloatsRound) {
  const Tensor x = Make({1.0 / 3, 65504, 1e-8, -2}, {4});
  const Tensor image = x.CastImage(Scalar::kFloat16, 1, 1).Contiguous();
  EXPECT_EQ(Stored(image), "image(1,1,4) float16");
  EXPECT_EQ(image.nbytes(), 16);
  EXPECT_EQ(Read(image), (Values{RoundToFloat(1.0 / 3, Scalar::kFloat16), 65504, 0, -2}));
  // What is computed of them is float32.
  EXPECT_EQ(Read(image.Sum()), Values{RoundToFloat(RoundToFloat(1.0 / 3, Scalar::kFloat16) + 65502,
                                                   Scalar::kFloat32)});
}

TEST_P(ImageTest, WhatIsMadeOfImagesIsOneWhereItFits) {
  const Tensor image = Whole({10, 32}).CastImage(Scalar::kFloat32, 10, 8).Contiguous();
  EXPECT_EQ(Stored(image * 2), "image(10,8,4) float32");
  EXPECT_EQ(Stored((Whole({10, 32}, 3) + image).Contiguous()), "image(10,8,4) float32");
  EXPECT_EQ(Stored(image.T().Contiguous()), "global float32*");  // rows of 10
  EXPECT_EQ(Stored(image.Sum(1)), "global float32*");
  EXPECT_EQ(Stored(image.Cast(Scalar::kFloat16)), "global float16*");
  EXPECT_EQ(Stored(image.Lt(0.0)), "global bool*");
  EXPECT_EQ(Stored(image.Reshape({10, 8, 4}).Permute({1, 0, 2}).Contiguous()),
            "image(10,8,4) float32");
  EXPECT_EQ(Read(image.T()), Read(Whole({10, 32}).T()));
  const Tensor part = image.Shrink({std::pair<SInt, SInt>(2, 8), std::pair<SInt, SInt>(3, 9)});
  EXPECT_EQ(Stored(part.Contiguous()), "global float32*");
  EXPECT_EQ(Read(part.Max()), Values{4});
}

TEST_P(ImageTest, ACastToAnImageIsNoKernelOfItsOwn) {
  const Tensor x = Whole({8, 8});
  EXPECT_EQ(KernelsOf((x * 3).CastImage(Scalar::kFloat16, 8, 2).Contiguous()), 1);
  EXPECT_EQ(KernelsOf(x.CastImage(Scalar::kFloat16, 8, 2) + 1.0), 1);
  EXPECT_EQ(KernelsOf(x.CastImage(Scalar::kFloat16, 8, 2).Sum()), 1);
}

TEST_P(ImageTest, AnImageIsAssignedTo) {
  Tensor image = Whole({4, 8}).CastImage(Scalar::kFloat16, 4, 2).Contiguous();
  ASSERT_EQ(Stored(image), "image(4,2,4) float16");
  image.Assign(image + 0.25);
  EXPECT_EQ(Stored(image), "image(4,2,4) float16");
  Values want = Numbers({4, 8}, 0);
  for (double& v : want) v += 0.25;
  EXPECT_EQ(Read(image), want);
  // The other way: a plain buffer stays one.
  Tensor plain = Whole({4, 8});
  ASSERT_TRUE(plain.Realize().ok());
  plain.Assign(image);
  EXPECT_EQ(Stored(plain), "global float32*");
  EXPECT_EQ(Read(plain), want);
  EXPECT_EQ(Stored((plain + 1.0).Contiguous()), "global float32*");
}

TEST_P(ImageTest, GradientsGoThroughACast) {
  Tensor x = Whole({4, 8});
  x.set_requires_grad(true);
  const Tensor image = x.CastImage(Scalar::kFloat16, 4, 2).Contiguous();
  ASSERT_TRUE((image * image).Sum().Backward().ok());
  Values want = Numbers({4, 8}, 0);
  for (double& v : want) v *= 2;
  EXPECT_EQ(Read(x.grad()), want);
  EXPECT_EQ(Stored(x.grad().Contiguous()), "global float32*");
}

}  // namespace
}  // namespace beamd::testing

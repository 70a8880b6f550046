#include "engine/lazy/lazy_buffer.h"

#include <array>
#include <cmath>
#include <limits>

#include "engine/base/option.h"
#include "engine/dtype/image.h"
#include "engine/lazy/fresh_values.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

class LazyBufferTest : public testing::Test {
 protected:
  LazyBuffer Empty(const Shape& shape, Scalar dtype = Scalar::kFloat32) {
    return LazyBuffer::Empty(context_, shape, dtype, "cpu:0");
  }
  LazyBuffer Const(ConstValue v, const Shape& shape, Scalar dtype = Scalar::kFloat32) {
    return LazyBuffer::Const(context_, v, shape, dtype, "cpu:0");
  }
  static LazyBuffer Sum(const LazyBuffer& b, int axis) {
    return b.Reduce(Op::kAdd, std::span(&axis, 1));
  }

  LazyContext context_;
};

TEST_F(LazyBufferTest, EqualNodesAreOne) {
  const LazyBuffer a = Empty({4});
  const LazyBuffer b = Empty({4});
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a + b == a + b);
  EXPECT_FALSE(a + b == b + a);
  EXPECT_TRUE(a.Reshape({2, 2}) == a.Reshape({2, 2}));
  ScopedOption off(options::kLazyCache, 0);
  EXPECT_FALSE(a * b == a * b);
}

TEST_F(LazyBufferTest, FreshValuesAreComputedAnewWhereTheirValueIsHeld) {
  const LazyBuffer a = Empty({4, 2});
  const std::array<int, 2> order{1, 0};
  const LazyBuffer one = a.ConstLike(1);
  const LazyBuffer sum = a + one, product = a * a;
  const LazyBuffer copy = a.Permute(order).Contiguous();
  sum.MarkRealized();
  copy.MarkRealized();
  {
    const FreshValuesScope fresh(context_);
    const LazyBuffer again = a + one;
    EXPECT_FALSE(again == sum);
    EXPECT_FALSE(again.is_realized());
    EXPECT_TRUE(again.srcs()[0] == a);
    EXPECT_TRUE(again == a + one);
    // It wasn't computed before.
    EXPECT_TRUE(a * a == product);
    again.MarkRealized();
    EXPECT_TRUE(again == a + one);
  }
}

TEST_F(LazyBufferTest, AViewOfTheWholeIsTheBase) {
  const LazyBuffer a = Empty({4, 2});
  EXPECT_TRUE(a.Reshape({8}).Reshape({4, 2}) == a);
  const std::array<int, 2> order{1, 0};
  EXPECT_TRUE(a.Permute(order).Permute(order) == a);
  EXPECT_FALSE(a.Reshape({8}).is_base());
  EXPECT_TRUE(a.Reshape({8}).base() == a);
}

TEST_F(LazyBufferTest, ConstantsFold) {
  const LazyBuffer two = Const(2, {3});
  const LazyBuffer sum = two + Const(0.5, {3});
  ASSERT_TRUE(sum.is_unmasked_const());
  EXPECT_EQ(sum.const_value().as_float(), 2.5);
  EXPECT_EQ(two.Alu(Op::kCmpLt, Const(3, {3})).const_value().as_int(), 1);
  EXPECT_EQ(two.Cast(Scalar::kInt8).const_value().as_int(), 2);
  EXPECT_EQ(Const(300, {3}, Scalar::kInt32).Cast(Scalar::kInt8).const_value().as_int(), 44);
  const LazyBuffer greatest = Const(-1, {3}, Scalar::kUint64);
  EXPECT_EQ(greatest.Cast(Scalar::kFloat64).const_value().as_float(), 0x1p64);
  EXPECT_EQ(greatest.Cast(Scalar::kFloat16).const_value().as_float(),
            std::numeric_limits<double>::infinity());
  const LazyBuffer odd = Const(4611686293305294849, {3}, Scalar::kInt64);
  EXPECT_EQ(odd.Cast(Scalar::kFloat32).const_value().as_float(), 0x1p62 + 0x1p39);
  EXPECT_EQ(Const(64, {3}).Alu(Op::kRecip).const_value().as_float(), 1.0 / 64);
  EXPECT_EQ(Const(3, {3}).Alu(Op::kRecip).const_value().as_float(), 1.0f / 3.0f);
  EXPECT_EQ(Const(2, {3}).Alu(Op::kExp2).const_value().as_float(), 4);
  EXPECT_EQ(Const(0, {3}).Alu(Op::kRecip).const_value().as_float(), HUGE_VAL);
  const LazyBuffer big = Const(std::numeric_limits<int32_t>::max(), {1}, Scalar::kInt32);
  EXPECT_EQ((big + ConstValue(1)).const_value().as_int(), std::numeric_limits<int32_t>::min());
}

TEST_F(LazyBufferTest, OnlyWhatKeepsEveryValueFolds) {
  const LazyBuffer x = Empty({3});
  EXPECT_TRUE(x * ConstValue(1) == x);
  EXPECT_TRUE(x + ConstValue(-0.0) == x);
  EXPECT_FALSE(x + ConstValue(0.0) == x);
  EXPECT_FALSE((x * ConstValue(0)).is_const());
  const LazyBuffer i = Empty({3}, Scalar::kInt32);
  EXPECT_TRUE(i + ConstValue(0) == i);
  EXPECT_TRUE((i * ConstValue(0)).is_unmasked_const());
  EXPECT_TRUE(i.Alu(Op::kIdiv, i.ConstLike(1)) == i);
}

TEST_F(LazyBufferTest, AMaskedConstantDoesNotFold) {
  const std::array<std::pair<SInt, SInt>, 1> pad{{{1, 1}}};
  const LazyBuffer padded = Const(2, {3}).Pad(pad);
  EXPECT_TRUE(padded.is_const());
  EXPECT_FALSE(padded.is_unmasked_const());
  EXPECT_FALSE((padded + ConstValue(1)).is_const());
}

TEST_F(LazyBufferTest, ReductionsOfConstantsAndOfNothingFold) {
  EXPECT_EQ(Sum(Const(3, {5, 2}), 0).const_value().as_float(), 15);
  const int axis = 0;
  EXPECT_EQ(Const(3, {4}, Scalar::kInt32).Reduce(Op::kMul, {&axis, 1}).const_value().as_int(), 81);
  EXPECT_EQ(Sum(Empty({0, 2}), 0).const_value().as_float(), 0);
  EXPECT_EQ(Empty({0, 2}).Reduce(Op::kMax, {&axis, 1}).const_value().as_float(), -HUGE_VAL);
  EXPECT_EQ(Empty({0}, Scalar::kInt16).Reduce(Op::kMax, {&axis, 1}).const_value().as_int(),
            std::numeric_limits<int16_t>::min());
}

TEST_F(LazyBufferTest, AReductionOverOneElementIsItsSource) {
  const LazyBuffer a = Empty({4, 1});
  EXPECT_TRUE(Sum(a, 1) == a);
}

TEST_F(LazyBufferTest, LargeReductionsAreSplit) {
  const std::array<int, 2> both{0, 1};
  const LazyBuffer sum = Empty({1024, 1024}).Reduce(Op::kAdd, both);
  EXPECT_EQ(sum.shape(), (Shape{1, 1}));
  const LazyBuffer second = sum.base();
  ASSERT_EQ(second.op(), Op::kReduceAxis);
  const LazyBuffer first = second.srcs()[0].base();
  ASSERT_EQ(first.op(), Op::kReduceAxis);
  EXPECT_EQ(first.size(), SInt(256));
  ScopedOption off(options::kSplitReduceOp, 0);
  EXPECT_FALSE(Empty({1024, 1024}).Reduce(Op::kAdd, both).base().srcs()[0].base().op() ==
               Op::kReduceAxis);
}

TEST_F(LazyBufferTest, ACastOfAViewIsAViewOfACast) {
  const LazyBuffer a = Empty({4}, Scalar::kFloat32);
  EXPECT_FALSE(a.Reshape({2, 2}).Cast(Scalar::kFloat16).is_base());
  EXPECT_TRUE(a.Reshape({2, 2}).Cast(Scalar::kFloat64).is_base());
}

TEST_F(LazyBufferTest, AContiguousCopyServesOtherReaders) {
  const LazyBuffer a = Empty({4, 2});
  const std::array<int, 2> order{1, 0};
  const LazyBuffer copy = a.Permute(order).Contiguous();
  EXPECT_EQ(copy.op(), Op::kContiguous);
  const LazyBuffer sum = a + a.ConstLike(1);
  EXPECT_TRUE(sum.srcs()[0].base() == copy);
}

TEST_F(LazyBufferTest, ContiguousConstantsHaveEachTheirOwnMemory) {
  const LazyBuffer zeros =
      LazyBuffer::Const(context_, ConstValue(0), {4}, Scalar::kFloat32, "cpu:0");
  EXPECT_FALSE(zeros.Contiguous() == zeros.Contiguous());
}

TEST_F(LazyBufferTest, AWindowNeedsNoKernel) {
  const LazyBuffer a = Empty({4, 16});
  const std::array<std::pair<SInt, SInt>, 2> rows{{{1, 3}, {0, 16}}};
  const LazyBuffer window = a.Shrink(rows).Contiguous();
  ASSERT_EQ(window.op(), Op::kBufferView);
  EXPECT_EQ(window.buffer()->offset_bytes, 64);
  EXPECT_TRUE(window.buffer()->parent == a.buffer());
  // A kernel takes for granted that a buffer begins at a multiple of 64 bytes.
  const LazyBuffer narrow = Empty({4, 2});
  const std::array<std::pair<SInt, SInt>, 2> some{{{1, 3}, {0, 2}}};
  EXPECT_EQ(narrow.Shrink(some).Contiguous().op(), Op::kContiguous);
}

TEST_F(LazyBufferTest, AnExpressionIsWrittenOutLikeANumber) {
  const UOp n = context_.Variable("n", 1, 9);
  const LazyBuffer value = LazyBuffer::Const(context_, n, {}, Scalar::kInt32, "cpu:0");
  EXPECT_EQ(value.Contiguous().op(), Op::kContiguous);
  EXPECT_EQ(value.CopyTo("cpu:1").op(), Op::kConst);
}

TEST_F(LazyBufferTest, AnAssignIsSeenThroughItsTargetsView) {
  const LazyBuffer a = Empty({4, 2});
  const std::array<std::pair<SInt, SInt>, 2> column{{{0, 4}, {1, 2}}};
  const LazyBuffer part = a.Shrink(column);
  const LazyBuffer after = part.Assign(part.ConstLike(7));
  EXPECT_EQ(after.shape(), part.shape());
  EXPECT_EQ(after.st(), part.st());
  EXPECT_EQ(after.base().shape(), a.shape());
  EXPECT_TRUE(after.base().buffer() == a.buffer());
}

TEST_F(LazyBufferTest, CopiesOfCopiesAreOne) {
  const LazyBuffer a = Empty({4});
  const LazyBuffer there = a.CopyTo("cpu:1").CopyTo("cpu:2");
  EXPECT_EQ(there.device(), "cpu:2");
  EXPECT_TRUE(there.base().srcs()[0] == a);
  EXPECT_TRUE(a.CopyTo("cpu:0") == a);
  EXPECT_FALSE(a.Clone() == a);
  EXPECT_TRUE(Const(1, {4}).CopyTo("cpu:1").is_const());
}

TEST_F(LazyBufferTest, WhatIsStoredAsAnImageIsANodeOfItsOwn) {
  const DType wide = *ImageOf(Scalar::kFloat16, 1, 4), high = *ImageOf(Scalar::kFloat16, 4, 1);
  const LazyBuffer a = Empty({4, 4});
  EXPECT_TRUE(a.CastImage(wide) == a.CastImage(wide));
  EXPECT_FALSE(a.CastImage(wide) == a.CastImage(high));
  EXPECT_TRUE(a.CastImage(DType()) == a);
  EXPECT_TRUE(a.CastImage(wide).CastImage(wide) == a.CastImage(wide));
  EXPECT_EQ(a.CastImage(wide).dtype(), Scalar::kFloat32);
  // The first operand that has an image says which.
  EXPECT_EQ((a + a.CastImage(wide)).image(), wide);
  EXPECT_EQ((a.CastImage(high) * a.CastImage(wide)).image(), high);
  EXPECT_EQ(Sum(a.CastImage(wide), 0).image(), wide);
  EXPECT_EQ(a.CastImage(wide).Reshape({16}).image(), wide);
  EXPECT_EQ(a.CastImage(wide).CastImage(DType()).image(), DType());
  EXPECT_EQ(a.CastImage(wide).Cast(Scalar::kFloat16).image(), DType());
  EXPECT_EQ(a.CastImage(wide).Bitcast(Scalar::kInt32).image(), DType());
  EXPECT_EQ(a.CastImage(wide).Alu(Op::kCmpLt, a).image(), DType());
}

TEST_F(LazyBufferTest, ABufferIsAnImageOnlyIfItFits) {
  const DType image = *ImageOf(Scalar::kFloat16, 3, 4);
  const auto stored = [&](const Shape& shape) {
    return Empty(shape).CastImage(image).buffer()->pointer();
  };
  const DType plain = DType::Pointer(Scalar::kFloat32, AddressSpace::kGlobal);
  EXPECT_EQ(stored({3, 4, 4}), image);
  EXPECT_EQ(stored({48}), image);
  EXPECT_EQ(stored({2, 3, 8, 1}), image);
  EXPECT_EQ(stored({47}), plain);
  EXPECT_EQ(stored({3, 4, 3}), plain);
  EXPECT_EQ(stored({8, 6}), plain);  // fours that aren't side by side
  EXPECT_EQ(stored({SInt(context_.Variable("n", 1, 3)), 16}), plain);
  EXPECT_EQ(Empty({48}).CastImage(image).buffer()->size_bytes(), 96);
  // Bytes are copied as they lie; a buffer is what it is in every shape.
  EXPECT_EQ(Empty({48}).CastImage(image).CopyTo("cpu:1").base().buffer()->pointer(), image);
  const LazyBuffer again =
      LazyBuffer::FromBuffer(context_, Empty({48}).CastImage(image).buffer(), {8, 6});
  EXPECT_EQ(again.dtype(), Scalar::kFloat32);
  EXPECT_EQ(again.buffer()->pointer(), image);
  EXPECT_EQ(again.CopyTo("cpu:1").buffer()->pointer(), image);
  EXPECT_EQ((again + again).buffer()->pointer(), plain);
}

TEST_F(LazyBufferTest, PartsOfImagesAreNoWindows) {
  const LazyBuffer image = Empty({4, 64}).CastImage(*ImageOf(Scalar::kFloat32, 4, 16));
  const std::array<std::pair<SInt, SInt>, 2> rows{std::pair<SInt, SInt>(1, 3),
                                                  std::pair<SInt, SInt>(0, 64)};
  EXPECT_EQ(Empty({4, 64}).Shrink(rows).Contiguous().op(), Op::kBufferView);
  EXPECT_EQ(image.Shrink(rows).Contiguous().op(), Op::kContiguous);
}

TEST_F(LazyBufferTest, AnAssignLiesWhereItsTargetDoes) {
  const LazyBuffer plain = Empty({48});
  const LazyBuffer image = plain.CastImage(*ImageOf(Scalar::kFloat32, 3, 4));
  const LazyBuffer assigned = plain.Assign(image + image);
  EXPECT_EQ(assigned.image(), DType());
  EXPECT_FALSE(assigned.base().buffer()->image.is_image());
}

TEST_F(LazyBufferTest, VariablesAreBoundInsideTheirBounds) {
  const UOp n = context_.Variable("n", 1, 10);
  EXPECT_TRUE(context_.Bind(n, 4).ok());
  EXPECT_EQ(context_.bindings().at("n"), 4);
  EXPECT_EQ(context_.Bind(n, 11).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Empty({SInt(n), 2}).buffer()->size_elements, 20);
}

TEST_F(LazyBufferTest, ADeepChainDiesWithoutRecursion) {
  const size_t before = context_.live_nodes();
  {
    LazyBuffer x = Empty({4});
    const LazyBuffer y = Empty({4});
    for (int i = 0; i < 200'000; ++i) x = x + y;
    EXPECT_GT(context_.live_nodes(), 200'000u);
  }
  EXPECT_EQ(context_.live_nodes(), before);
}

TEST_F(LazyBufferTest, RealisedNodesForgetTheirSources) {
  const LazyBuffer a = Empty({4});
  const LazyBuffer sum = a + a;
  sum.MarkRealized();
  EXPECT_TRUE(sum.is_realized());
  EXPECT_TRUE(sum.srcs().empty());
  // It is still what the same expression gives.
  EXPECT_TRUE(a + a == sum);
}

}  // namespace
}  // namespace beamd

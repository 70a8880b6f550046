#include "engine/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/engine/tensor/tensor_testing.h"

namespace beamd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TensorStateTest : public TensorTest {};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_F(TensorStateTest, AnUndefinedTensorSaysSo) {
  const Tensor t;
  EXPECT_FALSE(t.defined());
  EXPECT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(t.Realize().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(t.grad().defined());
  EXPECT_FALSE(t.requires_grad().has_value());
}

TEST_F(TensorStateTest, SizesAndCounts) {
  const Tensor t = Make({1, 2, 3, 4, 5, 6}, {2, 3}, Scalar::kFloat64);
  EXPECT_EQ(t.ndim(), 2);
  EXPECT_EQ(t.size(-1), SInt(3));
  EXPECT_EQ(t.size(2), SInt(0));
  EXPECT_EQ(t.numel(), SInt(6));
  EXPECT_EQ(t.nbytes(), 48);
  EXPECT_EQ(t.element_size(), 8);
  EXPECT_TRUE(t.is_floating_point());
}

TEST_F(TensorStateTest, HostDataKeepsItsDtype) {
  EXPECT_EQ(Tensor::From<bool>(context_, std::vector<bool>{true, false}, {2}).dtype(),
            Scalar::kBool);
  EXPECT_EQ(Tensor::From<int8_t>(context_, std::vector<int8_t>{1}, {1}).dtype(), Scalar::kInt8);
  EXPECT_EQ(Tensor::From<uint8_t>(context_, std::vector<uint8_t>{1}, {1}).dtype(), Scalar::kUint8);
  EXPECT_EQ(Tensor::From<int16_t>(context_, std::vector<int16_t>{1}, {1}).dtype(), Scalar::kInt16);
  EXPECT_EQ(Tensor::From<uint16_t>(context_, std::vector<uint16_t>{1}, {1}).dtype(),
            Scalar::kUint16);
  EXPECT_EQ(Tensor::From(context_, std::vector<int>{1}, {1}).dtype(), Scalar::kInt32);
  EXPECT_EQ(Tensor::From(context_, std::vector<uint32_t>{1}, {1}).dtype(), Scalar::kUint32);
  EXPECT_EQ(Tensor::From(context_, std::vector<float>{1}, {1}).dtype(), Scalar::kFloat32);
  const Tensor wide = Tensor::From(context_, std::vector<int64_t>{INT64_MIN, 7}, {2});
  EXPECT_THAT(*wide.ToVector<int64_t>(), ElementsAre(INT64_MIN, 7));
  const Tensor words = Tensor::From(context_, std::vector<uint64_t>{UINT64_MAX}, {1});
  EXPECT_THAT(*words.ToVector<uint64_t>(), ElementsAre(UINT64_MAX));
  const Tensor doubles = Tensor::From(context_, std::vector<double>{0.1}, {1});
  EXPECT_THAT(*doubles.ToVector<double>(), ElementsAre(0.1));
}

TEST_F(TensorStateTest, HostDataIsConvertedOnRequest) {
  const std::vector<double> values = {1.75, -3, 1e9};
  const Tensor halves = Tensor::From(context_, values, {3}, Typed(Scalar::kFloat16));
  EXPECT_THAT(*halves.ToVector<float>(), ElementsAre(1.75f, -3.0f, static_cast<float>(kInf)));
  const Tensor bytes = Tensor::From(context_, values, {3}, Typed(Scalar::kInt8));
  EXPECT_THAT(*bytes.ToVector<int8_t>(), ElementsAre(1, -3, 127));
  const Tensor bools = Tensor::From(context_, std::vector<int>{0, 2}, {2}, Typed(Scalar::kBool));
  EXPECT_THAT(*bools.ToVector<bool>(), ElementsAre(false, true));
}

TEST_F(TensorStateTest, HostDataNeedsNoRealizer) {
  LazyContext alone;
  const Tensor t = Tensor::From(alone, std::vector<int>{1, 2, 3, 4}, {2, 2});
  EXPECT_THAT(*t.ToVector<int>(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(t.Realize().ok());
  const absl::Status status = (t + t).Realize();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("no realizer"));
  // One that comes later computes what was made before.
  const Tensor twice = t + t;
  alone.set_realizer(&world_.realizer);
  EXPECT_THAT(*twice.ToVector<int>(), ElementsAre(2, 4, 6, 8));
}

TEST_F(TensorStateTest, ReadingChecksTheType) {
  const Tensor t = Vector({1, 2}, Scalar::kInt32);
  EXPECT_EQ(Message(t.ToVector<float>().status()), "read: int32 elements are no float32");
  EXPECT_EQ(Message(t.ToVector<uint32_t>().status()), "read: int32 elements are no uint32");
  EXPECT_THAT(Message(t.Item<int>().status()), HasSubstr("2 elements"));
  EXPECT_EQ(*Tensor::Full(context_, {1, 1}, 2.5).Item<float>(), 2.5f);
  EXPECT_EQ(*Tensor::Full(context_, {}, true).Item<bool>(), true);
  EXPECT_TRUE(Tensor::Zeros(context_, {0, 3}).ToVector<float>()->empty());
}

TEST_F(TensorStateTest, ViewsReadRowMajor) {
  const Tensor t = Make({1, 2, 3, 4, 5, 6}, {2, 3});
  ExpectNear(Read(t.T()), {1, 4, 2, 5, 3, 6});
  ExpectNear(Read(t.Flip(1)), {3, 2, 1, 6, 5, 4});
  ExpectNear(Read(t.Shrink({std::nullopt, {{1, 3}}})), {2, 3, 5, 6});
}

TEST_F(TensorStateTest, BytesComeAndGo) {
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{0}, std::byte{255}, std::byte{255}};
  const Tensor t = Tensor::FromBytes(context_, bytes, {2}, Scalar::kInt16);
  EXPECT_THAT(*t.ToVector<int16_t>(), ElementsAre(1, -1));
  EXPECT_EQ(*t.ToBytes(), bytes);
  EXPECT_THAT(Message(Tensor::FromBytes(context_, bytes, {3}, Scalar::kInt16).status()),
              HasSubstr("from_bytes: 4 bytes for int16 of the shape (3)"));
}

TEST_F(TensorStateTest, ShapesOfNewTensorsAreChecked) {
  const std::vector<int> values = {1, 2, 3};
  EXPECT_EQ(Message(Tensor::From(context_, values, {2, 2}).status()),
            "from: 3 values for the shape (2, 2)");
  EXPECT_THAT(Message(Tensor::From(context_, values, {-1, -3}).status()), HasSubstr("negative"));
  EXPECT_THAT(Message(Tensor::Full(context_, {2, -1}, 1).status()), HasSubstr("full: "));
  EXPECT_THAT(Message(Tensor::Empty(context_, {int64_t{1} << 40, int64_t{1} << 40}).status()),
              HasSubstr("empty: the shape (1099511627776, 1099511627776) is too large"));
  const UOp n = context_.Variable("n", 1, 4);
  EXPECT_THAT(Message(Tensor::Empty(context_, {SInt(n)}).status()), HasSubstr("variables"));
  EXPECT_TRUE(Tensor::Full(context_, {SInt(n)}, 1).ok());
  EXPECT_THAT(Message(Tensor::Full(context_, {SInt(n)}, 1).ToBytes().status()),
              HasSubstr("read: the shape (n) holds variables"));
  EXPECT_FALSE(Tensor::Zeros(context_, {1}, Typed(Scalar::kVoid)).ok());
}

TEST_F(TensorStateTest, Constants) {
  EXPECT_EQ(Tensor::Full(context_, {2}, 1).dtype(), Scalar::kInt32);
  EXPECT_EQ(Tensor::Full(context_, {2}, 1.0).dtype(), Scalar::kFloat32);
  EXPECT_EQ(Tensor::Full(context_, {2}, true).dtype(), Scalar::kBool);
  EXPECT_EQ(Tensor::Ones(context_, {2}).dtype(), Scalar::kFloat32);
  ExpectNear(Read(Tensor::Full(context_, {2, 1}, -1, Typed(Scalar::kUint8))), {255, 255});
  const Tensor like = Tensor::Zeros(context_, {3}, Typed(Scalar::kInt64));
  EXPECT_EQ(like.OnesLike().dtype(), Scalar::kInt64);
  EXPECT_EQ(like.FullLike(0.5, Typed(Scalar::kFloat16)).dtype(), Scalar::kFloat16);
  ExpectNear(Read(like.OnesLike()), {1, 1, 1});
}

TEST_F(TensorStateTest, Ranges) {
  ExpectNear(Read(Tensor::Arange(context_, 5)), {0, 1, 2, 3, 4});
  EXPECT_EQ(Tensor::Arange(context_, 5).dtype(), Scalar::kInt32);
  ExpectNear(Read(Tensor::Arange(context_, 5, 10, 2)), {5, 7, 9});
  ExpectNear(Read(Tensor::Arange(context_, 5.5, 10, 2)), {5.5, 7.5, 9.5});
  EXPECT_EQ(Tensor::Arange(context_, 5.5, 10, 2).dtype(), Scalar::kFloat32);
  ExpectNear(Read(Tensor::Arange(context_, 3, -3, -2)), {3, 1, -1});
  EXPECT_EQ(Tensor::Arange(context_, 3, 3).shape(), (Shape{0}));
  EXPECT_EQ(Tensor::Arange(context_, 3, 5, -1).shape(), (Shape{0}));
  ExpectNear(Read(Tensor::Arange(context_, 300, 303, 1, Typed(Scalar::kUint8))), {44, 45, 46});
  EXPECT_EQ(Message(Tensor::Arange(context_, 0, 3, 0).status()), "arange: the step is 0");
  EXPECT_THAT(Message(Tensor::Arange(context_, std::numeric_limits<int64_t>::max()).status()),
              HasSubstr("too many"));
  EXPECT_FALSE(Tensor::Arange(context_, kNan).ok());
  ExpectNear(Read(Tensor::Linspace(context_, 0, 10, 5)), {0, 2.5, 5, 7.5, 10});
  ExpectNear(Read(Tensor::Linspace(context_, 3, 1, 1)), {3});
  ExpectNear(Read(Tensor::Linspace(context_, 0, 1, 3, Typed(Scalar::kFloat64))), {0, 0.5, 1});
  EXPECT_EQ(Tensor::Linspace(context_, 0, 1, 0).shape(), (Shape{0}));
  EXPECT_FALSE(Tensor::Linspace(context_, 0, 1, -1).ok());
  EXPECT_FALSE(Tensor::Linspace(context_, 0, 1, 3, Typed(Scalar::kBool)).ok());
}

TEST_F(TensorStateTest, Identities) {
  ExpectNear(Read(Tensor::Eye(context_, 3)), {1, 0, 0, 0, 1, 0, 0, 0, 1});
  ExpectNear(Read(Tensor::Eye(context_, 2, 3)), {1, 0, 0, 0, 1, 0});
  ExpectNear(Read(Tensor::Eye(context_, 3, 1)), {1, 0, 0});
  EXPECT_EQ(Tensor::Eye(context_, 0).shape(), (Shape{0, 0}));
  EXPECT_FALSE(Tensor::Eye(context_, -1).ok());
}

TEST_F(TensorStateTest, ExpressionsOverVariables) {
  const UOp n = context_.Variable("n", 1, 10);
  ASSERT_TRUE(context_.Bind(n, 7).ok());
  const Tensor t = Tensor::FromUop(context_, (SInt(n) * 2 + 1).expr());
  EXPECT_EQ(*t.Item<int>(), 15);
  EXPECT_EQ(*(t * 2).Item<int>(), 30);
  EXPECT_FALSE(Tensor::FromUop(context_, UOp()).ok());
  EXPECT_FALSE(Tensor::FromUop(context_, context_.graph().ConstFloat(Scalar::kFloat32, 1)).ok());
}

TEST_F(TensorStateTest, AssignWritesIntoTheBuffer) {
  Tensor t = Vector({1, 2, 3});
  const TensorBuffer* const buffer = t.lazydata().base().buffer().get();
  t.Assign(t * 2);
  ASSERT_TRUE(t.ok()) << t.status();
  ExpectNear(Read(t), {2, 4, 6});
  EXPECT_EQ(t.lazydata().base().buffer().get(), buffer);
  t.Assign(7);
  ExpectNear(Read(t), {7, 7, 7});
  Tensor unrealized = Tensor::Zeros(context_, {2});
  unrealized.Assign(Vector({1, 2}));
  ExpectNear(Read(unrealized), {1, 2});
}

TEST_F(TensorStateTest, AssignChecksWhatItIsGiven) {
  const auto error = [&](const Operand& value) {
    Tensor t = Vector({1, 2, 3});
    return Message(t.Assign(value).status());
  };
  EXPECT_EQ(error(Vector({1, 2})), "assign: a value of shape (2) into one of (3)");
  EXPECT_EQ(error(Vector({1, 2, 3}, Scalar::kInt32)),
            "assign: a value of int32 into one of float32");
  EXPECT_EQ(error(Vector({1, 2, 3}).To("cpu:1")), "assign: a value on cpu:1 into one on cpu:0");
  EXPECT_THAT(error(Vector({1, 2, 3}).set_requires_grad(true)), HasSubstr("requires a gradient"));
  EXPECT_THAT(error(Vector({1, 2}) + Vector({1, 2, 3})), HasSubstr("add: "));
}

TEST_F(TensorStateTest, ReplaceTakesAnotherValue) {
  Tensor t = Vector({1, 2});
  t.Replace(Vector({3, 4}, Scalar::kInt32));
  EXPECT_EQ(t.dtype(), Scalar::kInt32);
  ExpectNear(Read(t), {3, 4});
  EXPECT_THAT(Message(t.Replace(Vector({3})).status()), HasSubstr("replace: "));
}

TEST_F(TensorStateTest, CopiesHaveBuffersOfTheirOwn) {
  const Tensor t = Vector({1, 2});
  const Tensor clone = t.Clone();
  const Tensor there = t.To("cpu:1");
  EXPECT_EQ(there.device(), "cpu:1");
  ASSERT_TRUE(Tensor::Realize({clone, there}).ok());
  EXPECT_NE(clone.lazydata().base().buffer(), t.lazydata().base().buffer());
  ExpectNear(Read(clone), {1, 2});
  ExpectNear(Read(there), {1, 2});
  EXPECT_TRUE(t.To("cpu:0").is(t));
}

TEST_F(TensorStateTest, OneRealizationIsOfOneContext) {
  LazyContext other("cpu:0", &world_.realizer);
  const Tensor x = Vector({1}) + 1;
  const Tensor y = Tensor::Full(other, {1}, 1.0) + 1;
  EXPECT_THAT(Message(Tensor::Realize({x, y})), HasSubstr("different contexts"));
}

TEST(Tensor, MoreBytesThanCanBeCountedAreNotRead) {
  LazyContext context;
  const Tensor x = Tensor::Full(context, {2, 2}, 1, {.dtype = Scalar::kFloat64});
  const Tensor huge = x.Repeat({1 << 30, 1 << 30});
  const absl::Status status = huge.ok() ? huge.ToBytes().status() : huge.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(Tensor, MisuseIsNoAbort) {
  EXPECT_EQ(Tensor::Failed(absl::OkStatus()).status().code(), absl::StatusCode::kInternal);
  LazyContext context;
  const Tensor x = Tensor::Ones(context, {2});
  EXPECT_EQ(x.Sequential({nullptr}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace beamd::testing

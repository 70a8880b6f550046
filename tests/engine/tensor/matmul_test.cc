// Products: dtypes, symbolic sizes, mistakes. Their values are held against NumPy in golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"
#include "tests/engine/tensor/both_realizers.h"

namespace beamd::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class MatmulTest : public BothRealizersTest {};
INSTANTIATE_TEST_SUITE_P(On, MatmulTest, Realizers(), RealizerName);

TEST_P(MatmulTest, TheResultHasThePromotedDType) {
  const auto dtype_of = [&](Scalar a, Scalar b) {
    return Make({1, 2}, {1, 2}, a).Matmul(Make({3, 4}, {2, 1}, b)).dtype();
  };
  EXPECT_EQ(dtype_of(Scalar::kFloat16, Scalar::kFloat16), Scalar::kFloat16);
  EXPECT_EQ(dtype_of(Scalar::kBFloat16, Scalar::kFloat16), Scalar::kFloat32);
  EXPECT_EQ(dtype_of(Scalar::kInt8, Scalar::kInt8), Scalar::kInt8);
  EXPECT_EQ(dtype_of(Scalar::kUint8, Scalar::kInt8), Scalar::kInt16);
  EXPECT_EQ(dtype_of(Scalar::kInt64, Scalar::kFloat16), Scalar::kFloat16);
  EXPECT_EQ(dtype_of(Scalar::kFloat32, Scalar::kFloat64), Scalar::kFloat64);
}

TEST_P(MatmulTest, HalfFloatsAreSummedInFloat32) {
  // In float16, 2048 + 1 is 2048.
  const Tensor ones = Tensor::Ones(context_, {3000}, Typed(Scalar::kFloat16)).Contiguous();
  EXPECT_THAT(Read(ones.Dot(ones)), ElementsAre(3000));
}

TEST_P(MatmulTest, TheAccumulatorCanBeNamed) {
  const Tensor a = Make({100, 100}, {1, 2}, Scalar::kInt8);
  const Tensor b = Make({100, 100}, {2, 1}, Scalar::kInt8);
  EXPECT_THAT(Read(a.Matmul(b)), ElementsAre(32));  // 20000 wrapped to int8
  const Tensor wide = a.Matmul(b, /*reverse=*/false, Scalar::kInt64);
  EXPECT_EQ(wide.dtype(), Scalar::kInt64);
  // The products are int8: 10000 wraps to 16 before it is added.
  EXPECT_THAT(Read(wide), ElementsAre(32));
  EXPECT_EQ(Tensor::Einsum("ij,jk->ik", {a, b}, Scalar::kInt64).dtype(), Scalar::kInt64);
}

TEST_P(MatmulTest, AnEmptySumIsZero) {
  EXPECT_THAT(Read(Make({}, {2, 0}).Matmul(Make({}, {0, 3}))), Each(0));
}

TEST_P(MatmulTest, EinsumBroadcastsAnEllipsis) {
  const Tensor a = Make({1, 2, 3, 4}, {2, 1, 2});
  const Tensor b = Make({1, 10, 100, 1000}, {2, 2});
  EXPECT_THAT(Read(Tensor::Einsum("...i,...i->...", {a, b})), ElementsAre(21, 2100, 43, 4300));
}

TEST_P(MatmulTest, SequentialChainsFunctions) {
  EXPECT_THAT(Read(Vector({1, 2}).Sequential(
                  {[](const Tensor& x) { return x * 2; }, [](const Tensor& x) { return x + 1; }})),
              ElementsAre(3, 5));
}

TEST_P(MatmulTest, AttentionTakesKeysOfSymbolicLength) {
  Values numbers(2 * 6 * 4);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (double& v : numbers) v = v * 7 - 20 * static_cast<int>(v * 7 / 20) - 10;
  const Tensor all = Make(numbers, {2, 6, 4}) / 10;
  const Tensor q = all.Shrink({std::nullopt, {{0, 2}}, std::nullopt});
  const UOp length = context_.Variable("length", 1, 6);
  const auto until = [&](const SInt& end) {
    return all.Shrink({std::nullopt, {{0, end}}, std::nullopt});
  };
  for (const int n : {1, 4, 6}) {
    ASSERT_TRUE(context_.Bind(length, n).ok());
    const Tensor some = until(SInt(length));
    ExpectNear(Read(q.ScaledDotProductAttention(some, some)),
               Read(q.ScaledDotProductAttention(until(n), until(n))), 1e-6);
  }
}

TEST_P(MatmulTest, ARowThatMayLookNowhereIsNaN) {
  const Tensor x = Make({1, 2}, {1, 2});
  const Tensor nowhere = Make({0}, {1, 1}, Scalar::kBool);
  ExpectNear(Read(x.ScaledDotProductAttention(x, x, nowhere)), {kNan, kNan});
}

class MatmulErrorTest : public TensorTest {};

TEST_F(MatmulErrorTest, ShapesThatDoNotFit) {
  const Tensor a = Make(Values(6, 0), {2, 3});
  ExpectFails(a.Dot(a), "dot", "can't multiply (2, 3) by (2, 3)");
  ExpectFails(a.Dot(Make({1}, {})), "dot", "both tensors need an axis");
  ExpectFails(a.Linear(a), "dot", "(2, 3)");
  EXPECT_FALSE(Make(Values(12, 0), {2, 2, 3}).Dot(Make(Values(9, 0), {3, 3, 1})).ok());
}

TEST_F(MatmulErrorTest, FormulasThatCannotBe) {
  const Tensor a = Make(Values(6, 0), {2, 3});
  const auto fails = [&](absl::string_view formula, const std::vector<Tensor>& operands,
                         const std::string& why) {
    ExpectFails(Tensor::Einsum(formula, operands), "einsum", why);
  };
  fails("ij", {}, "no operands");
  fails("ij,jk->ik", {a}, "names 2 operands, 1 given");
  fails("ijk->i", {a}, "\"ijk\" doesn't fit shape (2, 3)");
  fails("i...jk->i", {a}, "doesn't fit");
  fails("ii->i", {a}, "a letter stands twice");
  fails("ij->ii", {a}, "a letter stands twice");
  fails("ij->k", {a}, "'k' is in no operand");
  fails("i1->i", {a}, "'1' is neither");
  fails("i.j->i", {a}, "'.' is neither");
  fails("......->i", {a}, "two ellipses");
  fails("ij->i->j", {a}, "more than one");
  fails("ij,ij->", {a, a.T()}, "'i' has sizes 2 and 3");
  fails("...,...->...", {a, a.T()}, "an axis of the ellipsis has sizes");
}

TEST_F(MatmulErrorTest, AttentionThatCannotBe) {
  const std::string op = "scaled_dot_product_attention";
  const Tensor x = Make(Values(12, 0), {2, 3, 2});
  const Tensor mask = Make(Values(9, 1), {3, 3}, Scalar::kBool);
  const auto attend = [&](const Tensor& k, const Tensor& m, bool causal, bool grouped) {
    return x.ScaledDotProductAttention(k, k, m, 0, causal, grouped);
  };
  ExpectFails(attend(Vector({1}), Tensor(), false, false), op, "fewer than two axes");
  ExpectFails(attend(x, mask, true, false), op, "a mask beside is_causal");
  ExpectFails(attend(Make(Values(18, 0), {3, 3, 2}), Tensor(), false, true), op, "multiple");
  ExpectFails(Make(Values(4, 0), {2, 2}).ScaledDotProductAttention(x, x, Tensor(), 0, false, true),
              op, "no axis of heads");
  EXPECT_FALSE(attend(x.Transpose(1, 2), Tensor(), false, false).ok());
}

TEST_F(MatmulErrorTest, AFailedOperandFailsTheProduct) {
  const Tensor failed = Tensor::Failed(absl::InvalidArgumentError("first"));
  const Tensor a = Make({1, 2}, {2});
  for (const Tensor& result :
       {a.Dot(failed), failed.Dot(a), a.Linear(a, failed), Tensor::Einsum("i,i", {a, failed}),
        a.Unsqueeze(0).ScaledDotProductAttention(failed, failed),
        a.Unsqueeze(0).ScaledDotProductAttention(a.Unsqueeze(0), a.Unsqueeze(0), failed)}) {
    EXPECT_EQ(result.status().message(), "first");
  }
  EXPECT_EQ(a.Dot(Tensor()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace beamd::testing

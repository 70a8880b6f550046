#include "engine/autograd/functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/lazy/lazy_context.h"
#include "tests/testing/unfused.h"

namespace beamd {
namespace {

namespace f = functions;
using ::testing::HasSubstr;
using Values = std::vector<double>;
using Inputs = std::vector<LazyBuffer>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class FunctionsTest : public ::testing::Test {
 protected:
  LazyBuffer Make(const Values& values, const Shape& shape, Scalar dtype = Scalar::kFloat64) {
    auto buffer = std::make_shared<TensorBuffer>();
    buffer->device = context_.device();
    buffer->dtype = dtype;
    buffer->size_elements = static_cast<int64_t>(values.size());
    std::vector<std::byte> bytes(values.size() * SizeBytes(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      std::byte* const at = &bytes[i * SizeBytes(dtype)];
      if (IsFloat(dtype)) {
        StoreFloat(values[i], dtype, at);
      } else {
        StoreInt(static_cast<int64_t>(values[i]), dtype, at);
      }
    }
    buffer->memory = std::make_shared<HostMemory>(std::move(bytes));
    return LazyBuffer::FromBuffer(context_, std::move(buffer), shape);
  }
  LazyBuffer Vector(const Values& values, Scalar dtype = Scalar::kFloat64) {
    return Make(values, {static_cast<int64_t>(values.size())}, dtype);
  }

  Values Read(const LazyBuffer& lazy) {
    if (ProvenEq(lazy.size(), 0)) return {};
    const LazyBuffer whole = lazy.Contiguous();
    const absl::Status status = realizer_.Realize(std::span(&whole, 1));
    EXPECT_TRUE(status.ok()) << status;
    const TensorBuffer& buffer = *whole.base().buffer();
    std::vector<std::byte> bytes(static_cast<size_t>(buffer.size_bytes()));
    EXPECT_TRUE(realizer_.Read(buffer, bytes).ok());
    Values values;
    for (int64_t i = 0; i < buffer.size_elements; ++i) {
      const std::byte* const at = &bytes[i * SizeBytes(buffer.dtype)];
      values.push_back(IsFloat(buffer.dtype) ? LoadFloat(at, buffer.dtype)
                                             : static_cast<double>(LoadInt(at, buffer.dtype)));
    }
    return values;
  }

  // The gradient of sum(weight * forward(inputs)) with respect to each element of each input,
  // found by differences, against what Backward gives for `weight`.
  template <typename F>
  void CheckGradient(const std::vector<Values>& inputs, const Shape& shape,
                     const std::function<LazyBuffer(F&, const Inputs&)>& forward) {
    const auto lazy = [&](const std::vector<Values>& values) {
      Inputs result;
      for (const Values& v : values) result.push_back(Make(v, shape));
      return result;
    };
    F function;
    SCOPED_TRACE(std::string(function.name()));
    const LazyBuffer result = forward(function, lazy(inputs));
    Values weight(Read(result).size());
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5 + 0.25 * static_cast<double>(i % 5);
    const f::Gradients gradients = function.Backward(Make(weight, result.shape()));
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    ASSERT_EQ(gradients->size(), inputs.size());
    const auto loss = [&](const std::vector<Values>& at) {
      F fresh;
      const Values values = Read(forward(fresh, lazy(at)));
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) sum += weight[i] * values[i];
      return sum;
    };
    constexpr double kStep = 1e-5;
    for (size_t input = 0; input < inputs.size(); ++input) {
      EXPECT_EQ((*gradients)[input].shape(), shape);
      EXPECT_EQ((*gradients)[input].dtype(), Scalar::kFloat64);
      const Values found = Read((*gradients)[input]);
      for (size_t i = 0; i < found.size(); ++i) {
        std::vector<Values> above = inputs;
        std::vector<Values> below = inputs;
        above[input][i] += kStep;
        below[input][i] -= kStep;
        const double want = (loss(above) - loss(below)) / (2 * kStep);
        EXPECT_NEAR(found[i], want, 1e-8 + 1e-8 * std::abs(want))
            << "input " << input << ", element " << i;
      }
    }
  }

  // Value and gradient (for a gradient of 1) of F at each x, in float32.
  template <typename F>
  std::pair<Values, Values> At(const Values& xs) {
    F function;
    const Values values = Read(function.Forward(Vector(xs, Scalar::kFloat32)));
    const f::Gradients gradients =
        function.Backward(Vector(Values(xs.size(), 1), Scalar::kFloat32));
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    return {values, Read((*gradients)[0])};
  }

  testing::UnfusedRealizer realizer_;
  LazyContext context_{"cpu:0", &realizer_};
};

// NaN equals NaN.
void ExpectSame(const Values& got, const Values& want, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << "element " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
    }
  }
}

template <typename F>
LazyBuffer Unary(F& function, const Inputs& in) {
  return function.Forward(in[0]);
}
template <typename F>
LazyBuffer Binary(F& function, const Inputs& in) {
  return function.Forward(in[0], in[1]);
}

TEST_F(FunctionsTest, UnaryGradientsAreThoseOfDifferences) {
  const Values positive = {0.3, 0.7, 1.9, 2.5, 1.2, 4};
  const Values mixed = {-1.5, 0.25, 3, -0.75, 2, -3};
  const Shape shape = {2, 3};
  CheckGradient<f::Contiguous>({mixed}, shape, Unary<f::Contiguous>);
  CheckGradient<f::ContiguousBackward>({mixed}, shape, Unary<f::ContiguousBackward>);
  CheckGradient<f::Neg>({mixed}, shape, Unary<f::Neg>);
  CheckGradient<f::Reciprocal>({mixed}, shape, Unary<f::Reciprocal>);
  CheckGradient<f::Sin>({mixed}, shape, Unary<f::Sin>);
  CheckGradient<f::Relu>({mixed}, shape, Unary<f::Relu>);
  CheckGradient<f::Log>({positive}, shape, Unary<f::Log>);
  CheckGradient<f::Exp>({mixed}, shape, Unary<f::Exp>);
  CheckGradient<f::Sqrt>({positive}, shape, Unary<f::Sqrt>);
  CheckGradient<f::Sigmoid>({mixed}, shape, Unary<f::Sigmoid>);
  CheckGradient<f::Sign>({mixed}, shape, Unary<f::Sign>);
}

TEST_F(FunctionsTest, UnaryValuesAreTheClosedForms) {
  const Values xs = {-1.5, 0.25, 3, -0.75, 2, -3};
  const auto expect = [&](const Values& got, double (*form)(double)) {
    Values want;
    for (double x : xs) want.push_back(form(x));
    ExpectSame(got, want, 1e-14);
  };
  const LazyBuffer x = Vector(xs);
  expect(Read(f::Neg().Forward(x)), [](double v) { return -v; });
  expect(Read(f::Reciprocal().Forward(x)), [](double v) { return 1 / v; });
  expect(Read(f::Sin().Forward(x)), [](double v) { return std::sin(v); });
  expect(Read(f::Relu().Forward(x)), [](double v) { return std::max(v, 0.0); });
  expect(Read(f::Log().Forward(x)), [](double v) { return std::log(v); });
  expect(Read(f::Exp().Forward(x)), [](double v) { return std::exp(v); });
  expect(Read(f::Sqrt().Forward(x)), [](double v) { return std::sqrt(v); });
  expect(Read(f::Sigmoid().Forward(x)), [](double v) { return 1 / (1 + std::exp(-v)); });
  expect(Read(f::Sign().Forward(x)), [](double v) { return v < 0 ? -1.0 : 1.0; });
}

TEST_F(FunctionsTest, BinaryGradientsAreThoseOfDifferences) {
  const Values x = {-1.5, 0.25, 3, -0.75, 2, -3};
  const Values y = {0.5, -2, 1.25, 3, -0.5, 4};
  const Shape shape = {3, 2};
  CheckGradient<f::Add>({x, y}, shape, Binary<f::Add>);
  CheckGradient<f::Sub>({x, y}, shape, Binary<f::Sub>);
  CheckGradient<f::Mul>({x, y}, shape, Binary<f::Mul>);
  CheckGradient<f::Div>({x, y}, shape, Binary<f::Div>);
}

TEST_F(FunctionsTest, BinaryValuesAreTheClosedForms) {
  const LazyBuffer x = Vector({-1.5, 0.25, 3});
  const LazyBuffer y = Vector({0.5, -2, 3});
  ExpectSame(Read(f::Add().Forward(x, y)), {-1, -1.75, 6}, 0);
  ExpectSame(Read(f::Sub().Forward(x, y)), {-2, 2.25, 0}, 0);
  ExpectSame(Read(f::Mul().Forward(x, y)), {-0.75, -0.5, 9}, 0);
  ExpectSame(Read(f::Div().Forward(x, y)), {-3, -0.125, 1}, 1e-15);
  ExpectSame(Read(f::Less().Forward(x, y)), {1, 0, 0}, 0);
  ExpectSame(Read(f::Eq().Forward(x, y)), {0, 0, 1}, 0);
  ExpectSame(Read(f::Neq().Forward(x, y)), {1, 1, 0}, 0);
  const LazyBuffer i = Vector({-7, 12, 5}, Scalar::kInt32);
  const LazyBuffer j = Vector({2, 10, 0}, Scalar::kInt32);
  ExpectSame(Read(f::Xor().Forward(i, j)), {-7 ^ 2, 12 ^ 10, 5}, 0);
  ExpectSame(Read(f::BitwiseAnd().Forward(i, j)), {-7 & 2, 12 & 10, 0}, 0);
  ExpectSame(Read(f::BitwiseOr().Forward(i, j)), {-7 | 2, 12 | 10, 5}, 0);
  ExpectSame(Read(f::IDiv().Forward(i, j)), {-3, 1, 0}, 0);
  ExpectSame(Read(f::Div().Forward(i, j)), {-3, 1, 0}, 0);
  const LazyBuffer p = Vector({0, 0, 1, 1}, Scalar::kBool);
  const LazyBuffer q = Vector({0, 1, 0, 1}, Scalar::kBool);
  ExpectSame(Read(f::Xor().Forward(p, q)), {0, 1, 1, 0}, 0);
  ExpectSame(Read(f::Neg().Forward(p)), {1, 1, 0, 0}, 0);
}

TEST_F(FunctionsTest, ThreefryIsThePublishedCipher) {
  // threefry2x32 of 20 rounds, key 0, counter 0 (Random123's known answers): 6b200159 99ba4efe.
  const LazyBuffer zero = Vector({0}, Scalar::kUint64);
  const LazyBuffer bits = f::Threefry().Forward(zero, zero);
  EXPECT_EQ(bits.dtype(), Scalar::kUint64);
  const LazyBuffer low = bits.Alu(Op::kAnd, bits.ConstLike(0xffffffff)).Cast(Scalar::kUint32);
  EXPECT_EQ(Read(low)[0], 0x6b200159);
}

TEST_F(FunctionsTest, ReductionGradientsAreThoseOfDifferences) {
  const Values x = {-1.5, 0.25, 3, -0.75, 2, -3.5, 1, 0.5, -0.1, 0.9, 1.1, -2};
  const Shape shape = {2, 3, 2};
  for (const std::vector<int>& axes :
       std::vector<std::vector<int>>{{0}, {1}, {2}, {0, 2}, {0, 1, 2}, {}}) {
    CheckGradient<f::Sum>({x}, shape,
                          [&](f::Sum& s, const Inputs& in) { return s.Forward(in[0], axes); });
    CheckGradient<f::Prod>({x}, shape,
                           [&](f::Prod& s, const Inputs& in) { return s.Forward(in[0], axes); });
    CheckGradient<f::Max>({x}, shape,
                          [&](f::Max& s, const Inputs& in) { return s.Forward(in[0], axes); });
  }
}

TEST_F(FunctionsTest, MovementGradientsAreThoseOfDifferences) {
  const Values x = {-1.5, 0.25, 3, -0.75, 2, -3};
  CheckGradient<f::Expand>({x}, {2, 1, 3}, [](f::Expand& e, const Inputs& in) {
    return e.Forward(in[0], {2, 4, 3});
  });
  CheckGradient<f::Reshape>({x}, {2, 3}, [](f::Reshape& r, const Inputs& in) {
    return r.Forward(in[0], {3, 2});
  });
  CheckGradient<f::Permute>({x}, {1, 2, 3}, [](f::Permute& p, const Inputs& in) {
    const std::vector<int> order = {2, 0, 1};
    return p.Forward(in[0], order);
  });
  CheckGradient<f::Pad>({x}, {2, 3}, [](f::Pad& p, const Inputs& in) {
    const std::vector<std::pair<SInt, SInt>> amounts = {{1, 0}, {2, 3}};
    return p.Forward(in[0], amounts);
  });
  CheckGradient<f::Shrink>({x}, {2, 3}, [](f::Shrink& s, const Inputs& in) {
    const std::vector<std::pair<SInt, SInt>> ranges = {{1, 2}, {0, 2}};
    return s.Forward(in[0], ranges);
  });
  CheckGradient<f::Flip>({x}, {2, 3}, [](f::Flip& s, const Inputs& in) {
    const std::vector<int> axes = {1};
    return s.Forward(in[0], axes);
  });
}

TEST_F(FunctionsTest, MovementMoves) {
  const LazyBuffer x = Make({1, 2, 3, 4, 5, 6}, {2, 3});
  const std::vector<int> order = {1, 0};
  ExpectSame(Read(f::Permute().Forward(x, order)), {1, 4, 2, 5, 3, 6}, 0);
  const std::vector<int> axes = {0};
  ExpectSame(Read(f::Flip().Forward(x, axes)), {4, 5, 6, 1, 2, 3}, 0);
  const std::vector<std::pair<SInt, SInt>> amounts = {{1, 0}, {0, 1}};
  ExpectSame(Read(f::Pad().Forward(x, amounts)), {0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0}, 0);
  const std::vector<std::pair<SInt, SInt>> ranges = {{0, 2}, {1, 3}};
  ExpectSame(Read(f::Shrink().Forward(x, ranges)), {2, 3, 5, 6}, 0);
  ExpectSame(Read(f::Expand().Forward(Make({1, 2}, {1, 2}), {2, 2})), {1, 2, 1, 2}, 0);
}

TEST_F(FunctionsTest, WhereSendsTheGradientToTheArmTaken) {
  const LazyBuffer condition = Vector({1, 0, 1}, Scalar::kBool);
  const LazyBuffer x = Vector({1, 2, 3});
  const LazyBuffer y = Vector({4, 5, kNan});
  f::Where where;
  ExpectSame(Read(where.Forward(condition, x, y)), {1, 5, 3}, 0);
  const f::Gradients gradients = where.Backward(Vector({10, 20, kInf}));
  ASSERT_TRUE(gradients.ok());
  EXPECT_FALSE((*gradients)[0]);
  ExpectSame(Read((*gradients)[1]), {10, 0, kInf}, 0);
  ExpectSame(Read((*gradients)[2]), {0, 20, 0}, 0);
}

TEST_F(FunctionsTest, AnInputThatNeedsNoneGetsNoGradient) {
  const LazyBuffer x = Vector({1, 2});
  const LazyBuffer y = Vector({3, 5});
  f::Mul mul;
  mul.needs_input_grad = {false, true};
  mul.Forward(x, y);
  const f::Gradients gradients = mul.Backward(Vector({1, 1}));
  ASSERT_TRUE(gradients.ok());
  EXPECT_FALSE((*gradients)[0]);
  ExpectSame(Read((*gradients)[1]), {1, 2}, 0);
}

TEST_F(FunctionsTest, ComparisonsGiveNoGradient) {
  const LazyBuffer x = Vector({1, 2});
  f::Less less;
  f::Eq eq;
  f::Neq neq;
  less.Forward(x, x);
  eq.Forward(x, x);
  neq.Forward(x, x);
  for (const Function* function : std::initializer_list<const Function*>{&less, &eq, &neq}) {
    const f::Gradients gradients = function->Backward(Vector({1, 1}, Scalar::kBool));
    ASSERT_TRUE(gradients.ok());
    ASSERT_EQ(gradients->size(), 2u);
    EXPECT_FALSE((*gradients)[0]);
    EXPECT_FALSE((*gradients)[1]);
  }
}

TEST_F(FunctionsTest, BitAndIntegerOperationsRefuse) {
  const LazyBuffer x = Vector({1, 2}, Scalar::kInt32);
  f::Xor bitwise_xor;
  f::BitwiseAnd bitwise_and;
  f::BitwiseOr bitwise_or;
  f::IDiv idiv;
  f::Threefry threefry;
  f::Div div;
  div.Forward(x, x);
  f::Cast bitcast;
  bitcast.Forward(x, Scalar::kFloat32, /*bitcast=*/true);
  for (const Function* function : std::initializer_list<const Function*>{
           &bitwise_xor, &bitwise_and, &bitwise_or, &idiv, &threefry, &div, &bitcast}) {
    const f::Gradients gradients = function->Backward(x);
    EXPECT_EQ(gradients.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(gradients.status().message()),
                HasSubstr(std::string(function->name())));
  }
}

TEST_F(FunctionsTest, CastsGoBackTheWayTheyCame) {
  f::Cast widen;
  const LazyBuffer half = Vector({1.5, -2}, Scalar::kFloat16);
  EXPECT_EQ(widen.Forward(half, Scalar::kFloat32).dtype(), Scalar::kFloat32);
  const f::Gradients gradients = widen.Backward(Vector({0.1, 1e-9}, Scalar::kFloat32));
  ASSERT_TRUE(gradients.ok());
  EXPECT_EQ((*gradients)[0].dtype(), Scalar::kFloat16);
  ExpectSame(Read((*gradients)[0]), {0.0999755859375, 0}, 0);
  f::Cast integer;
  integer.Forward(Vector({7}, Scalar::kInt32), Scalar::kFloat32);
  ExpectSame(Read((*integer.Backward(Vector({1.75}, Scalar::kFloat32)))[0]), {1}, 0);
  f::Cast bits;
  ExpectSame(Read(bits.Forward(Vector({1}, Scalar::kFloat32), Scalar::kInt32, true)), {0x3f800000},
             0);
}

// The table of engine/autograd/README.md.
TEST_F(FunctionsTest, EdgesOfUnaryFunctions) {
  const Values xs = {0, kNan, kInf, -kInf, -1};
  const auto check = [&](const std::pair<Values, Values>& got, const Values& values,
                         const Values& gradients) {
    ExpectSame(got.first, values);
    ExpectSame(got.second, gradients);
  };
  {
    SCOPED_TRACE("Reciprocal");
    check(At<f::Reciprocal>(xs), {kInf, kNan, 0, 0, -1}, {-kInf, kNan, 0, 0, -1});
  }
  {
    SCOPED_TRACE("Sin");
    check(At<f::Sin>(xs), {0, kNan, kNan, kNan, std::sin(-1)}, {1, kNan, kNan, kNan, std::cos(-1)});
  }
  {
    SCOPED_TRACE("Relu");
    check(At<f::Relu>(xs), {0, kNan, kInf, 0, 0}, {0, 0, 1, 0, 0});
  }
  {
    SCOPED_TRACE("Log");
    check(At<f::Log>(xs), {-kInf, kNan, kInf, kNan, kNan}, {kInf, kNan, 0, 0, -1});
  }
  {
    SCOPED_TRACE("Exp");
    check(At<f::Exp>(xs), {1, kNan, kInf, 0, std::exp(-1)}, {1, kNan, kInf, 0, std::exp(-1)});
  }
  {
    SCOPED_TRACE("Sqrt");
    check(At<f::Sqrt>(xs), {0, kNan, kInf, kNan, kNan}, {kInf, kNan, 0, kNan, kNan});
  }
  {
    SCOPED_TRACE("Sigmoid");
    const double at = 1 / (1 + std::exp(1.0));
    check(At<f::Sigmoid>(xs), {0.5, kNan, 1, 0, at}, {0.25, kNan, 0, 0, at * (1 - at)});
  }
  {
    SCOPED_TRACE("Sign");
    check(At<f::Sign>(xs), {0, 1, 1, -1, -1}, {0, 0, 0, 0, 0});
  }
}

TEST_F(FunctionsTest, EdgesOfBinaryFunctions) {
  const LazyBuffer x = Vector({0, 0, kInf, kNan, 1});
  const LazyBuffer y = Vector({0, kInf, kInf, 1, 0});
  ExpectSame(Read(f::Add().Forward(x, y)), {0, kInf, kInf, kNan, 1});
  ExpectSame(Read(f::Sub().Forward(x, y)), {0, -kInf, kNan, kNan, 1});
  ExpectSame(Read(f::Mul().Forward(x, y)), {0, kNan, kInf, kNan, 0});
  ExpectSame(Read(f::Div().Forward(x, y)), {kNan, 0, kNan, kNan, kInf});
  ExpectSame(Read(f::Less().Forward(x, y)), {0, 1, 0, 0, 0});
  ExpectSame(Read(f::Eq().Forward(x, y)), {1, 0, 1, 0, 0});
  ExpectSame(Read(f::Neq().Forward(x, y)), {0, 1, 0, 1, 1});
}

TEST_F(FunctionsTest, EdgesOfReductions) {
  const std::vector<int> axes = {1};
  const LazyBuffer x = Make({2, 0, 3, 2, 3, 3, kNan, 1, 2}, {3, 3});
  const LazyBuffer ones = Make({1, 1, 1}, {3, 1});
  f::Prod prod;
  ExpectSame(Read(prod.Forward(x, axes)), {0, 18, kNan});
  ExpectSame(Read((*prod.Backward(ones))[0]), {0, kNan, 0, 9, 6, 6, kNan, kNan, kNan});
  f::Max max;
  ExpectSame(Read(max.Forward(x, axes)), {3, 3, kNan});
  ExpectSame(Read((*max.Backward(ones))[0]), {0, 0, 1, 0, 0.5, 0.5, kNan, kNan, kNan});
  f::Sum sum;
  ExpectSame(Read(sum.Forward(x, axes)), {5, 8, kNan});
  ExpectSame(Read((*sum.Backward(ones))[0]), Values(9, 1));
}

TEST_F(FunctionsTest, ReductionsOfNothingAreTheIdentity) {
  const std::vector<int> axes = {1};
  const LazyBuffer nothing =
      LazyBuffer::Const(context_, ConstValue(0), {2, 0}, Scalar::kFloat32, "cpu:0");
  f::Sum sum;
  f::Prod prod;
  f::Max max;
  ExpectSame(Read(sum.Forward(nothing, axes)), {0, 0});
  ExpectSame(Read(prod.Forward(nothing, axes)), {1, 1});
  ExpectSame(Read(max.Forward(nothing, axes)), {-kInf, -kInf});
  const LazyBuffer ones = Make({1, 1}, {2, 1}, Scalar::kFloat32);
  for (const Function* function : std::initializer_list<const Function*>{&sum, &prod, &max}) {
    const f::Gradients gradients = function->Backward(ones);
    ASSERT_TRUE(gradients.ok());
    EXPECT_EQ((*gradients)[0].shape(), (Shape{2, 0}));
  }
}

TEST_F(FunctionsTest, ExpandAccumulatesWide) {
  // 4096 terms of 1 in float16 stop at 2048 when summed there.
  f::Expand expand;
  expand.Forward(Make({0}, {1}, Scalar::kFloat16), {4096});
  const f::Gradients gradients = expand.Backward(Vector(Values(4096, 1), Scalar::kFloat16));
  ASSERT_TRUE(gradients.ok());
  EXPECT_EQ((*gradients)[0].dtype(), Scalar::kFloat16);
  ExpectSame(Read((*gradients)[0]), {4096}, 0);
}

TEST_F(FunctionsTest, ShrinkTakesSymbolicBounds) {
  const UOp n = context_.Variable("n", 1, 4);
  ASSERT_TRUE(context_.Bind(n, 3).ok());
  const std::vector<std::pair<SInt, SInt>> ranges = {{0, SInt(n)}};
  f::Shrink shrink;
  const LazyBuffer part = shrink.Forward(Vector({1, 2, 3, 4}), ranges);
  EXPECT_EQ(part.shape()[0], SInt(n));
  f::Sum sum;
  const std::vector<int> axes = {0};
  const LazyBuffer total = sum.Forward(part, axes);
  ExpectSame(Read(total), {6}, 0);
  const f::Gradients of_part = sum.Backward(Make({2}, {1}));
  ASSERT_TRUE(of_part.ok());
  const f::Gradients gradients = shrink.Backward((*of_part)[0]);
  ASSERT_TRUE(gradients.ok());
  EXPECT_EQ((*gradients)[0].shape(), (Shape{4}));
  ExpectSame(Read((*gradients)[0]), {2, 2, 2, 0}, 0);
}

}  // namespace
}  // namespace beamd

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/tensor/both_realizers.h"

namespace beamd::testing {
namespace {

using ::testing::HasSubstr;
using Method = std::function<Tensor(const Tensor&)>;

struct UnaryCase {
  std::string name;
  Method method;
  std::function<double(double)> form;
  Values at;
  double tolerance = 3e-7;           // in float32
  double gradient_tolerance = 1e-7;  // against differences, in float64
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return std::log1p(std::exp(x)); }

const Values kMixed = {-3.25, -1.5, -0.75, -0.25, 0.25, 0.75, 1.25, 2.5, 6.5};
const Values kPositive = {0.05, 0.3, 0.7, 1, 1.9, 2.5, 7};
const Values kInside = {-0.9, -0.5, -0.1, 0.1, 0.3, 0.8};

std::vector<UnaryCase> UnaryCases() {
  const auto m = [](Tensor (Tensor::*method)() const) -> Method {
    return [method](const Tensor& t) { return (t.*method)(); };
  };
  return {
      {"neg", m(&Tensor::Neg), [](double x) { return -x; }, kMixed},
      {"reciprocal", m(&Tensor::Reciprocal), [](double x) { return 1 / x; }, kMixed},
      {"sin", m(&Tensor::Sin), [](double x) { return std::sin(x); }, kMixed},
      {"cos", m(&Tensor::Cos), [](double x) { return std::cos(x); }, kMixed, 6e-7},
      {"tan", m(&Tensor::Tan), [](double x) { return std::tan(x); }, kInside, 1e-6},
      {"asin", m(&Tensor::Asin), [](double x) { return std::asin(x); }, kInside, 1e-6, 1e-6},
      {"acos", m(&Tensor::Acos), [](double x) { return std::acos(x); }, kInside, 1e-6, 1e-6},
      {"atan", m(&Tensor::Atan), [](double x) { return std::atan(x); }, kMixed, 1e-6, 1e-6},
      {"log", m(&Tensor::Log), [](double x) { return std::log(x); }, kPositive},
      {"log2", m(&Tensor::Log2), [](double x) { return std::log2(x); }, kPositive, 6e-7},
      {"exp", m(&Tensor::Exp), [](double x) { return std::exp(x); }, kMixed, 2e-6},
      {"exp2", m(&Tensor::Exp2), [](double x) { return std::exp2(x); }, kMixed, 2e-6},
      {"sqrt", m(&Tensor::Sqrt), [](double x) { return std::sqrt(x); }, kPositive},
      {"rsqrt", m(&Tensor::Rsqrt), [](double x) { return 1 / std::sqrt(x); }, kPositive},
      {"square", m(&Tensor::Square), [](double x) { return x * x; }, kMixed},
      {"abs", m(&Tensor::Abs), [](double x) { return std::abs(x); }, kMixed},
      {"relu", m(&Tensor::Relu), [](double x) { return std::max(x, 0.0); }, kMixed},
      {"sigmoid", m(&Tensor::Sigmoid), Sigmoid, kMixed},
      {"hardsigmoid", [](const Tensor& t) { return t.Hardsigmoid(); },
       [](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }, kMixed},
      {"elu", [](const Tensor& t) { return t.Elu(1.5); },
       [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }, kMixed},
      {"celu", [](const Tensor& t) { return t.Celu(2); },
       [](double x) { return std::max(x, 0.0) + std::min(2 * std::expm1(x / 2), 0.0); }, kMixed},
      {"selu", [](const Tensor& t) { return t.Selu(); },
       [](double x) { return 1.0507 * (x >= 0 ? x : 1.67326 * std::expm1(x)); }, kMixed, 5e-7},
      {"swish", m(&Tensor::Swish), [](double x) { return x * Sigmoid(x); }, kMixed},
      {"silu", m(&Tensor::Silu), [](double x) { return x * Sigmoid(x); }, kMixed},
      {"relu6", m(&Tensor::Relu6), [](double x) { return std::clamp(x, 0.0, 6.0); }, kMixed},
      {"hardswish", m(&Tensor::Hardswish),
       [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }, kMixed, 5e-7},
      {"tanh", m(&Tensor::Tanh), [](double x) { return std::tanh(x); }, kMixed},
      {"sinh", m(&Tensor::Sinh), [](double x) { return std::sinh(x); }, kMixed, 2e-6},
      {"cosh", m(&Tensor::Cosh), [](double x) { return std::cosh(x); }, kMixed, 2e-6},
      {"atanh", m(&Tensor::Atanh), [](double x) { return std::atanh(x); }, kInside, 1e-6},
      {"asinh", m(&Tensor::Asinh), [](double x) { return std::asinh(x); }, kMixed, 2e-6},
      {"acosh", m(&Tensor::Acosh), [](double x) { return std::acosh(x); }, {1.5, 2, 7}, 1e-6},
      {"hardtanh", [](const Tensor& t) { return t.Hardtanh(); },
       [](double x) { return std::clamp(x, -1.0, 1.0); }, kMixed},
      {"erf", m(&Tensor::Erf), [](double x) { return std::erf(x); }, kMixed, 6e-7, 5e-6},
      {"gelu", m(&Tensor::Gelu),
       [](double x) {
         return 0.5 * x *
                (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
       },
       kMixed, 1e-6},
      {"quick_gelu", m(&Tensor::QuickGelu), [](double x) { return x * Sigmoid(1.702 * x); },
       kMixed},
      {"leakyrelu", [](const Tensor& t) { return t.LeakyRelu(); },
       [](double x) { return x > 0 ? x : 0.01 * x; }, kMixed},
      {"mish", m(&Tensor::Mish), [](double x) { return x * std::tanh(Softplus(x)); }, kMixed, 5e-7},
      {"softplus", [](const Tensor& t) { return t.Softplus(2); },
       [](double x) { return Softplus(2 * x) / 2; }, kMixed, 1e-6},
      {"softsign", m(&Tensor::Softsign), [](double x) { return x / (1 + std::abs(x)); }, kMixed},
      {"pow(3)", [](const Tensor& t) { return t.Pow(3); }, [](double x) { return x * x * x; },
       kMixed},
      {"pow(-2)", [](const Tensor& t) { return t.Pow(-2); }, [](double x) { return 1 / (x * x); },
       kMixed, 5e-7},
      {"pow(2.5)", [](const Tensor& t) { return t.Pow(2.5); },
       [](double x) { return std::pow(x, 2.5); }, kPositive, 5e-7},
      {"pow(0.5)", [](const Tensor& t) { return t.Pow(0.5); },
       [](double x) { return std::sqrt(x); }, kPositive},
      {"pow(0.3)", [](const Tensor& t) { return t.Pow(0.3); },
       [](double x) { return std::pow(x, 0.3); }, kPositive, 1e-6},
      {"2 ** x", [](const Tensor& t) { return t.Pow(2, true); },
       [](double x) { return std::exp2(x); }, kMixed, 2e-6},
      {"clamp", [](const Tensor& t) { return t.Clamp(-1, 2); },
       [](double x) { return std::clamp(x, -1.0, 2.0); }, kMixed},
      {"1 / x", [](const Tensor& t) { return 1 / t; }, [](double x) { return 1 / x; }, kMixed},
      {"1 - x", [](const Tensor& t) { return 1 - t; }, [](double x) { return 1 - x; }, kMixed},
  };
}

class ElementwiseTest : public BothRealizersTest {};
INSTANTIATE_TEST_SUITE_P(On, ElementwiseTest, Realizers(), RealizerName);

TEST_P(ElementwiseTest, UnaryMethodsAreTheirClosedForms) {
  for (const UnaryCase& c : UnaryCases()) {
    SCOPED_TRACE(c.name);
    Values want;
    for (double x : c.at) want.push_back(c.form(x));
    const Tensor result = c.method(Vector(c.at));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result.dtype(), Scalar::kFloat32);
    ExpectNear(Read(result), want, c.tolerance);
  }
}

TEST_P(ElementwiseTest, UnaryGradientsAreThoseOfDifferences) {
  for (const UnaryCase& c : UnaryCases()) {
    SCOPED_TRACE(c.name);
    CheckGradient(
        {c.at}, {{static_cast<int64_t>(c.at.size())}},
        [&](const std::vector<Tensor>& in) { return c.method(in[0]); }, c.gradient_tolerance);
  }
}

TEST_P(ElementwiseTest, BinaryGradientsAreThoseOfDifferencesUnderBroadcast) {
  const Values x = {-1.5, 0.25, 3, -0.75, 2, 1.25};
  const Values y = {0.5, 2, -1.75};
  const Values positive = {0.5, 2, 1.75, 0.25, 1.1, 3};
  const std::vector<Shape> shapes = {{2, 3}, {3}};
  using In = std::vector<Tensor>;
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0] + in[1]; });
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0] - in[1]; });
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0] * in[1]; });
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0] / in[1]; });
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0].Maximum(in[1]); });
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0].Minimum(in[1]); });
  CheckGradient({positive, y}, shapes, [](const In& in) { return in[0].Pow(in[1]); });
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0].Gt(0).Where(in[0], in[1]); });
  CheckGradient({x, y}, shapes, [](const In& in) { return in[0].Lerp(in[1], 0.3); });
  // Between the jumps.
  CheckGradient({x, {0.7, 2.3, -1.9}}, shapes, [](const In& in) { return in[0].Mod(in[1]); });
}

TEST_P(ElementwiseTest, RoundingFunctions) {
  const Values x = {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609, 3e9, -1e30, kInf, kNan};
  const Tensor t = Vector(x);
  const auto each = [&](double (*form)(double)) {
    Values want;
    for (double v : x) want.push_back(form(static_cast<float>(v)));
    return want;
  };
  ExpectNear(Read(t.Trunc()), each([](double v) { return std::trunc(v); }));
  ExpectNear(Read(t.Ceil()), each([](double v) { return std::ceil(v); }));
  ExpectNear(Read(t.Floor()), each([](double v) { return std::floor(v); }));
  ExpectNear(Read(t.Round()), each([](double v) { return std::nearbyint(v); }));
  const Tensor wide = Vector({5e9 + 0.5, -5e9 - 1.5}, Scalar::kFloat64);
  ExpectNear(Read(wide.Floor()), {5e9, -5e9 - 2});
  ExpectNear(Read(wide.Round()), {5e9, -5e9 - 2});
  ExpectNear(Read(Vector({7, -7}, Scalar::kInt32).Floor()), {7, -7});
}

TEST_P(ElementwiseTest, EdgesOfUnaryMethods) {
  const Tensor x = Vector({0, kNan, kInf, -kInf});
  ExpectNear(Read(x.Abs()), {0, kNan, kInf, kInf});
  ExpectNear(Read(x.Sign()), {0, 1, 1, -1});
  ExpectNear(Read(x.Isnan()), {0, 1, 0, 0});
  ExpectNear(Read(x.Isinf()), {0, 0, 1, 1});
  ExpectNear(Read(x.Isinf(true, false)), {0, 0, 1, 0});
  ExpectNear(Read(x.Isinf(false, true)), {0, 0, 0, 1});
  ExpectNear(Read(x.Relu()), {0, kNan, kInf, 0});
  ExpectNear(Read(x.Tanh()), {0, kNan, 1, -1});
  ExpectNear(Read(x.Erf()), {0, kNan, 1, -1}, 1e-6);
  ExpectNear(Read(x.Pow(0)), {1, 1, 1, 1});
  ExpectNear(Read(x.Pow(2)), {0, kNan, kInf, kInf});
  ExpectNear(Read(x.Pow(-1)), {kInf, kNan, 0, 0});
  ExpectNear(Read(x.LogicalNot()), {1, 0, 0, 0});
  ExpectNear(Read(x.Clamp(-1, std::nullopt)), {0, kNan, kInf, -1});
}

TEST_P(ElementwiseTest, EdgesOfBinaryMethods) {
  const Tensor x = Vector({0, kNan, 1, kInf, -kInf, 2});
  const Tensor y = Vector({0, 1, kNan, kInf, kInf, 1});
  ExpectNear(Read(x.Maximum(y)), {0, kNan, kNan, kInf, kInf, 2});
  ExpectNear(Read(x.Minimum(y)), {0, kNan, kNan, kInf, -kInf, 1});
  ExpectNear(Read(x.Lt(y)), {0, 0, 0, 0, 1, 0});
  ExpectNear(Read(x.Gt(y)), {0, 0, 0, 0, 0, 1});
  ExpectNear(Read(x.Le(y)), {1, 1, 1, 1, 1, 0});
  ExpectNear(Read(x.Ge(y)), {1, 1, 1, 1, 0, 1});
  ExpectNear(Read(x.Eq(y)), {1, 0, 0, 1, 0, 0});
  ExpectNear(Read(x.Ne(y)), {0, 1, 1, 0, 1, 1});
  ExpectNear(Read(x.Div(y)), {kNan, kNan, kNan, kNan, kNan, 2});
}

TEST_P(ElementwiseTest, TiesShareTheGradient) {
  Tensor x = Vector({1, 2, 3}).set_requires_grad(true);
  Tensor y = Vector({1, 3, 2}).set_requires_grad(true);
  ASSERT_TRUE(x.Maximum(y).Backward(Vector({1, 1, 1})).ok());
  ExpectNear(Read(x.grad()), {0.5, 0, 1});
  ExpectNear(Read(y.grad()), {0.5, 1, 0});
}

TEST_P(ElementwiseTest, PowersOfTensors) {
  const Tensor base = Vector({-2, -2, -2, 0, 0, 3, 2, -8});
  const Tensor exponent = Vector({2, 3, 0.5, 0, 2, -1, kInf, 1.0 / 3});
  ExpectNear(Read(base.Pow(exponent)), {4, -8, kNan, 1, 0, 1.0 / 3, kInf, kNan}, 1e-6);
  // A constant is taken as the number it is.
  const Tensor cube = Tensor::Full(context_, {}, 3.0);
  ExpectNear(Read(Vector({-2, 3}, Scalar::kInt32).Pow(cube)), {-8, 27});
  EXPECT_EQ(Vector({-2, 3}, Scalar::kInt32).Pow(cube).dtype(), Scalar::kInt32);
  EXPECT_EQ(Vector({4}, Scalar::kFloat16).Pow(Vector({0.5}, Scalar::kFloat16)).dtype(),
            Scalar::kFloat16);
  ExpectNear(Read(Vector({-1, 0.5, 2}).Pow(-2, true)), {-0.5, kNan, 4}, 1e-6);
  ExpectNear(Read(Vector({1, 0.5, -1}).Pow(1e300)), {1, 0, 1});
}

TEST_P(ElementwiseTest, IntegersStayExact) {
  const Tensor x = Vector({16777217, -7, 7, 7}, Scalar::kInt32);
  const Tensor y = Vector({16777217, 2, -2, 0}, Scalar::kInt32);
  ExpectNear(Read(x.Maximum(y)), {16777217, 2, 7, 7});
  ExpectNear(Read(x.Minimum(y)), {16777217, -7, -2, 0});
  ExpectNear(Read(x.Idiv(y)), {1, -3, -3, 0});
  ExpectNear(Read(x.Mod(y)), {0, 1, -1, 0});
  ExpectNear(Read(Vector({-7.5, 7.5, -7.5}).Mod(Vector({2, -2, -2}))), {0.5, -0.5, -1.5});
  const Tensor u = Vector({0, 5, 200}, Scalar::kUint8);
  ExpectNear(Read(u.Minimum(3)), {0, 3, 3});
  ExpectNear(Read(u.Mod(3)), {0, 2, 2});
  ExpectNear(Read(u.Lshift(1)), {0, 10, 144});
  ExpectNear(Read(u.Rshift(2)), {0, 1, 50});
  ExpectNear(Read(u.Lshift(8)), {0, 0, 0});
  ExpectNear(Read(u.Rshift(8)), {0, 0, 0});
  ExpectNear(Read(u.BitwiseNot()), {255, 250, 55});
  ExpectNear(Read(u.Neg()), {0, 251, 56});
  ExpectNear(Read(x.BitwiseAnd(6)), {0, 0, 6, 6});
  ExpectNear(Read(x.BitwiseOr(8)), {16777225, -7, 15, 15});
  ExpectNear(Read(x.Xor(-1)), {-16777218, 6, -8, -8});
  const Tensor b = Vector({1, 0}, Scalar::kBool);
  ExpectNear(Read(b.BitwiseNot()), {0, 1});
  ExpectNear(Read(b.Neg()), {0, 1});
  ExpectNear(Read(b.Add(b)), {1, 0});
  ExpectNear(Read(b.Add(1)), {2, 1});
  ExpectNear(Read(x.Div(2)), {8388608.5, -3.5, 3.5, 3.5}, 1e-7);
}

TEST_P(ElementwiseTest, LerpOfBytesKeepsTheWholeRange) {
  const Tensor x = Vector({0, 255, 10, 200}, Scalar::kUint8);
  const Tensor end = Vector({255, 0, 20, 100}, Scalar::kUint8);
  const Tensor half = Vector({0.5, 0.5, 0.5, 0.25});
  ExpectNear(Read(x.Lerp(end, half)), {128, 128, 15, 175});
}

TEST_P(ElementwiseTest, WhereTakesDtypesFromItsArms) {
  const Tensor condition = Make({1, 0}, {2, 1}, Scalar::kBool);
  const Tensor i = Vector({1, 2, 3}, Scalar::kInt32);
  EXPECT_EQ(condition.Where(i, 2.5).dtype(), Scalar::kFloat32);
  ExpectNear(Read(condition.Where(i, 2.5)), {1, 2, 3, 2.5, 2.5, 2.5});
  EXPECT_EQ(condition.Where(0, i).dtype(), Scalar::kInt32);
  ExpectNear(Read(condition.Where(0, i)), {0, 0, 0, 1, 2, 3});
  EXPECT_EQ(condition.Where(1, 0).dtype(), Scalar::kInt32);
  EXPECT_EQ(condition.Where(1.5, 0).dtype(), Scalar::kFloat32);
  ExpectNear(Read(Vector({0, 2, kNan}).Where(1, 0)), {0, 1, 1});
}

TEST_P(ElementwiseTest, CastsFollowSemantics) {
  ExpectNear(Read(Vector({1.9, -1.9, 3e9, kNan}).Int()), {1, -1, 2147483647, 0});
  ExpectNear(Read(Vector({0, 2, kNan}).Bool()), {0, 1, 1});
  ExpectNear(Read(Vector({300, -1}, Scalar::kInt32).Cast(Scalar::kUint8)), {44, 255});
  ExpectNear(Read(Vector({1, -2}).Bitcast(Scalar::kInt32)), {1065353216, -1073741824});
  const Tensor x = Vector({1});
  EXPECT_TRUE(x.Float().is(x));
  EXPECT_EQ(x.Half().dtype(), Scalar::kFloat16);
}

TEST_P(ElementwiseTest, BitcastsToAnotherSizeResizeTheLastAxis) {
  const Tensor words = Make({1, -2, 0x01020304, 0x7fffffff}, {2, 2}, Scalar::kInt32);
  const Tensor bytes = words.Bitcast(Scalar::kUint8);
  EXPECT_EQ(bytes.shape(), (Shape{2, 8}));
  ExpectNear(Read(bytes), {1, 0, 0, 0, 254, 255, 255, 255, 4, 3, 2, 1, 255, 255, 255, 127});
  ExpectNear(Read(bytes.Bitcast(Scalar::kInt32)), {1, -2, 0x01020304, 0x7fffffff});
  const Tensor halves = Vector({1, -2}).Bitcast(Scalar::kFloat16);
  EXPECT_EQ(halves.shape(), (Shape{4}));
  ExpectNear(Read(halves.Bitcast(Scalar::kFloat32)), {1, -2});
  ExpectNear(Read(words.Bitcast(Scalar::kInt64)),
             {-8589934591, static_cast<double>(0x7fffffff01020304)});
}

TEST_P(ElementwiseTest, ErrorsNameTheOperationAndTheReason) {
  const Tensor x = Make({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor y = Make({1, 2}, {2});
  const auto expect = [](const Tensor& t, absl::StatusCode code, const std::string& operation,
                         const std::string& why) {
    EXPECT_EQ(t.status().code(), code) << t.status();
    EXPECT_EQ(std::string(t.status().message()).substr(0, operation.size() + 1), operation + ":");
    EXPECT_THAT(std::string(t.status().message()), HasSubstr(why));
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::string shapes = "shapes (2, 3) and (2) do not broadcast";
  expect(x.Add(y), kInvalid, "add", shapes);
  expect(x.Sub(y), kInvalid, "sub", shapes);
  expect(x.Mul(y), kInvalid, "mul", shapes);
  expect(x.Div(y), kInvalid, "div", shapes);
  expect(x.Mod(y), kInvalid, "mod", shapes);
  expect(x.Pow(y), kInvalid, "pow", shapes);
  expect(x.Maximum(y), kInvalid, "maximum", shapes);
  expect(x.Minimum(y), kInvalid, "minimum", shapes);
  expect(x.Lt(y), kInvalid, "lt", shapes);
  expect(x.Ge(y), kInvalid, "ge", shapes);
  expect(x.Eq(y), kInvalid, "eq", shapes);
  expect(x.Where(1, y), kInvalid, "where", shapes);
  expect(x.Xor(1), kInvalid, "xor", "float32 is no integer");
  expect(x.BitwiseAnd(1), kInvalid, "bitwise_and", "float32");
  expect(x.BitwiseOr(1), kInvalid, "bitwise_or", "float32");
  expect(x.BitwiseNot(), kInvalid, "bitwise_not", "float32");
  expect(x.Idiv(2), kInvalid, "idiv", "float32 is no integer");
  expect(x.Int().Lshift(1), kInvalid, "lshift", "int32 is not unsigned");
  expect(x.Cast(Scalar::kUint8).Rshift(-1), kInvalid, "rshift", "by -1");
  expect(x.Bitcast(Scalar::kInt64), kInvalid, "bitcast", "the last axis of (2, 3) float32");
  expect(Tensor::Full(context_, {}, 1).Bitcast(Scalar::kInt8), kInvalid, "bitcast", "()");
  expect(x.Bool().Bitcast(Scalar::kInt8), kInvalid, "bitcast", "bool");
  expect(x.Cast(Scalar::kVoid), kInvalid, "cast", "void");
  expect(x.Clamp(std::nullopt, std::nullopt), kInvalid, "clamp", "no bounds");
  Tensor leaf = Vector({1}).set_requires_grad(true);
  expect(leaf.Bitcast(Scalar::kInt32), absl::StatusCode::kUnimplemented, "bitcast", "no gradient");
  LazyContext other;
  expect(x.Add(Tensor::Full(other, {}, 1.0)), kInvalid, "add", "different contexts");
  expect(x.Add(x.To("cpu:1")), kInvalid, "add", "one tensor is on cpu:0, one on cpu:1");
}

TEST_P(ElementwiseTest, AFailedTensorStaysFailed) {
  const Tensor failed = Vector({1, 2}).Add(Vector({1, 2, 3}));
  const std::string message(failed.status().message());
  for (const UnaryCase& c : UnaryCases()) {
    EXPECT_EQ(c.method(failed).status().message(), message) << c.name;
    EXPECT_EQ(c.method(Tensor()).status().code(), absl::StatusCode::kFailedPrecondition) << c.name;
  }
  const Tensor x = Vector({1, 2});
  for (const Tensor& t :
       {x.Add(failed), failed.Add(x), x.Pow(failed), x.Where(failed, 1), x.Where(1, failed),
        failed.Where(x, x), x.Maximum(failed), failed.Cast(Scalar::kInt8),
        failed.Bitcast(Scalar::kInt32), failed.Lshift(1), failed.Lerp(x, 0.5), x.Lerp(failed, 0.5),
        x.Mod(failed), failed.Contiguous(), failed.Detach(), failed.Clone(), failed.To("cpu:1"),
        failed.ZerosLike()}) {
    EXPECT_EQ(t.status().message(), message);
  }
  EXPECT_EQ(failed.Realize().message(), message);
  EXPECT_EQ(failed.ToVector<float>().status().message(), message);
  EXPECT_EQ(failed.Backward().message(), message);
}

TEST_P(ElementwiseTest, BroadcastsLikeNumpy) {
  const Tensor x = Make({1, 2, 3}, {3, 1});
  const Tensor y = Make({10, 20}, {1, 2});
  const Tensor sum = x + y;
  EXPECT_EQ(sum.shape(), (Shape{3, 2}));
  ExpectNear(Read(sum), {11, 21, 12, 22, 13, 23});
  const Tensor nothing = Tensor::Zeros(context_, {0, 2});
  EXPECT_EQ((nothing + y).shape(), (Shape{0, 2}));
  EXPECT_TRUE(Read(nothing + y).empty());
  EXPECT_FALSE((nothing + x).ok());
  EXPECT_EQ((Tensor::Full(context_, {}, 1.0) + x).shape(), (Shape{3, 1}));
}

}  // namespace
}  // namespace beamd::testing

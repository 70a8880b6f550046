#include "engine/uop/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/uop/buffer_use.h"
#include "engine/uop/text.h"
#include "engine/uop/verify.h"

namespace beamd {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

// The content of a buffer, as text of its elements would read.
std::string Floats(Scalar s, const std::vector<double>& values) {
  std::string bytes(values.size() * SizeBytes(s), '\0');
  for (size_t i = 0; i < values.size(); ++i) StoreFloat(values[i], s, &bytes[i * SizeBytes(s)]);
  return bytes;
}
std::string Ints(Scalar s, const std::vector<int64_t>& values) {
  std::string bytes(values.size() * SizeBytes(s), '\0');
  for (size_t i = 0; i < values.size(); ++i) StoreInt(values[i], s, &bytes[i * SizeBytes(s)]);
  return bytes;
}

struct Content {
  Scalar scalar;
  std::string bytes;
};

absl::StatusOr<std::vector<EvalValue>> RunKernel(absl::string_view text,
                                                 const std::vector<Content>& contents,
                                                 VariableValues variables = {}, uint64_t slot = 0) {
  UOpGraph graph;
  const absl::StatusOr<UOp> root = ParseText(text, graph);
  EXPECT_TRUE(root.ok()) << root.status();
  EvalInputs inputs;
  inputs.variables = std::move(variables);
  for (size_t i = 0; i < contents.size(); ++i) {
    const Scalar s = contents[i].scalar;
    const auto elements = static_cast<int64_t>(contents[i].bytes.size()) / SizeBytes(s);
    inputs.buffers[i] = {contents[i].bytes.data(), elements, s};
  }
  absl::StatusOr<Evaluator> evaluator = Evaluator::Create(*root, std::move(inputs));
  if (!evaluator.ok()) return evaluator.status();
  return evaluator->EvaluateAll(slot);
}

std::vector<double> Reals(const absl::StatusOr<std::vector<EvalValue>>& values) {
  EXPECT_TRUE(values.ok()) << values.status();
  std::vector<double> reals;
  for (const EvalValue& v : *values) reals.push_back(v.real);
  return reals;
}
std::vector<int64_t> Integers(const absl::StatusOr<std::vector<EvalValue>>& values) {
  EXPECT_TRUE(values.ok()) << values.status();
  std::vector<int64_t> integers;
  for (const EvalValue& v : *values) integers.push_back(v.integer);
  return integers;
}

// `result` = `op` of slots 1, 2, ..., an element each.
absl::StatusOr<std::vector<EvalValue>> Apply(absl::string_view op, Scalar result,
                                             std::vector<Content> operands) {
  const size_t count = operands[0].bytes.size() / SizeBytes(operands[0].scalar);
  std::string text =
      absl::StrCat("%0 = DEFINE_GLOBAL global ", Name(result), "* slot 0\n",
                   "%1 = VIEW void view[shape (", count, ") strides (1) offset 0]\n");
  std::string sources;
  for (size_t i = 0; i < operands.size(); ++i) {
    absl::StrAppend(&text, "%1", i, " = DEFINE_GLOBAL global ", Name(operands[i].scalar), "* slot ",
                    i + 1, "\n%2", i, " = LOAD ", Name(operands[i].scalar), " (%1", i, ", %1)\n");
    absl::StrAppend(&sources, i == 0 ? "" : ", ", "%2", i);
  }
  absl::StrAppend(&text, "%3 = ", op, " ", Name(result), " (", sources,
                  ")\n%4 = STORE void (%0, %1, %3)\n%5 = SINK void (%4)\n");
  operands.insert(operands.begin(), {result, std::string(count * SizeBytes(result), '\0')});
  return RunKernel(text, operands);
}

Content F32(const std::vector<double>& v) {
  return {Scalar::kFloat32, Floats(Scalar::kFloat32, v)};
}
Content F64(const std::vector<double>& v) {
  return {Scalar::kFloat64, Floats(Scalar::kFloat64, v)};
}
Content F16(const std::vector<double>& v) {
  return {Scalar::kFloat16, Floats(Scalar::kFloat16, v)};
}
Content I32(const std::vector<int64_t>& v) { return {Scalar::kInt32, Ints(Scalar::kInt32, v)}; }
Content U64(const std::vector<int64_t>& v) { return {Scalar::kUint64, Ints(Scalar::kUint64, v)}; }
Content Bools(const std::vector<int64_t>& v) { return {Scalar::kBool, Ints(Scalar::kBool, v)}; }

// ---- SEMANTICS, "Values" ----

TEST(Evaluator, IntegersWrapAndDivideByTruncating) {
  EXPECT_THAT(Integers(Apply("ADD", Scalar::kInt32, {I32({INT32_MAX, -5}), I32({1, 3})})),
              ElementsAre(INT32_MIN, -2));
  EXPECT_THAT(Integers(Apply("IDIV", Scalar::kInt32, {I32({-7, 7, INT32_MIN}), I32({2, 0, -1})})),
              ElementsAre(-3, 0, INT32_MIN));
  EXPECT_THAT(Integers(Apply("MOD", Scalar::kUint64, {U64({-1, 9}), U64({10, 0})})),
              ElementsAre(5, 0));
  EXPECT_THAT(Integers(Apply("THREEFRY", Scalar::kUint64, {U64({0}), U64({0})})),
              ElementsAre(static_cast<int64_t>(0x99ba4efe6b200159)));
}

TEST(Evaluator, FloatsRoundToTheirType) {
  EXPECT_THAT(Reals(Apply("ADD", Scalar::kFloat32, {F32({16777216}), F32({1})})),
              ElementsAre(16777216));
  EXPECT_THAT(Reals(Apply("ADD", Scalar::kFloat64, {F64({16777216}), F64({1})})),
              ElementsAre(16777217));
  EXPECT_THAT(Reals(Apply("ADD", Scalar::kFloat16, {F16({2048}), F16({1})})), ElementsAre(2048));
  EXPECT_THAT(Reals(Apply("MUL", Scalar::kFloat16, {F16({300}), F16({300})})), ElementsAre(kInf));
}

TEST(Evaluator, MaximumIsNaNIfEitherIsAndPrefersPositiveZero) {
  const auto values = Reals(Apply(
      "MAX", Scalar::kFloat32, {F32({kNaN, 1, -0.0, 0.0, -kInf}), F32({1, kNaN, 0.0, -0.0, -3})}));
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_FALSE(std::signbit(values[2]));
  EXPECT_FALSE(std::signbit(values[3]));
  EXPECT_EQ(values[4], -3);
}

TEST(Evaluator, ComparisonsWithNaN) {
  EXPECT_THAT(Integers(Apply("CMPLT", Scalar::kBool, {F32({kNaN, 1, 1}), F32({1, kNaN, 2})})),
              ElementsAre(0, 0, 1));
  EXPECT_THAT(Integers(Apply("CMPNE", Scalar::kBool, {F32({kNaN, kNaN, 1}), F32({1, kNaN, 1})})),
              ElementsAre(1, 1, 0));
}

TEST(Evaluator, SelectIgnoresTheOtherArm) {
  const auto values =
      Apply("WHERE", Scalar::kFloat32, {Bools({1, 0}), F32({2, kNaN}), F32({kInf, 3})});
  EXPECT_THAT(Reals(values), ElementsAre(2, 3));
  EXPECT_EQ((*values)[0].error, 0);
}

TEST(Evaluator, FloatIdentitiesKeepNaNAndInfinity) {
  EXPECT_TRUE(std::isnan(Reals(Apply("MUL", Scalar::kFloat32, {F32({kInf}), F32({0})}))[0]));
  EXPECT_TRUE(std::isnan(Reals(Apply("SUB", Scalar::kFloat32, {F32({kInf}), F32({kInf})}))[0]));
  EXPECT_TRUE(std::isnan(Reals(Apply("FDIV", Scalar::kFloat32, {F32({0}), F32({0})}))[0]));
}

TEST(Evaluator, FunctionsAreRoundedFromMore) {
  EXPECT_THAT(Reals(Apply("EXP2", Scalar::kFloat32, {F32({0.5, 10, -150, 128, -kInf})})),
              ElementsAre(std::exp2(0.5f), 1024, 0, kInf, 0));
  EXPECT_THAT(Reals(Apply("LOG2", Scalar::kFloat32, {F32({8, 0, kInf})})),
              ElementsAre(3, -kInf, kInf));
  EXPECT_THAT(Reals(Apply("SIN", Scalar::kFloat32, {F32({0.5, 1e6})})),
              ElementsAre(static_cast<float>(std::sin(0.5)), static_cast<float>(std::sin(1e6))));
  EXPECT_THAT(Reals(Apply("SQRT", Scalar::kFloat64, {F64({2})})), ElementsAre(std::sqrt(2.0)));
  EXPECT_THAT(Reals(Apply("RECIP", Scalar::kFloat32, {F32({3, -0.0})})),
              ElementsAre(1.0f / 3.0f, -kInf));
}

TEST(Evaluator, CastsSaturateAndWrap) {
  EXPECT_THAT(Integers(Apply("CAST", Scalar::kInt8, {F32({-1.9, 300, -1e9, kNaN, kInf})})),
              ElementsAre(-1, 127, -128, 0, 127));
  EXPECT_THAT(Integers(Apply("CAST", Scalar::kUint64, {F64({1e30, -1, 0x1p63})})),
              ElementsAre(-1, 0, INT64_MIN));
  EXPECT_THAT(Integers(Apply("CAST", Scalar::kBool, {F32({0, -0.0, kNaN, 1e-45})})),
              ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(Integers(Apply("CAST", Scalar::kInt8, {I32({300, -129})})), ElementsAre(44, 127));
  EXPECT_THAT(Reals(Apply("CAST", Scalar::kFloat32, {U64({-1, 16777217})})),
              ElementsAre(0x1p64, 16777216));
  EXPECT_THAT(Integers(Apply("BITCAST", Scalar::kInt32, {F32({1, -0.0})})),
              ElementsAre(0x3F800000, INT32_MIN));
  EXPECT_THAT(Reals(Apply("BITCAST", Scalar::kFloat32, {I32({0x40490FDB})})),
              ElementsAre(static_cast<float>(M_PI)));
}

// ---- memory ----

TEST(Evaluator, MaskedElementsReadAsZeroAndAreNotStored) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0 mask (0:3)]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (4) strides (1) offset -1 mask (1:4)]
%4 = LOAD float32 (%2, %3)
%5 = VALID bool (%3)
%6 = CAST float32 (%5)
%7 = ADD float32 (%4, %6)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8)
)";
  EXPECT_THAT(Reals(RunKernel(kText, {F32({7, 7, 7, 7, 7}), F32({10, 20, 30})})),
              ElementsAre(0, 11, 21, 7, 7));
}

TEST(Evaluator, LoadsOfAStoredSlotReadWhatWasThere) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (3) strides (1) offset 0]
%2 = LOAD int32 (%0, %1)
%3 = PRELOAD int32 (%0, %1)
%4 = ADD int32 (%2, %3)
%5 = ASSIGN int32 (%0, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6)
)";
  EXPECT_THAT(Integers(RunKernel(kText, {I32({1, 2, 3})})), ElementsAre(2, 4, 6));
}

TEST(Evaluator, EveryOutputHasItsValues) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (2,2) strides (2,1) offset 0]
%2 = VIEW void view[shape (2,2) strides (1,2) offset 0]
%3 = DEFINE_GLOBAL global int32* slot 1
%4 = DEFINE_GLOBAL global int32* slot 2
%5 = LOAD int32 (%4, %1)
%6 = STORE void (%0, %1, %5)
%7 = NEG int32 (%5)
%8 = STORE void (%3, %2, %7)
%9 = SINK void (%6, %8)
)";
  const std::vector<Content> contents = {I32({0, 0, 0, 0}), I32({0, 0, 0, 0}), I32({1, 2, 3, 4})};
  EXPECT_THAT(Integers(RunKernel(kText, contents, {}, 0)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Integers(RunKernel(kText, contents, {}, 1)), ElementsAre(-1, -3, -2, -4));
  EXPECT_THAT(Integers(RunKernel(kText, contents, {}, 2)), ElementsAre(1, 2, 3, 4));
}

TEST(Evaluator, StoresThroughAnyView) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void VIEWS
%2 = VIEW void view[shape (2,3) strides (3,1) offset 0]
%3 = DEFINE_GLOBAL global int32* slot 1
%4 = LOAD int32 (%3, %2)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5)
)";
  const auto run = [&](absl::string_view views) {
    return Integers(RunKernel(absl::StrReplaceAll(kText, {{"VIEWS", views}}),
                              {I32({0, 0, 0, 0, 0, 0, 0}), I32({1, 2, 3, 4, 5, 6})}));
  };
  EXPECT_THAT(run("view[shape (2,3) strides (3,1) offset 1]"), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(run("view[shape (2,3) strides (-3,-1) offset 6]"), ElementsAre(0, 6, 5, 4, 3, 2, 1));
  EXPECT_THAT(run("view[shape (2,3) strides (1,2) offset 0 mask (0:1,1:3)]"),
              ElementsAre(0, 0, 2, 0, 3, 0, 0));
  // Strides that no digits explain, and a chain.
  EXPECT_THAT(run("view[shape (2,3) strides (3,2) offset 0]"), ElementsAre(1, 0, 2, 4, 3, 5, 0));
  EXPECT_THAT(
      run("view[shape (3,2) strides (1,3) offset 0] view[shape (2,3) strides (3,1) offset 0]"),
      ElementsAre(1, 3, 5, 2, 4, 6, 0));
}

TEST(Evaluator, ImagesHoldNarrowerTexels) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL image(1,1,4) float16 slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = DEFINE_GLOBAL image(1,1,4) float16 slot 1
%3 = LOAD float32 (%2, %1)
%4 = CONST float32 1.0
%5 = ADD float32 (%3, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6)
)";
  EXPECT_THAT(Reals(RunKernel(kText, {F16({0, 0, 0, 0}), F16({1, 0.5, 2048, -1})})),
              ElementsAre(2, 1.5, 2048, 0));
}

// ---- reductions ----

constexpr absl::string_view kReduce =
    R"(%0 = DEFINE_GLOBAL global TYPE* slot 0
%1 = VIEW void view[shape (2,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global TYPE* slot 1
%3 = VIEW void view[shape (2,TERMS) strides (TERMS,1) offset 0]
%4 = LOAD TYPE (%2, %3)
%5 = REDUCE_AXIS TYPE (%4) OP axes (1)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6)
)";
absl::StatusOr<std::vector<EvalValue>> Reduce(absl::string_view op, Content terms) {
  const Scalar s = terms.scalar;
  const size_t n = terms.bytes.size() / SizeBytes(s) / 2;
  return RunKernel(
      absl::StrReplaceAll(kReduce, {{"TYPE", Name(s)}, {"TERMS", absl::StrCat(n)}, {"OP", op}}),
      {{s, std::string(2 * SizeBytes(s), '\0')}, std::move(terms)});
}

TEST(Evaluator, Reductions) {
  EXPECT_THAT(Reals(Reduce("ADD", F32({1, 2, 3, 4, 5, 6}))), ElementsAre(6, 15));
  EXPECT_THAT(Reals(Reduce("MUL", F32({1, 2, 3, 4, 5, 6}))), ElementsAre(6, 120));
  EXPECT_THAT(Reals(Reduce("MAX", F32({1, 3, 2, -6, -5, -4}))), ElementsAre(3, -4));
  EXPECT_THAT(Integers(Reduce("ADD", I32({INT32_MAX, 1, -1, -2}))), ElementsAre(INT32_MIN, -3));
  EXPECT_THAT(Integers(Reduce("MAX", I32({INT32_MIN, -7, 5, 4}))), ElementsAre(-7, 5));
  EXPECT_THAT(Integers(Reduce("MAX", U64({-1, 7, 5, 4}))), ElementsAre(-1, 5));
  EXPECT_THAT(Integers(Reduce("ADD", Bools({1, 1, 0, 0}))), ElementsAre(1, 0));
  EXPECT_THAT(Integers(Reduce("MUL", Bools({1, 1, 1, 0}))), ElementsAre(1, 0));
}

TEST(Evaluator, ReductionsOverNothingGiveTheIdentity) {
  EXPECT_THAT(Reals(Reduce("ADD", F32({}))), ElementsAre(0, 0));
  EXPECT_THAT(Reals(Reduce("MUL", F32({}))), ElementsAre(1, 1));
  EXPECT_THAT(Reals(Reduce("MAX", F32({}))), ElementsAre(-kInf, -kInf));
  EXPECT_THAT(Integers(Reduce("MAX", I32({}))), ElementsAre(INT32_MIN, INT32_MIN));
}

TEST(Evaluator, ReductionsKeepNaNAndInfinity) {
  const auto maximum = Reduce("MAX", F32({1, kNaN, 2, 3, 4, 5}));
  EXPECT_TRUE(std::isnan((*maximum)[0].real));
  EXPECT_FALSE((*maximum)[0].undecided);
  const auto sum = Reduce("ADD", F32({1, kInf, 2, kInf, -kInf, 5}));
  EXPECT_EQ((*sum)[0].real, kInf);
  EXPECT_FALSE((*sum)[0].undecided);
  EXPECT_TRUE(std::isnan((*sum)[1].real));
}

TEST(Evaluator, SumsThatMayOverflowInSomeOrderAreUndecided) {
  const auto sum = Reduce("ADD", F32({3e38, 3e38, -3e38, 3e38, 3e38, 3e38}));
  EXPECT_TRUE((*sum)[0].undecided);
  EXPECT_FALSE((*sum)[1].undecided);
  EXPECT_EQ((*sum)[1].real, kInf);
}

TEST(Evaluator, ReductionsOfReductions) {
  // The greatest row sum of each 2x3 matrix.
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (2,1,1) strides (1,0,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (2,2,3) strides (6,3,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = REDUCE_AXIS int32 (%4) ADD axes (2)
%6 = REDUCE_AXIS int32 (%5) MAX axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7)
)";
  EXPECT_THAT(
      Integers(RunKernel(kText, {I32({0, 0}), I32({1, 2, 3, 4, 5, 6, 9, 8, 7, -1, -2, -3})})),
      ElementsAre(15, 24));
}

TEST(Evaluator, SizesTakeTheirVariablesValues) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (1) strides (0) offset 0]
%2 = DEFINE_VAR int32 var "n" 1..8
%3 = DEFINE_GLOBAL global int32* slot 1
%4 = VIEW void (%2) view[shape ($0) strides (1) offset 0]
%5 = LOAD int32 (%3, %4)
%6 = MUL int32 (%5, %2)
%7 = REDUCE_AXIS int32 (%6) ADD axes (0)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8)
)";
  EXPECT_THAT(Integers(RunKernel(kText, {I32({0}), I32({1, 2, 3, 4})}, {{"n", 3}})),
              ElementsAre(18));
  EXPECT_EQ(RunKernel(kText, {I32({0}), I32({1, 2, 3, 4})}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// ---- SEMANTICS, "Equal" ----

double ErrorOf(const absl::StatusOr<std::vector<EvalValue>>& values) { return (*values)[0].error; }
constexpr double kU = 0x1p-24;

TEST(EvaluatorError, FollowsTheTableOnLeaves) {
  EXPECT_EQ(ErrorOf(Apply("ADD", Scalar::kFloat32, {F32({1.5}), F32({2})})), kU * 3.5);
  EXPECT_EQ(ErrorOf(Apply("MUL", Scalar::kFloat32, {F32({1.5}), F32({-2})})), kU * 3);
  EXPECT_EQ(ErrorOf(Apply("MUL", Scalar::kFloat64, {F64({1.5}), F64({-2})})), 0x1p-53 * 3);
  EXPECT_EQ(ErrorOf(Apply("MUL", Scalar::kFloat16, {F16({1.5}), F16({-2})})), 0x1p-11 * 3);
  EXPECT_EQ(ErrorOf(Apply("RECIP", Scalar::kFloat32, {F32({4})})), kU * 0.25);
  EXPECT_EQ(ErrorOf(Apply("SQRT", Scalar::kFloat32, {F32({4})})), kU * 2);
  EXPECT_EQ(ErrorOf(Apply("EXP2", Scalar::kFloat32, {F32({3})})), 4 * kU * 8);
  EXPECT_EQ(ErrorOf(Apply("LOG2", Scalar::kFloat32, {F32({8})})), 4 * kU * 3);
  EXPECT_EQ(ErrorOf(Apply("SIN", Scalar::kFloat32, {F32({0})})), 1e-7);
  EXPECT_EQ(ErrorOf(Apply("MAX", Scalar::kFloat32, {F32({0}), F32({2})})), 0);
  EXPECT_EQ(ErrorOf(Apply("NEG", Scalar::kFloat32, {F32({2})})), 0);
  EXPECT_EQ(ErrorOf(Apply("CAST", Scalar::kFloat32, {F64({3})})), kU * 3);
  EXPECT_EQ(ErrorOf(Apply("CAST", Scalar::kInt32, {F32({3})})), 0);
}

// `ops` applied to x = a sum of 1 and 1, whose error is 2u.
absl::StatusOr<std::vector<EvalValue>> OfTwo(absl::string_view ops) {
  return RunKernel(absl::StrCat("%0 = DEFINE_GLOBAL global float32* slot 0\n"
                                "%1 = VIEW void view[shape (1) strides (0) offset 0]\n"
                                "%2 = DEFINE_GLOBAL global float32* slot 1\n"
                                "%3 = LOAD float32 (%2, %1)\n%4 = ADD float32 (%3, %3)\n",
                                ops, "%9 = STORE void (%0, %1, %8)\n%10 = SINK void (%9)\n"),
                   {F32({0}), F32({1})});
}

TEST(EvaluatorError, PropagatesByTheTable) {
  const double e = 2 * kU;
  EXPECT_THAT(ErrorOf(OfTwo("%8 = ADD float32 (%4, %3)\n")), DoubleEq(e + kU * 3));
  EXPECT_THAT(ErrorOf(OfTwo("%8 = MUL float32 (%4, %4)\n")), DoubleEq(2 * 2 * e + e * e + kU * 4));
  EXPECT_THAT(ErrorOf(OfTwo("%8 = RECIP float32 (%4)\n")), DoubleEq(2 * e / 4 + kU / 2));
  EXPECT_THAT(ErrorOf(OfTwo("%8 = SQRT float32 (%4)\n")),
              DoubleEq(e / std::sqrt(2.0) + kU * static_cast<float>(std::sqrt(2.0))));
  EXPECT_THAT(ErrorOf(OfTwo("%8 = EXP2 float32 (%4)\n")),
              DoubleEq(4 * std::expm1(e * M_LN2) + 4 * kU * 4));
  EXPECT_THAT(ErrorOf(OfTwo("%8 = LOG2 float32 (%4)\n")), DoubleEq(2.9 * e / 2 + 4 * kU));
  EXPECT_THAT(ErrorOf(OfTwo("%8 = SIN float32 (%4)\n")),
              DoubleEq(e + 4 * kU * static_cast<float>(std::sin(2.0)) + 1e-7));
  EXPECT_THAT(ErrorOf(OfTwo("%8 = MAX float32 (%4, %3)\n")), DoubleEq(e));
  EXPECT_THAT(ErrorOf(OfTwo("%5 = CONST bool false\n%8 = WHERE float32 (%5, %4, %3)\n")),
              DoubleEq(0));
  EXPECT_THAT(ErrorOf(OfTwo("%5 = CONST bool true\n%8 = WHERE float32 (%5, %4, %3)\n")),
              DoubleEq(e));
}

TEST(EvaluatorError, SumsFollowTheTable) {
  const auto sum = Reduce("ADD", F32({3, 4, 1, 1}));
  EXPECT_THAT((*sum)[0].error, DoubleEq(kU * (4 + 2 * std::sqrt(2.0)) * (7 + 3 * 5)));
}

TEST(EvaluatorError, ComparisonsWithinTheErrorsAreUndecided) {
  // x is 2 with an error of 2u; 2 and the next float above it can't be told from it.
  EXPECT_TRUE(
      (*OfTwo("%5 = CONST float32 2.0\n%6 = CMPLT bool (%4, %5)\n%8 = CAST float32 (%6)\n"))[0]
          .undecided);
  EXPECT_TRUE(
      (*OfTwo("%5 = CONST float32 2.0\n%6 = CMPNE bool (%4, %5)\n%8 = CAST float32 (%6)\n"))[0]
          .undecided);
  EXPECT_FALSE(
      (*OfTwo("%5 = CONST float32 2.001\n%6 = CMPLT bool (%4, %5)\n%8 = CAST float32 (%6)\n"))[0]
          .undecided);
  // Operands without error decide.
  EXPECT_FALSE((*OfTwo("%6 = CMPLT bool (%3, %3)\n%8 = CAST float32 (%6)\n"))[0].undecided);
  EXPECT_TRUE((*OfTwo("%5 = CAST int32 (%4)\n%8 = CAST float32 (%5)\n"))[0].undecided);
  EXPECT_TRUE(
      (*OfTwo("%5 = CONST float32 -2.0\n%6 = ADD float32 (%4, %5)\n"
              "%7 = CAST bool (%6)\n%8 = CAST float32 (%7)\n"))[0]
          .undecided);
}

TEST(EvaluatorError, TheArmNotTakenDoesNotMatter) {
  // 1/(x-2) is unknown, but not asked for.
  constexpr absl::string_view kUnknown =
      "%5 = CONST float32 -2.0\n%6 = ADD float32 (%4, %5)\n%7 = RECIP float32 (%6)\n";
  EXPECT_TRUE((*OfTwo(absl::StrCat(kUnknown, "%8 = NEG float32 (%7)\n")))[0].undecided);
  EXPECT_FALSE((*OfTwo(
      absl::StrCat(kUnknown, "%20 = CONST bool false\n%8 = WHERE float32 (%20, %7, %3)\n")))[0]
                   .undecided);
}

TEST(EvaluatorError, InfinitiesAreCertainWhereTheyMustBe) {
  const auto of = [](absl::string_view op, double a, double b) {
    return (*Apply(op, Scalar::kFloat32, {F32({a}), F32({b})}))[0];
  };
  EXPECT_FALSE(of("MUL", 1e30, 1e30).undecided);  // far above the greatest float
  EXPECT_FALSE(of("ADD", kInf, 1).undecided);
  EXPECT_FALSE(of("MUL", kInf, 0).undecided);
  constexpr absl::string_view kAboutZero =
      "%5 = CONST float32 -2.0\n%6 = ADD float32 (%4, %5)\n%7 = CONST float32 inf\n";
  EXPECT_FALSE((*OfTwo(absl::StrCat(kAboutZero, "%8 = ADD float32 (%6, %7)\n")))[0].undecided);
  EXPECT_TRUE((*OfTwo(absl::StrCat(kAboutZero, "%8 = MUL float32 (%6, %7)\n")))[0].undecided);
  EXPECT_FALSE((*Apply("RECIP", Scalar::kFloat32, {F32({0})}))[0].undecided);
  EXPECT_FALSE((*Apply("LOG2", Scalar::kFloat32, {F32({-1})}))[0].undecided);
  EXPECT_TRUE(
      (*OfTwo("%5 = CONST float32 -2.0\n%6 = ADD float32 (%4, %5)\n"
              "%8 = LOG2 float32 (%6)\n"))[0]
          .undecided);
}

TEST(EvaluatorError, FunctionsOfWhatMayBeZeroOrNegativeAreUndecided) {
  // 2 with an error of 2u, and a little more, less 2 - 2u; and less 2 + 4u.
  for (const absl::string_view op : {"SQRT", "LOG2", "RECIP"}) {
    const auto of = [&](absl::string_view less) {
      return (*OfTwo(absl::StrCat("%5 = CONST float32 ", less,
                                  "\n%6 = ADD float32 (%4, %5)\n%8 = ", op, " float32 (%6)\n")))[0];
    };
    EXPECT_TRUE(of("-1.9999998807907104").undecided) << op;
    EXPECT_FALSE(of("-2.000000238418579").undecided) << op;
    EXPECT_FALSE(of("-1.9999997615814209").undecided) << op;
  }
  EXPECT_TRUE(
      (*OfTwo("%5 = CONST float32 -1.9999998807907104\n%6 = ADD float32 (%4, %5)\n"
              "%8 = FDIV float32 (%3, %6)\n"))[0]
          .undecided);
}

TEST(EvaluatorError, ShortProductsUnderASumMayBeExact) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1) strides (0) offset 0]
%2 = DEFINE_GLOBAL global float16* slot 1
%3 = VIEW void view[shape (4) strides (1) offset 0]
%4 = LOAD float16 (%2, %3)
%5 = MUL float16 (%4, %4)
%6 = CAST float32 (%5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (0)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8)
)";
  const std::vector<double> x = {1.0009765625, 0.10009765625, 0.0030002593994140625, 3.001953125};
  double exact = 0, rounded = 0;
  for (const double v : x) {
    exact += v * v;
    rounded += RoundToFloat(v * v, Scalar::kFloat16);
  }
  ASSERT_NE(static_cast<float>(exact), static_cast<float>(rounded));
  const EvalValue value = (*RunKernel(kText, {F32({0}), F16(x)}))[0];
  EXPECT_EQ(value.real, static_cast<float>(rounded));
  EXPECT_EQ(CompareFloat(static_cast<float>(exact), value), Comparison::kEqual);
  EXPECT_EQ(CompareFloat(static_cast<float>(exact * 1.01), value), Comparison::kDifferent);
  // What overflows a short float is finite exactly: nothing can be said.
  EXPECT_TRUE((*RunKernel(kText, {F32({0}), F16({300, 1, 1, 1})}))[0].undecided);
}

TEST(EvaluatorError, FactorsOfASumMayBeRoundedToTf32WhereThatIsAllowed) {
  UOpGraph graph;
  const UOp sink = *ParseText(R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1) strides (0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (2) strides (1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = MUL float32 (%4, %4)
%6 = REDUCE_AXIS float32 (%5) ADD axes (0)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7)
)",
                              graph);
  // Halfway between two neighbours of 10 bits.
  const double x = 1 + 0x1p-11, rounded = 1 + 0x1p-10;
  const std::string in = F32({x, 0}).bytes, out = F32({0}).bytes;
  for (const bool allowed : {false, true}) {
    EvalInputs inputs{
        .buffers = {{0, {out.data(), 1, Scalar::kFloat32}}, {1, {in.data(), 2, Scalar::kFloat32}}},
        .allow_tf32 = allowed};
    Evaluator evaluator = std::move(*Evaluator::Create(sink, std::move(inputs)));
    const EvalValue value = (*evaluator.EvaluateAll(0))[0];
    EXPECT_EQ(CompareFloat(x * x, value), Comparison::kEqual);
    EXPECT_EQ(CompareFloat(rounded * rounded, value),
              allowed ? Comparison::kEqual : Comparison::kDifferent);
    EXPECT_EQ(CompareFloat(1.01 * x * x, value), Comparison::kDifferent);
  }
}

TEST(Compare, IsWithinTwiceTheError) {
  EvalValue want{.scalar = Scalar::kFloat32, .real = 1, .error = 0.25};
  EXPECT_EQ(CompareFloat(1.5, want), Comparison::kEqual);
  EXPECT_EQ(CompareFloat(1.51, want), Comparison::kDifferent);
  EXPECT_EQ(CompareFloat(kNaN, want), Comparison::kDifferent);
  EXPECT_EQ(CompareFloat(kInf, want), Comparison::kDifferent);
  want.undecided = true;
  EXPECT_EQ(CompareFloat(77, want), Comparison::kUndecided);
}

TEST(Compare, NaNEqualsNaNAndInfinitiesBySign) {
  EXPECT_EQ(CompareFloat(kNaN, {.scalar = Scalar::kFloat32, .real = kNaN}), Comparison::kEqual);
  EXPECT_EQ(CompareFloat(1, {.scalar = Scalar::kFloat32, .real = kNaN}), Comparison::kDifferent);
  EXPECT_EQ(CompareFloat(kInf, {.scalar = Scalar::kFloat32, .real = kInf}), Comparison::kEqual);
  EXPECT_EQ(CompareFloat(-kInf, {.scalar = Scalar::kFloat32, .real = kInf}),
            Comparison::kDifferent);
  // A value at the greatest float may have been rounded up to infinity.
  const EvalValue greatest{.scalar = Scalar::kFloat32, .real = 3.4028234e38, .error = 1e32};
  EXPECT_EQ(CompareFloat(kInf, greatest), Comparison::kEqual);
  EXPECT_EQ(CompareFloat(-kInf, greatest), Comparison::kDifferent);
}

TEST(Compare, ElementsAreReadByTheirType) {
  const auto half = Floats(Scalar::kFloat16, {1.5});
  EXPECT_EQ(CompareElement(half.data(), {.scalar = Scalar::kFloat16, .real = 1.5}),
            Comparison::kEqual);
  const auto byte = Ints(Scalar::kInt8, {-3});
  EXPECT_EQ(CompareElement(byte.data(), {.scalar = Scalar::kInt8, .integer = -3}),
            Comparison::kEqual);
  EXPECT_EQ(CompareElement(byte.data(), {.scalar = Scalar::kInt8, .integer = -4}),
            Comparison::kDifferent);
}

// ---- the interface ----

constexpr absl::string_view kCopy =
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (3) strides (1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4)
)";

TEST(Evaluator, RefusesWhatItIsNotGiven) {
  EXPECT_THAT(RunKernel(kCopy, {F32({0, 0, 0})}).status().message(), HasSubstr("slot 1"));
  EXPECT_THAT(RunKernel(kCopy, {F32({0, 0, 0}), F64({0, 0, 0})}).status().message(),
              HasSubstr("holds float32, not float64"));
  EXPECT_EQ(RunKernel(kCopy, {F32({0, 0, 0}), F32({1, 2})}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(RunKernel(kCopy, {F32({0, 0, 0}), F32({1, 2, 3})}, {}, 9).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Evaluator, GivesChosenElements) {
  UOpGraph graph;
  const std::string in = Floats(Scalar::kFloat32, {1, 2, 3}), out(12, '\0');
  EvalInputs inputs;
  inputs.buffers[0] = {out.data(), 3, Scalar::kFloat32};
  inputs.buffers[1] = {in.data(), 3, Scalar::kFloat32};
  Evaluator evaluator = Evaluator::Create(ParseText(kCopy, graph).value(), inputs).value();
  const int64_t chosen[] = {2, 0, 2}, outside[] = {3};
  EXPECT_THAT(Reals(evaluator.Evaluate(0, chosen)), ElementsAre(3, 1, 3));
  EXPECT_EQ(evaluator.Evaluate(0, outside).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_GT(evaluator.WorkPerElement(0), 0);
  EXPECT_EQ(evaluator.WorkPerElement(1), 0);
}

TEST(Evaluator, AUniformBufferIsOneElement) {
  UOpGraph graph;
  const std::string one = Floats(Scalar::kFloat32, {7}), out(12, '\0');
  EvalInputs inputs;
  inputs.buffers[0] = {out.data(), 3, Scalar::kFloat32};
  inputs.buffers[1] = {one.data(), 3, Scalar::kFloat32, /*uniform=*/true};
  Evaluator evaluator = Evaluator::Create(ParseText(kCopy, graph).value(), inputs).value();
  EXPECT_THAT(Reals(evaluator.EvaluateAll(0)), ElementsAre(7, 7, 7));
  EXPECT_THAT(Reals(evaluator.EvaluateAll(1)), ElementsAre(7, 7, 7));
}

TEST(Evaluator, WorkCountsNodesTimesTerms) {
  UOpGraph graph;
  const std::string text =
      absl::StrReplaceAll(kReduce, {{"TYPE", "float32"}, {"TERMS", "1000"}, {"OP", "ADD"}});
  const std::string in(8000, '\0'), out(8, '\0');
  EvalInputs inputs;
  inputs.buffers[0] = {out.data(), 2, Scalar::kFloat32};
  inputs.buffers[1] = {in.data(), 2000, Scalar::kFloat32};
  EXPECT_EQ(Evaluator::Create(ParseText(text, graph).value(), inputs)->WorkPerElement(0), 1001);
}

TEST(Evaluator, BuffersAreAsLargeAsTheyAreUsed) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global int32* slot 5
%1 = VIEW void view[shape (4) strides (2) offset 1]
%2 = DEFINE_GLOBAL global float16* slot 1
%3 = VIEW void view[shape (4,3) strides (3,1) offset 0 mask (0:3,0:3)] view[shape (4) strides (2) offset 0]
%4 = LOAD float16 (%2, %3)
%5 = CAST int32 (%4)
%6 = DEFINE_GLOBAL global int32* slot 7 size 99
%7 = LOAD int32 (%6, %1)
%8 = ADD int32 (%5, %7)
%9 = STORE void (%0, %1, %8)
%10 = SINK void (%9)
)";
  UOpGraph graph;
  const auto uses = BufferUses(ParseText(kText, graph).value(), {});
  ASSERT_TRUE(uses.ok()) << uses.status();
  ASSERT_EQ(uses->size(), 3u);
  EXPECT_EQ((*uses)[0].slot, 1u);
  EXPECT_EQ((*uses)[0].elements, 7);
  EXPECT_TRUE((*uses)[0].loaded && !(*uses)[0].stored);
  EXPECT_EQ((*uses)[1].slot, 5u);
  EXPECT_EQ((*uses)[1].elements, 8);
  EXPECT_TRUE((*uses)[1].stored && !(*uses)[1].loaded);
  EXPECT_EQ((*uses)[2].elements, 99);
}

TEST(Evaluator, DeepGraphsDoNotOverflowTheStack) {
  UOpGraph graph;
  const UOp copy = ParseText(kCopy, graph).value();
  UOp value = copy.src(0).src(2);
  for (int i = 0; i < 19000; ++i) value = Alu(Op::kNeg, value);
  const UOp src[] = {copy.src(0).src(0), copy.src(0).src(1), value};
  const UOp sink = graph.Make(Op::kSink, DType(), {copy.src(0).WithSrc(src)});
  ASSERT_TRUE(VerifyKernel(sink).ok());
  const std::string in = Floats(Scalar::kFloat32, {1, 2, 3}), out(12, '\0');
  EvalInputs inputs;
  inputs.buffers[0] = {out.data(), 3, Scalar::kFloat32};
  inputs.buffers[1] = {in.data(), 3, Scalar::kFloat32};
  EXPECT_THAT(Reals(Evaluator::Create(sink, inputs)->EvaluateAll(0)), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace beamd

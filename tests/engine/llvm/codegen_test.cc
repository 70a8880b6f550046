#include "engine/llvm/codegen.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/match.h"
#include "engine/llvm/host.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> Iota(int64_t count, T first = T{}) {
  std::vector<T> v(count);
  for (int64_t i = 0; i < count; ++i) v[i] = static_cast<T>(first + static_cast<T>(i));
  return v;
}

// c[16,8] = a[16,12] x b[12,8], accumulated in `tile` rows of 8 lanes.
LinearProgram MatMul(ProgramBuilder& p, int rows) {
  const UOp c = p.Buffer(Scalar::kFloat32, 16 * 8, false, true);
  const UOp a = p.Buffer(Scalar::kFloat32, 16 * 12, true, false);
  const UOp b = p.Buffer(Scalar::kFloat32, 12 * 8, true, false);
  const UOp i = p.Range(16 / rows);
  const UOp zero = p.Float(0, DType(Scalar::kFloat32, 8));
  const UOp k = p.Range(12);
  std::vector<UOp> accs;
  accs.reserve(rows);
  for (int r = 0; r < rows; ++r) accs.push_back(p.Acc(zero, {k}));
  const UOp bv = p.Load(b, p.Alu(Op::kMul, k, p.Int(8)), 8, nullptr, 8);
  std::vector<UOp> sums;
  for (int r = 0; r < rows; ++r) {
    const UOp row = p.Alu(Op::kAdd, p.Alu(Op::kMul, i, p.Int(rows)), p.Int(r));
    const UOp av = p.Load(a, p.Alu(Op::kAdd, p.Alu(Op::kMul, row, p.Int(12)), k));
    sums.push_back(
        p.Assign(accs[r], p.Add(Op::kMulAcc, zero.dtype(), {p.Splat(av, 8), bv, accs[r]})));
  }
  p.End(k);
  for (int r = 0; r < rows; ++r) {
    const UOp row = p.Alu(Op::kAdd, p.Alu(Op::kMul, i, p.Int(rows)), p.Int(r));
    p.Store(c, p.Alu(Op::kMul, row, p.Int(8)), sums[r], nullptr, 8);
  }
  p.End(i);
  return p.Finish(i, 16 / rows);
}

TEST(CodeGenerator, AccumulatesInRegistersAndCutsSlices) {
  ProgramBuilder p;
  const LinearProgram program = MatMul(p, 4);
  const std::vector<float> a = Iota<float>(16 * 12), b = Iota<float>(12 * 8);
  std::vector<float> want(16 * 8, -1);
  for (int i = 4; i < 12; ++i) {
    for (int j = 0; j < 8; ++j) {
      want[i * 8 + j] = 0;
      for (int k = 0; k < 12; ++k) want[i * 8 + j] += a[i * 12 + k] * b[k * 8 + j];
    }
  }
  const auto got =
      RunProgram(program, {Bytes(std::vector<float>(16 * 8, -1)), Bytes(a), Bytes(b)}, {}, 1, 3);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(FromBytes<float>((*got)[0]), want);
}

TEST(CodeGenerator, KeepsVectorsAsVectors) {
  ProgramBuilder p;
  const auto generator = CodeGenerator::Create(HostCaps());
  ASSERT_TRUE(generator.ok()) << generator.status();
  std::string text;
  ASSERT_TRUE((*generator)->Generate(MatMul(p, 4), "opt", &text).ok());
  EXPECT_THAT(text, HasSubstr("phi <8 x float>"));
  EXPECT_FALSE(absl::StrContains(text, "alloca"));
}

TEST(CodeGenerator, IsDeterministic) {
  ProgramBuilder p, q, r, fresh;
  const auto generator = CodeGenerator::Create(HostCaps());
  ASSERT_TRUE(generator.ok()) << generator.status();
  const auto first = (*generator)->Generate(MatMul(p, 2));
  const auto other = (*generator)->Generate(MatMul(q, 4));
  const auto again = (*generator)->Generate(MatMul(r, 2));
  ASSERT_TRUE(first.ok() && other.ok() && again.ok());
  EXPECT_EQ(first->Hash(), again->Hash());
  // What a generator has compiled before leaves no trace.
  const auto generator2 = CodeGenerator::Create(HostCaps());
  EXPECT_EQ((*generator2)->Generate(MatMul(fresh, 4))->Hash(), other->Hash());
  EXPECT_NE(first->Hash(), other->Hash());
}

// sum over i < n of i * i for a variable n, and a nested reduction that shares an accumulator.
TEST(CodeGenerator, LoopsWithoutTurnsLeaveTheInitialValue) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt32, 2, false, true);
  const UOp n = p.Variable("n", 0, 10);
  const UOp hundred = p.Int(100);
  const UOp seven = p.Int(7);
  const UOp i = p.Range(n);
  const UOp acc = p.Acc(hundred, {i});
  const UOp sum = p.Assign(acc, p.Alu(Op::kAdd, acc, p.Alu(Op::kMul, i, i)));
  p.End(i);
  p.Store(out, p.Int(0), sum);
  const UOp j = p.Range(n);
  const UOp k = p.Range(n);
  const UOp nested = p.Acc(seven, {j, k});
  const UOp count = p.Assign(nested, p.Alu(Op::kAdd, nested, p.Alu(Op::kAdd, j, p.Int(1))));
  p.End(k);
  p.End(j);
  p.Store(out, p.Int(1), count);
  const LinearProgram program = p.Finish();
  for (const int64_t value : {0, 1, 4, 10}) {
    const auto got = RunProgram(program, {Bytes<int32_t>({-1, -1})}, {value});
    ASSERT_TRUE(got.ok()) << got.status();
    int32_t squares = 100, pairs = 7;
    for (int32_t q = 0; q < value; ++q) {
      squares += q * q;
      pairs += (q + 1) * static_cast<int32_t>(value);
    }
    EXPECT_THAT(FromBytes<int32_t>((*got)[0]), ElementsAre(squares, pairs)) << value;
  }
}

TEST(CodeGenerator, NoSliceMeansNothingRuns) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt32, 1, false, true);
  p.Store(out, p.Int(0), p.Int(5));
  const LinearProgram program = p.Finish();
  auto got = RunProgram(program, {Bytes<int32_t>({-1})}, {}, 0, 0);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(FromBytes<int32_t>((*got)[0]), ElementsAre(-1));
  got = RunProgram(program, {Bytes<int32_t>({-1})}, {}, 0, 1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(FromBytes<int32_t>((*got)[0]), ElementsAre(5));
}

// The masked element lies terabytes away: touching it would fault.
TEST(CodeGenerator, InvalidAccessesTouchNoMemory) {
  constexpr int64_t kFar = int64_t{1} << 40;
  for (const int lanes : {1, 4}) {
    ProgramBuilder p;
    const UOp out = p.Buffer(Scalar::kFloat32, 32, false, true);
    const UOp in = p.Buffer(Scalar::kFloat32, 32, true, false);
    const UOp i = p.Range(p.Int(32 / lanes, Scalar::kInt64));
    const UOp wide = p.Int(lanes, Scalar::kInt64);
    const UOp valid = p.Alu(Op::kCmpLt, i, p.Int(3, Scalar::kInt64));
    const UOp far = p.Where(valid, p.Int(0, Scalar::kInt64), p.Int(kFar, Scalar::kInt64));
    const UOp index = p.Alu(Op::kAdd, p.Alu(Op::kMul, i, wide), far);
    const UOp value = p.Load(in, index, lanes, valid);
    p.Store(out, p.Alu(Op::kMul, i, wide), value);
    p.Store(out, index, p.Alu(Op::kAdd, value, value), valid);
    p.End(i);
    const auto got = RunProgram(p.Finish(i, 32 / lanes),
                                {Bytes(std::vector<float>(32, -1)), Bytes(Iota<float>(32, 1))});
    ASSERT_TRUE(got.ok()) << got.status();
    std::vector<float> want(32, 0);
    for (int q = 0; q < 3 * lanes; ++q) want[q] = 2 * static_cast<float>(q + 1);
    EXPECT_EQ(FromBytes<float>((*got)[0]), want) << lanes;
  }
}

template <typename T>
void MasksSingleLanes(Scalar s) {
  ProgramBuilder p;
  const UOp out = p.Buffer(s, 8, false, true);
  const UOp in = p.Buffer(s, 4, true, false);
  // Lanes -2..5 of a buffer that has 0..3.
  std::vector<int64_t> inside = {0, 0, 1, 1, 1, 1, 0, 0};
  const UOp valid = p.Append(
      p.graph().Make(Op::kVConst, DType(Scalar::kBool, 8), {}, p.graph().Intern(LanesArg{inside})));
  const UOp value = p.Load(in, p.Int(-2), 8, valid);
  std::vector<int64_t> stored = {1, 1, 0, 1, 0, 1, 0, 0};
  const UOp where = p.Append(
      p.graph().Make(Op::kVConst, DType(Scalar::kBool, 8), {}, p.graph().Intern(LanesArg{stored})));
  p.Store(out, p.Int(0), value, where);
  const auto got =
      RunProgram(p.Finish(), {std::string(8 * sizeof(T), '\x7F'), Bytes(Iota<T>(4, T{1}))});
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<T> untouched = FromBytes<T>(std::string(8 * sizeof(T), '\x7F'));
  const std::vector<T> values = FromBytes<T>((*got)[0]);
  const std::vector<T> want = {T{0},         T{0}, untouched[2], T{2},
                               untouched[4], T{4}, untouched[6], untouched[7]};
  EXPECT_EQ(values, want) << Name(s);
}

TEST(CodeGenerator, MasksSingleLanesOfEveryWidth) {
  MasksSingleLanes<int8_t>(Scalar::kInt8);
  MasksSingleLanes<uint16_t>(Scalar::kUint16);
  MasksSingleLanes<uint16_t>(Scalar::kBFloat16);
  MasksSingleLanes<uint16_t>(Scalar::kFloat16);  // the values are sub-normals' bits
  MasksSingleLanes<float>(Scalar::kFloat32);
  MasksSingleLanes<double>(Scalar::kFloat64);
  MasksSingleLanes<int64_t>(Scalar::kInt64);
}

TEST(CodeGenerator, BuildsAndTakesVectorsApart) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt32, 8, false, true);
  const UOp in = p.Buffer(Scalar::kInt32, 8, true, false);
  const UOp all = p.Load(in, p.Int(0), 8, nullptr, 8);
  const UOp front = p.Gep(all, {3, 2, 1, 0});
  const UOp one = p.Gep(all, {7});
  const UOp pair = p.Gep(one, {0, 0});
  const DType eight(Scalar::kInt32, 8);
  p.Store(out, p.Int(0), p.Add(Op::kVectorize, eight, {one, front, p.Int(-5), pair}));
  const auto got = RunProgram(p.Finish(), {std::string(32, 0), Bytes(Iota<int32_t>(8, 10))});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(FromBytes<int32_t>((*got)[0]), ElementsAre(17, 13, 12, 11, 10, -5, 17, 17));
}

// Carried in 64 bits, yet as if in their own type: bounds decide, and beyond them it wraps.
TEST(CodeGenerator, IndexArithmeticWrapsWhereItsBoundsSay) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt32, 6 * 5, false, true);
  const UOp i = p.Range(5);
  const UOp big = p.Alu(Op::kMul, i, p.Int(1000000000));  // leaves int32 from i = 3 on
  const UOp below = p.Alu(Op::kSub, i, p.Int(3));         // -3..1
  const UOp row = p.Alu(Op::kMul, i, p.Int(6));
  const auto put = [&](int column, UOp value) {
    p.Store(out, p.Alu(Op::kAdd, row, p.Int(column)), value);
  };
  put(0, big);
  put(1, p.Alu(Op::kIdiv, below, p.Int(2)));
  put(2, p.Alu(Op::kMod, below, p.Int(2)));
  put(3, p.Alu(Op::kIdiv, p.Int(7), i));
  put(4, p.Alu(Op::kMax, below, p.Int(-1)));
  put(5, p.Add(Op::kCast, Scalar::kInt32, {p.Add(Op::kCast, Scalar::kUint8, {below})}));
  p.End(i);
  const auto got = RunProgram(p.Finish(i, 5), {std::string(6 * 5 * 4, 0)});
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<int32_t> values = FromBytes<int32_t>((*got)[0]);
  for (int32_t q = 0; q < 5; ++q) {
    const auto wrapped = static_cast<int32_t>(static_cast<uint32_t>(q) * 1000000000U);
    const std::vector<int32_t> want = {wrapped,
                                       (q - 3) / 2,
                                       (q - 3) % 2,
                                       q == 0 ? 0 : 7 / q,
                                       std::max(q - 3, -1),
                                       static_cast<uint8_t>(q - 3)};
    EXPECT_THAT(std::vector<int32_t>(values.begin() + q * 6, values.begin() + q * 6 + 6),
                ElementsAreArray(want))
        << q;
  }
}

TEST(CodeGenerator, RefusesBrokenPrograms) {
  {
    ProgramBuilder p;
    p.Range(4);
    EXPECT_THAT(RunProgram(p.Finish(), {}).status().message(), HasSubstr("never closed"));
  }
  {
    ProgramBuilder p;
    const UOp unlisted = p.graph().Const(Scalar::kInt32, 3);
    p.Alu(Op::kAdd, unlisted, unlisted);
    EXPECT_THAT(RunProgram(p.Finish(), {}).status().message(), HasSubstr("no value yet"));
  }
  {
    ProgramBuilder p;
    const UOp vector = p.Int(1, DType(Scalar::kInt32, 4));
    p.Alu(Op::kAdd, p.Int(1), vector);
    EXPECT_THAT(RunProgram(p.Finish(), {}).status().message(), HasSubstr("several lengths"));
  }
  {
    ProgramBuilder p;
    p.Alu(Op::kXor, p.Float(1), p.Float(2));
    EXPECT_THAT(RunProgram(p.Finish(), {}).status().message(), HasSubstr("no meaning on float32"));
  }
}

// An old CPU converts float16 by a library call, which no image may contain.
TEST(CodeGenerator, RefusesCodeThatCallsOutside) {
  TargetCaps old;
  old.arch = "x86-64";
  old.features = "-f16c";
  const auto generator = CodeGenerator::Create(old);
  ASSERT_TRUE(generator.ok()) << generator.status();
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kFloat32, 1, false, true);
  const UOp in = p.Buffer(Scalar::kFloat16, 1, true, false);
  p.Store(out, p.Int(0), p.Add(Op::kCast, Scalar::kFloat32, {p.Load(in, p.Int(0))}));
  const auto image = (*generator)->Generate(p.Finish());
  EXPECT_EQ(image.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(image.status().message(), HasSubstr("outside itself"));
}

TEST(CodeGenerator, DumpsWhatItIsAskedFor) {
  const auto generator = CodeGenerator::Create(HostCaps());
  ASSERT_TRUE(generator.ok()) << generator.status();
  ProgramBuilder p;
  const LinearProgram program = MatMul(p, 2);
  std::string ir, assembly;
  const auto image = (*generator)->Generate(program, "ir", &ir);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(ir, HasSubstr("define void @kernel(ptr"));
  const auto same = (*generator)->Generate(program, "asm", &assembly);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_THAT(assembly, HasSubstr(".globl\tkernel"));
  EXPECT_EQ(image->code, same->code);
}

}  // namespace
}  // namespace beamd

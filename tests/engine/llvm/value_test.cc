// Every op on every dtype, scalar and as vectors, against C++ that says the same slowly.
#include "engine/llvm/value.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

constexpr Scalar kInts[] = {Scalar::kBool,   Scalar::kInt8,   Scalar::kUint8,
                            Scalar::kInt16,  Scalar::kUint16, Scalar::kInt32,
                            Scalar::kUint32, Scalar::kInt64,  Scalar::kUint64};
constexpr Scalar kFloats[] = {Scalar::kFloat16, Scalar::kBFloat16, Scalar::kFloat32,
                              Scalar::kFloat64};
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t ReadInt(const std::string& bytes, Scalar s, size_t i) {
  uint64_t v = 0;
  std::memcpy(&v, bytes.data() + i * SizeBytes(s), SizeBytes(s));
  return s == Scalar::kBool ? static_cast<int64_t>(v) : WrapInt(static_cast<int64_t>(v), s);
}

// _Float16's and float's own conversions, and the definition of bfloat16.
double ReadFloat(const std::string& bytes, Scalar s, size_t i) {
  const char* p = bytes.data() + i * SizeBytes(s);
  uint32_t half = 0;
  float single = 0;
  double value = 0;
  switch (s) {
    case Scalar::kFloat16: {
      std::memcpy(&half, p, 2);
      const uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
      const double sign = (half & 0x8000) != 0 ? -1 : 1;
      if (exponent == 31) return mantissa != 0 ? kNan : sign * kInf;
      if (exponent == 0) return sign * std::ldexp(mantissa, -24);
      return sign * std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    }
    case Scalar::kBFloat16:
      std::memcpy(&half, p, 2);
      return std::bit_cast<float>(half << 16);
    case Scalar::kFloat32:
      std::memcpy(&single, p, 4);
      return single;
    default:
      std::memcpy(&value, p, 8);
      return value;
  }
}

void AppendFloat(std::string& bytes, Scalar s, double value) {
  if (s == Scalar::kFloat64) {
    bytes.append(reinterpret_cast<const char*>(&value), 8);
    return;
  }
  const auto single = static_cast<float>(RoundToFloat(value, s));
  const auto bits = std::bit_cast<uint32_t>(single);
  if (s == Scalar::kFloat32) {
    bytes.append(reinterpret_cast<const char*>(&bits), 4);
    return;
  }
  uint32_t half = bits >> 16;
  if (s == Scalar::kFloat16) {
    const double magnitude = std::abs(static_cast<double>(single));
    half = (bits >> 16) & 0x8000;
    if (std::isnan(single)) {
      half |= 0x7E00;
    } else if (std::isinf(single)) {
      half |= 0x7C00;
    } else if (magnitude < 0x1p-14) {
      half |= static_cast<uint32_t>(magnitude * 0x1p24);
    } else {
      const int e = std::ilogb(magnitude);
      half |= static_cast<uint32_t>(e + 15) << 10 |
              (static_cast<uint32_t>(std::ldexp(magnitude, 10 - e)) & 1023);
    }
  }
  bytes.append(reinterpret_cast<const char*>(&half), 2);
}

void AppendInt(std::string& bytes, Scalar s, int64_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), SizeBytes(s));
}

std::vector<int64_t> IntValues(Scalar s) {
  if (s == Scalar::kBool) return {0, 1};
  std::vector<int64_t> values = {0, 1, 2, 3, 5, 7, 31, 33, 63, 64, 100, -1, -2, -3, -5, -64, -100};
  for (int64_t i = 0; i < 2; ++i) {
    values.push_back(MinInt(s) + i);
    values.push_back(MaxInt(s) - i);
  }
  std::mt19937_64 random(Bits(s));
  for (int i = 0; i < 7; ++i) values.push_back(static_cast<int64_t>(random()));
  for (int64_t& v : values) v = WrapInt(v, s);
  return values;
}

std::vector<double> FloatValues(Scalar s) {
  std::vector<double> values = {0.0,  -0.0,   1,     -1,    2,     3,        0.5,    -0.7, 1e-3,
                                1e10, 1e30,   -1e30, 65504, 65519, 65520,    70000,  kInf, -kInf,
                                kNan, 5e-324, 1e-45, 6e-8,  1e-40, 1 + 1e-7, 2.0E-5, 127.5};
  for (double& v : values) v = RoundToFloat(v, s);
  return values;
}

// All pairs of `a` and `b` as two columns, padded to a multiple of 16.
template <typename T, typename Append>
std::pair<std::string, std::string> Pairs(const std::vector<T>& a, const std::vector<T>& b,
                                          Append append) {
  std::pair<std::string, std::string> columns;
  size_t count = 0;
  while (count < a.size() * b.size() || count % 16 != 0) {
    append(columns.first, a[count / b.size() % a.size()]);
    append(columns.second, b[count % b.size()]);
    ++count;
  }
  return columns;
}

int64_t IntReference(Op op, Scalar s, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool is_unsigned = !IsSigned(s);
  const int bits = Bits(s);
  switch (op) {
    case Op::kNeg:
      return WrapInt(static_cast<int64_t>(-ua), s);
    case Op::kAdd:
      return WrapInt(static_cast<int64_t>(ua + ub), s);
    case Op::kSub:
      return WrapInt(static_cast<int64_t>(ua - ub), s);
    case Op::kMul:
      return WrapInt(static_cast<int64_t>(ua * ub), s);
    case Op::kIdiv:
      if (b == 0) return 0;
      if (is_unsigned) return static_cast<int64_t>(ua / ub);
      return b == -1 ? WrapInt(static_cast<int64_t>(-ua), s) : a / b;
    case Op::kMod:
      if (b == 0) return 0;
      if (is_unsigned) return static_cast<int64_t>(ua % ub);
      return b == -1 ? 0 : a % b;
    case Op::kMax:
      return is_unsigned ? (ua < ub ? b : a) : std::max(a, b);
    case Op::kCmpLt:
      return is_unsigned ? ua < ub : a < b;
    case Op::kCmpNe:
      return a != b;
    case Op::kXor:
      return a ^ b;
    case Op::kOr:
      return a | b;
    case Op::kAnd:
      return a & b;
    case Op::kShl: {
      const bool out = b < 0 || b >= bits;
      return out ? 0 : WrapInt(static_cast<int64_t>(ua << ub), s);
    }
    case Op::kShr: {
      const bool out = b < 0 || b >= bits;
      if (out) return !is_unsigned && a < 0 ? -1 : 0;
      return is_unsigned ? static_cast<int64_t>(ua >> ub) : a >> b;
    }
    default:
      ADD_FAILURE() << Name(op);
      return 0;
  }
}

TEST(EmitAlu, IntegersWrapAndNeverTrap) {
  for (const Scalar s : kInts) {
    const auto [a, b] = Pairs(IntValues(s), IntValues(s),
                              [s](std::string& bytes, int64_t v) { AppendInt(bytes, s, v); });
    for (const Op op : {Op::kNeg, Op::kAdd, Op::kSub, Op::kMul, Op::kIdiv, Op::kMod, Op::kMax,
                        Op::kCmpLt, Op::kCmpNe, Op::kXor, Op::kOr, Op::kAnd, Op::kShl, Op::kShr}) {
      const bool unary = op == Op::kNeg;
      const Scalar result = kComparison.Has(op) ? Scalar::kBool : s;
      for (const int lanes : {1, 16}) {
        const auto got = unary ? MapElements(op, result, {s}, {a}, lanes)
                               : MapElements(op, result, {s, s}, {a, b}, lanes);
        ASSERT_TRUE(got.ok()) << Name(op) << " " << Name(s) << " " << got.status();
        for (size_t i = 0; i < a.size() / SizeBytes(s); ++i) {
          const int64_t x = ReadInt(a, s, i), y = ReadInt(b, s, i);
          ASSERT_EQ(ReadInt(*got, result, i), IntReference(op, s, x, y))
              << Name(op) << " of " << Name(s) << " " << x << ", " << y << ", " << lanes
              << " lanes";
        }
      }
    }
  }
}

double FloatReference(Op op, double a, double b) {
  switch (op) {
    case Op::kNeg:
      return -a;
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kFdiv:
      return a / b;
    case Op::kRecip:
      return 1 / a;
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kMax:
      if (std::isnan(a) || std::isnan(b)) return kNan;
      if (a == 0 && b == 0) return std::signbit(a) && std::signbit(b) ? -0.0 : 0.0;
      return std::max(a, b);
    case Op::kCmpLt:
      return a < b;
    case Op::kCmpNe:
      return a != b;
    default:
      ADD_FAILURE() << Name(op);
      return 0;
  }
}

bool Same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

TEST(EmitAlu, FloatsRoundOnceANode) {
  for (const Scalar s : kFloats) {
    const auto [a, b] = Pairs(FloatValues(s), FloatValues(s),
                              [s](std::string& bytes, double v) { AppendFloat(bytes, s, v); });
    for (const Op op : {Op::kNeg, Op::kAdd, Op::kSub, Op::kMul, Op::kFdiv, Op::kRecip, Op::kSqrt,
                        Op::kMax, Op::kCmpLt, Op::kCmpNe}) {
      const bool unary = kUnary.Has(op);
      const Scalar result = kComparison.Has(op) ? Scalar::kBool : s;
      for (const int lanes : {1, 16}) {
        const auto got = unary ? MapElements(op, result, {s}, {a}, lanes)
                               : MapElements(op, result, {s, s}, {a, b}, lanes);
        ASSERT_TRUE(got.ok()) << Name(op) << " " << Name(s) << " " << got.status();
        for (size_t i = 0; i < a.size() / SizeBytes(s); ++i) {
          const double x = ReadFloat(a, s, i), y = ReadFloat(b, s, i);
          // float64 holds these results exactly, or with bits enough that rounding twice is once.
          const double want = RoundToFloat(FloatReference(op, x, y), s);
          const double value = result == Scalar::kBool
                                   ? static_cast<double>(ReadInt(*got, result, i))
                                   : ReadFloat(*got, s, i);
          ASSERT_TRUE(Same(value, want))
              << Name(op) << " of " << Name(s) << " " << x << ", " << y << " is " << value
              << ", not " << want << ", " << lanes << " lanes";
        }
      }
    }
  }
}

// A relu: the constant decides which cheap form is right.
TEST(EmitAlu, MaxWithAConstant) {
  for (const double c : {0.0, -0.0, 1.5, -kInf, kNan}) {
    for (const int lanes : {1, 8}) {
      ProgramBuilder p;
      const std::vector<float> x = {0.0F, -0.0F, 1, -1, 2, NAN, INFINITY, -INFINITY};
      const UOp out = p.Buffer(Scalar::kFloat32, 8, false, true);
      const UOp in = p.Buffer(Scalar::kFloat32, 8, true, false);
      const UOp i = p.Range(8 / lanes);
      const UOp index = p.Alu(Op::kMul, i, p.Int(lanes));
      const UOp value = p.Load(in, index, lanes);
      p.Store(out, index, p.Alu(Op::kMax, value, p.Float(c, value.dtype())));
      p.End(i);
      const auto got = RunProgram(p.Finish(i, 8 / lanes), {std::string(32, 0), Bytes(x)});
      ASSERT_TRUE(got.ok()) << got.status();
      const std::vector<float> values = FromBytes<float>((*got)[0]);
      for (size_t q = 0; q < 8; ++q) {
        EXPECT_TRUE(Same(values[q], FloatReference(Op::kMax, x[q], c))) << x[q] << ", " << c;
      }
    }
  }
}

TEST(EmitAlu, ConstantDivisorsKeepTheMeaning) {
  for (const int64_t divisor : {0, 1, -1, 3, -7, 8}) {
    for (const Op op : {Op::kIdiv, Op::kMod}) {
      ProgramBuilder p;
      const std::vector<int32_t> x = {0, 7, -7, 100, -100, INT32_MIN, INT32_MAX, 8};
      const UOp out = p.Buffer(Scalar::kInt32, 8, false, true);
      const UOp in = p.Buffer(Scalar::kInt32, 8, true, false);
      const UOp value = p.Load(in, p.Int(0), 8);
      p.Store(out, p.Int(0), p.Alu(op, value, p.Int(divisor, value.dtype())));
      const auto got = RunProgram(p.Finish(), {std::string(32, 0), Bytes(x)});
      ASSERT_TRUE(got.ok()) << got.status();
      for (size_t q = 0; q < 8; ++q) {
        EXPECT_EQ(FromBytes<int32_t>((*got)[0])[q], IntReference(op, Scalar::kInt32, x[q], divisor))
            << Name(op) << " " << x[q] << ", " << divisor;
      }
    }
  }
}

TEST(EmitAlu, MulAccIsFused) {
  const float a = 1 + 0x1p-12F;
  const auto got = MapElements(Op::kMulAcc, Scalar::kFloat32,
                               {Scalar::kFloat32, Scalar::kFloat32, Scalar::kFloat32},
                               {Bytes<float>({a}), Bytes<float>({a}), Bytes<float>({-1})}, 1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(FromBytes<float>(*got)[0], std::fmaf(a, a, -1));
}

// What Random123 publishes for threefry2x32, 20 rounds (kat_vectors).
TEST(EmitAlu, ThreefryMatchesItsPublishedVectors) {
  const std::vector<uint64_t> counter = {0, ~uint64_t{0}, 0x85A308D3243F6A88};
  const std::vector<uint64_t> key = {0, ~uint64_t{0}, 0x0370734413198A2E};
  const auto got = MapElements(Op::kThreefry, Scalar::kUint64, {Scalar::kUint64, Scalar::kUint64},
                               {Bytes(counter), Bytes(key)}, 1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(FromBytes<uint64_t>(*got),
              ::testing::ElementsAre(0x99BA4EFE6B200159, 0xBB002BE71CB996FC, 0x483DF7A0C4923A9C));
}

int64_t SaturatedInt(double v, Scalar s) {
  if (std::isnan(v)) return 0;
  if (s == Scalar::kUint64) {
    if (v >= 0x1p64) return -1;
    return v <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(v));
  }
  if (v <= static_cast<double>(MinInt(s))) return MinInt(s);
  if (v >= static_cast<double>(MaxInt(s))) return MaxInt(s);
  return static_cast<int64_t>(v);
}

TEST(EmitCast, FloatToIntegerTruncatesAndSaturates) {
  for (const Scalar from : kFloats) {
    std::string in;
    std::vector<double> values = FloatValues(from);
    for (const double edge : {128.0, 256.0, 32768.0, 65536.0, 0x1p31, 0x1p32, 0x1p63, 0x1p64}) {
      for (const double v : {edge, -edge, edge * (1 - 0x1p-24), -edge - 1, edge - 1, 0.999}) {
        values.push_back(RoundToFloat(v, from));
      }
    }
    while (values.size() % 16 != 0) values.push_back(-0.5);
    for (const double v : values) AppendFloat(in, from, v);
    for (const Scalar to : kInts) {
      for (const int lanes : {1, 16}) {
        const auto got = MapElements(Op::kCast, to, {from}, {in}, lanes);
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t i = 0; i < values.size(); ++i) {
          const int64_t want =
              to == Scalar::kBool ? (values[i] != 0 ? 1 : 0) : SaturatedInt(values[i], to);
          ASSERT_EQ(ReadInt(*got, to, i), want)
              << values[i] << " " << Name(from) << " to " << Name(to) << ", " << lanes << " lanes";
        }
      }
    }
  }
}

TEST(EmitCast, IntegersWrapBetweenWidths) {
  for (const Scalar from : kInts) {
    std::string in;
    std::vector<int64_t> values = IntValues(from);
    while (values.size() % 16 != 0) values.push_back(1);
    for (const int64_t v : values) AppendInt(in, from, v);
    for (const Scalar to : kInts) {
      for (const int lanes : {1, 16}) {
        const auto got = MapElements(Op::kCast, to, {from}, {in}, lanes);
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(ReadInt(*got, to, i), WrapInt(values[i], to))
              << values[i] << " " << Name(from) << " to " << Name(to);
        }
      }
    }
  }
}

// long double has all 64 bits of every integer, so it is rounded once.
double Rounded(long double v, Scalar to) {
  if (to == Scalar::kFloat64) return static_cast<double>(v);
  if (to == Scalar::kFloat32) return static_cast<float>(v);
  if (v == 0) return static_cast<double>(v);
  const int precision = to == Scalar::kFloat16 ? 11 : 8;
  const int least = to == Scalar::kFloat16 ? -14 : -126;
  const int e = std::max(std::ilogb(v), least) - precision + 1;
  const long double r = std::ldexp(std::nearbyint(std::ldexp(v, -e)), e);
  const long double max = to == Scalar::kFloat16 ? 65504.0L : 0x1.FEp127L;
  return std::abs(r) > max ? static_cast<double>(std::copysign(kInf, v)) : static_cast<double>(r);
}

TEST(EmitCast, IntegersRoundOnceToFloats) {
  for (const Scalar from : kInts) {
    std::string in;
    std::vector<int64_t> values = IntValues(from);
    // Just off a tie of bfloat16, by less than float32 or float64 can see.
    for (const int64_t v :
         {(int64_t{257} << 22) + 1, (int64_t{257} << 22) - 1, (int64_t{257} << 54) + 1,
          (int64_t{257} << 54) - 1, -(int64_t{257} << 54) - 1, (int64_t{0x1000001} << 34) + 1}) {
      values.push_back(WrapInt(v, from));
    }
    while (values.size() % 16 != 0) values.push_back(1);
    for (const int64_t v : values) AppendInt(in, from, v);
    for (const Scalar to : kFloats) {
      for (const int lanes : {1, 16}) {
        const auto got = MapElements(Op::kCast, to, {from}, {in}, lanes);
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t i = 0; i < values.size(); ++i) {
          const long double exact = from == Scalar::kUint64
                                        ? static_cast<long double>(static_cast<uint64_t>(values[i]))
                                        : static_cast<long double>(values[i]);
          ASSERT_EQ(ReadFloat(*got, to, i), Rounded(exact, to))
              << values[i] << " " << Name(from) << " to " << Name(to) << ", " << lanes << " lanes";
        }
      }
    }
  }
}

TEST(EmitCast, FloatsRoundOnceAndKeepNan) {
  std::mt19937_64 random(5);
  for (const Scalar from : kFloats) {
    std::vector<double> values = FloatValues(from);
    // Ties of float16 and bfloat16, and their neighbours.
    for (const double tie :
         {1 + 0x1p-11, 1 + 0x1p-8, 3 * 0x1p-25, 0x1p-25, 65520.0, 0x1.FFp127, 0x1p-134, 0x3p-134}) {
      for (const double v : {tie, std::nextafter(tie, 0.0), std::nextafter(tie, kInf), -tie}) {
        values.push_back(RoundToFloat(v, from));
      }
    }
    for (int i = 0; i < 400; ++i) {
      const int exponent = static_cast<int>(random() % 60) - 30;
      values.push_back(RoundToFloat(
          std::ldexp(static_cast<double>(static_cast<int64_t>(random())), exponent - 63), from));
    }
    while (values.size() % 16 != 0) values.push_back(1);
    std::string in;
    for (const double v : values) AppendFloat(in, from, v);
    for (const Scalar to : kFloats) {
      for (const int lanes : {1, 16}) {
        const auto got = MapElements(Op::kCast, to, {from}, {in}, lanes);
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t i = 0; i < values.size(); ++i) {
          const double value = ReadFloat(*got, to, i);
          ASSERT_TRUE(Same(value, RoundToFloat(values[i], to)))
              << values[i] << " " << Name(from) << " to " << Name(to) << " is " << value << ", "
              << lanes << " lanes";
        }
      }
    }
  }
}

TEST(EmitCast, BoolsAreZeroAndOne) {
  // A byte other than 0 or 1 reads as true.
  const std::string in("\0\1\2\xFF", 4);
  for (const Scalar to : kFloats) {
    const auto got = MapElements(Op::kCast, to, {Scalar::kBool}, {in}, 4);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(ReadFloat(*got, to, i), i == 0 ? 0 : 1);
  }
  const auto got = MapElements(Op::kOr, Scalar::kBool, {Scalar::kBool, Scalar::kBool}, {in, in}, 4);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, std::string("\0\1\1\1", 4));
}

TEST(EmitCast, BitcastKeepsEveryBit) {
  // A signalling NaN of float16 and of bfloat16 among them.
  const std::vector<uint16_t> bits = {0, 0x7D01, 0x7F81, 0xFFFF, 0x3C00, 0x8000, 1, 0x7C00};
  for (const Scalar s : {Scalar::kFloat16, Scalar::kBFloat16}) {
    for (const int lanes : {1, 8}) {
      ProgramBuilder p;
      const UOp out = p.Buffer(Scalar::kUint16, 8, false, true);
      const UOp in = p.Buffer(s, 8, true, false);
      const UOp i = p.Range(8 / lanes);
      const UOp index = p.Alu(Op::kMul, i, p.Int(lanes));
      const UOp loaded = p.Load(in, index, lanes);
      p.Store(out, index, p.Add(Op::kBitcast, DType(Scalar::kUint16, lanes), {loaded}));
      p.End(i);
      const auto got = RunProgram(p.Finish(i, 8 / lanes), {std::string(16, 0), Bytes(bits)});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(FromBytes<uint16_t>((*got)[0]), bits) << Name(s);
    }
  }
}

TEST(EmitAlu, WhereIgnoresTheArmNotTaken) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kFloat32, 4, false, true);
  const UOp in = p.Buffer(Scalar::kFloat32, 4, true, false);
  const UOp x = p.Load(in, p.Int(0), 4);
  const UOp one = p.Float(1, x.dtype());
  const UOp root = p.Alu(Op::kSqrt, x);
  p.Store(out, p.Int(0), p.Where(p.Alu(Op::kCmpLt, x, p.Float(0, x.dtype())), one, root));
  const auto got = RunProgram(p.Finish(), {std::string(16, 0), Bytes<float>({-4, 4, 9, -1})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(FromBytes<float>((*got)[0]), ::testing::ElementsAre(1, 2, 3, 1));
}

}  // namespace
}  // namespace beamd

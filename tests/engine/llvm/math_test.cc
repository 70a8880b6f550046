// EXP2, LOG2 and SIN against the C library in a wider type.
#include "engine/llvm/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "absl/strings/str_replace.h"
#include "engine/llvm/host.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

constexpr Op kOps[] = {Op::kExp2, Op::kLog2, Op::kSin};

template <typename Wide>
Wide Reference(Op op, Wide x) {
  switch (op) {
    case Op::kExp2:
      return std::exp2(x);
    case Op::kLog2:
      return std::log2(x);
    default:
      return std::sin(x);
  }
}

// |got - want| in units of the last place of the type with these parameters.
long double Ulps(long double got, long double want, int precision, int least_exponent) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isnan(got)) return INFINITY;
  const long double end = std::ldexp(1.0L, 2 - least_exponent);  // where the type overflows
  if (std::isinf(want) || std::isinf(got)) {
    if (got == want) return 0;
    // Rounding to infinity is right where the exact value lies at the end.
    return std::isinf(got) && std::signbit(got) == std::signbit(want) &&
                   std::abs(want) >= end * (1 - std::ldexp(1.0L, -precision - 1))
               ? 0
               : INFINITY;
  }
  const int e = want == 0 ? least_exponent : std::max(std::ilogb(want), least_exponent);
  return std::abs(got - want) / std::ldexp(1.0L, e - precision + 1);
}

std::vector<float> Float32Samples() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1021) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  // Dense around what is special: 0, 1, multiples of pi, the ends of EXP2, the large reduction.
  for (const double center : {1.0, 0.5, 2.0, 3.14159265358979, 6.28318530717958, 1.5707963267949,
                              -126.0, -149.0, 127.5, 65536.0, 314159.27, 1e10}) {
    float v = static_cast<float>(center);
    for (int i = 0; i < 2000; ++i) v = std::nextafter(v, -INFINITY);
    for (int i = 0; i < 4000; ++i) x.push_back(v = std::nextafter(v, INFINITY));
  }
  for (const float v : {INFINITY, -INFINITY, NAN, -0.0F, 1e-45F, 0x1p-126F, 128.0F, -150.0F}) {
    x.push_back(v);
  }
  while (x.size() % 16 != 0) x.push_back(1);
  return x;
}

void CheckFloat32(Op op, int lanes, const std::vector<float>& x) {
  const auto got = MapElements(op, Scalar::kFloat32, {Scalar::kFloat32}, {Bytes(x)}, lanes);
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<float> y = FromBytes<float>(*got);
  long double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = Reference<double>(op, x[i]);
    const bool near_zero = op == Op::kSin && std::abs(x[i]) > 3 && std::abs(want) < 0.5;
    if (near_zero && std::abs(y[i] - want) <= 1e-7) continue;
    const long double ulps = Ulps(y[i], want, 24, -126);
    worst = std::max(worst, ulps);
    ASSERT_LE(ulps, 2) << Name(op) << "(" << x[i] << ") is " << y[i] << ", not " << want << ", "
                       << lanes << " lanes";
  }
  ::testing::Test::RecordProperty(std::string(Name(op)) + "_f32_ulps", std::to_string(worst));
}

TEST(Math, Float32WithinTwoUlp) {
  const std::vector<float> x = Float32Samples();
  for (const Op op : kOps) CheckFloat32(op, 8, x);
}

class Unfused : public ::testing::Test {
 protected:
  void SetUp() override {
    TestTarget().features = absl::StrReplaceAll(HostCaps().features, {{"+fma", "-fma"}});
  }
  void TearDown() override { TestTarget() = HostCaps(); }
};

TEST_F(Unfused, Float32WithinTwoUlp) {
  const std::vector<float> all = Float32Samples();
  std::vector<float> x;
  for (size_t i = 0; i < all.size(); i += 7) x.push_back(all[i]);
  while (x.size() % 16 != 0) x.push_back(1);
  for (const Op op : kOps) CheckFloat32(op, 8, x);
}

TEST(Math, Float32AloneIsAsInVectors) {
  std::vector<float> x = Float32Samples();
  std::vector<float> few;
  for (size_t i = 0; i < x.size(); i += 16) few.push_back(x[i]);
  while (few.size() % 16 != 0) few.push_back(1);
  for (const Op op : kOps) {
    const auto alone = MapElements(op, Scalar::kFloat32, {Scalar::kFloat32}, {Bytes(few)}, 1);
    ASSERT_TRUE(alone.ok()) << alone.status();
    const std::vector<float> want = FromBytes<float>(*alone);
    for (const int lanes : {4, 16}) {
      const auto got = MapElements(op, Scalar::kFloat32, {Scalar::kFloat32}, {Bytes(few)}, lanes);
      ASSERT_TRUE(got.ok()) << got.status();
      const std::vector<float> y = FromBytes<float>(*got);
      for (size_t i = 0; i < few.size(); ++i) {
        if (std::isnan(want[i]) && std::isnan(y[i])) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(want[i]))
            << Name(op) << "(" << few[i] << "), " << lanes << " lanes";
      }
    }
  }
}

void CheckFloat64() {
  std::vector<double> x = {0.0, -0.0, 1, INFINITY, -INFINITY, NAN, 5e-324, 0x1p-1022, 1024, -1074,
                           // The float64 nearest to a multiple of pi/2, of all.
                           0x1.6ac5b262ca1ffp+849};
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) x.push_back(std::bit_cast<double>(random()));
  std::uniform_real_distribution<double> exponents(-1080, 1030), near(0.3, 3),
      wide(-600000, 600000);
  for (int i = 0; i < 50000; ++i) x.push_back(exponents(random));
  for (int i = 0; i < 50000; ++i) x.push_back(near(random));
  for (int i = 0; i < 50000; ++i) x.push_back(wide(random));
  // Next to multiples of pi, before and behind the large reduction.
  for (int i = 1; i < 20000; ++i) {
    x.push_back(i * 3.14159265358979323846);
    x.push_back(i * 314159265.358979323846);
  }
  for (double v = 1 - 1e-13; v < 1 + 1e-13; v = std::nextafter(v, 2)) x.push_back(v);
  while (x.size() % 4 != 0) x.push_back(1);
  for (const Op op : kOps) {
    for (const int lanes : {1, 4}) {
      const auto got = MapElements(op, Scalar::kFloat64, {Scalar::kFloat64}, {Bytes(x)}, lanes);
      ASSERT_TRUE(got.ok()) << got.status();
      const std::vector<double> y = FromBytes<double>(*got);
      long double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const long double want = Reference<long double>(op, x[i]);
        const long double ulps = Ulps(y[i], want, 53, -1022);
        worst = std::max(worst, ulps);
        ASSERT_LE(ulps, 2) << Name(op) << "(" << x[i] << ") is " << y[i] << ", not " << want;
      }
      ::testing::Test::RecordProperty(std::string(Name(op)) + "_f64_ulps", std::to_string(worst));
    }
  }
}

TEST(Math, Float64WithinTwoUlp) { CheckFloat64(); }

TEST_F(Unfused, Float64WithinTwoUlp) { CheckFloat64(); }

// Every value of the type: rounded from a float32 within 2 ulp, so at most a neighbour of the right
// one.
TEST(Math, HalvesAreRoundedFromFloat32) {
  std::vector<uint16_t> x(65536);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  for (const Scalar s : {Scalar::kFloat16, Scalar::kBFloat16}) {
    const auto wide = MapElements(Op::kCast, Scalar::kFloat32, {s}, {Bytes(x)}, 8);
    ASSERT_TRUE(wide.ok()) << wide.status();
    for (const Op op : kOps) {
      const auto got = MapElements(op, s, {s}, {Bytes(x)}, 8);
      ASSERT_TRUE(got.ok()) << got.status();
      const auto single = MapElements(op, Scalar::kFloat32, {Scalar::kFloat32}, {*wide}, 8);
      ASSERT_TRUE(single.ok()) << single.status();
      const auto rounded = MapElements(Op::kCast, s, {Scalar::kFloat32}, {*single}, 8);
      ASSERT_TRUE(rounded.ok()) << rounded.status();
      EXPECT_EQ(*got, *rounded) << Name(op) << " " << Name(s);
    }
  }
}

// So many that they are called. Each is off by 2 ulp and passes on what was off before.
TEST(Math, AChainOfManySinesIsAsExact) {
  constexpr int kLength = 100;
  const std::vector<float> x = {0.5F, -1.25F, 3e9F, 0, -70000, 1e-20F, 3.1F, -2};
  for (const int lanes : {1, 8}) {
    ProgramBuilder p;
    const UOp out = p.Buffer(Scalar::kFloat32, 8, false, true);
    const UOp in = p.Buffer(Scalar::kFloat32, 8, true, false);
    const UOp range = p.Range(8 / lanes);
    const UOp index = p.Alu(Op::kMul, range, p.Int(lanes));
    UOp value = p.Load(in, index, lanes, nullptr, lanes);
    for (int i = 0; i < kLength; ++i) value = p.Alu(Op::kSin, value);
    p.Store(out, index, value, nullptr, lanes);
    p.End(range);
    const auto got = RunProgram(p.Finish(range, 8 / lanes), {std::string(32, '\xAA'), Bytes(x)});
    ASSERT_TRUE(got.ok()) << got.status();
    const std::vector<float> y = FromBytes<float>((*got)[0]);
    for (size_t i = 0; i < x.size(); ++i) {
      double want = x[i];
      for (int k = 0; k < kLength; ++k) want = std::sin(want);
      EXPECT_NEAR(y[i], want, std::abs(want) * kLength * 0x1p-22) << x[i];
    }
  }
}

}  // namespace
}  // namespace beamd

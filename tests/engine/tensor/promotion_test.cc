#include "engine/dtype/promotion.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/engine/tensor/both_realizers.h"

namespace beamd::testing {
namespace {

constexpr const char* kShort[] = {"b1",  "i8",  "u8",  "i16",  "u16", "i32", "u32",
                                  "i64", "u64", "f16", "bf16", "f32", "f64"};

// What tinygrad 0.10.0's least_upper_dtype gives for each pair, in the order of Scalar.
constexpr const char* kLattice[] = {
    "b1   i8   u8   i16  u16  i32  u32  i64  u64  f16  bf16 f32  f64",
    "i8   i8   i16  i16  i32  i32  i64  i64  f16  f16  bf16 f32  f64",
    "u8   i16  u8   i16  u16  i32  u32  i64  u64  f16  bf16 f32  f64",
    "i16  i16  i16  i16  i32  i32  i64  i64  f16  f16  bf16 f32  f64",
    "u16  i32  u16  i32  u16  i32  u32  i64  u64  f16  bf16 f32  f64",
    "i32  i32  i32  i32  i32  i32  i64  i64  f16  f16  bf16 f32  f64",
    "u32  i64  u32  i64  u32  i64  u32  i64  u64  f16  bf16 f32  f64",
    "i64  i64  i64  i64  i64  i64  i64  i64  f16  f16  bf16 f32  f64",
    "u64  f16  u64  f16  u64  f16  u64  f16  u64  f16  bf16 f32  f64",
    "f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64",
    "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64",
    "f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64",
    "f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64",
};
constexpr const char* kFloats = "f32 f32 f32 f32 f32 f32 f32 f32 f32 f16 bf16 f32 f64";
constexpr const char* kSums = "i32 i32 u32 i32 u32 i32 u32 i64 u64 f32 f32 f32 f64";

std::vector<std::string> Row(const char* row) {
  return absl::StrSplit(row, ' ', absl::SkipEmpty());
}
Scalar At(int i) { return static_cast<Scalar>(i + 1); }
std::string Short(Scalar s) { return kShort[static_cast<int>(s) - 1]; }

class PromotionTest : public BothRealizersTest {};
INSTANTIATE_TEST_SUITE_P(On, PromotionTest, Realizers(), RealizerName);

TEST_P(PromotionTest, TheLatticeIsThatOf0100) {
  for (int i = 0; i < 13; ++i) {
    const std::vector<std::string> row = Row(kLattice[i]);
    ASSERT_EQ(row.size(), 13u);
    for (int j = 0; j < 13; ++j) {
      EXPECT_EQ(Short(LeastUpperDType({At(i), At(j)})), row[j]) << kShort[i] << " " << kShort[j];
    }
    EXPECT_EQ(Short(LeastUpperFloat(At(i))), Row(kFloats)[i]) << kShort[i];
    EXPECT_EQ(Short(SumAccDType(At(i))), Row(kSums)[i]) << kShort[i];
  }
}

TEST_P(PromotionTest, MethodsPromoteAlongTheLattice) {
  for (int i = 0; i < 13; ++i) {
    for (int j = 0; j < 13; ++j) {
      SCOPED_TRACE(std::string(kShort[i]) + " " + kShort[j]);
      const std::string want = Row(kLattice[i])[j];
      const Tensor x = Vector({1, 0}, At(i));
      const Tensor y = Vector({1, 1}, At(j));
      const Tensor sum = x.Add(y);
      EXPECT_EQ(Short(sum.dtype()), want);
      ExpectNear(Read(sum), {want == "b1" ? 1.0 : 2.0, 1});
      EXPECT_EQ(Short(x.Mul(y).dtype()), want);
      EXPECT_EQ(Short(x.Sub(y).dtype()), want);
      EXPECT_EQ(Short(x.Maximum(y).dtype()), want);
      EXPECT_EQ(Short(x.Bool().Where(x, y).dtype()), want);
      EXPECT_EQ(x.Lt(y).dtype(), Scalar::kBool);
      EXPECT_EQ(x.Div(y).dtype(), LeastUpperFloat(LeastUpperDType({At(i), At(j)})));
    }
  }
}

TEST_P(PromotionTest, NumbersTakeTheDtypeOfTheTensor) {
  for (int i = 0; i < 13; ++i) {
    SCOPED_TRACE(kShort[i]);
    const Tensor x = Vector({1}, At(i));
    const bool is_bool = At(i) == Scalar::kBool;
    EXPECT_EQ(x.Add(true).dtype(), At(i));
    EXPECT_EQ(x.Add(2).dtype(), is_bool ? Scalar::kInt32 : At(i));
    EXPECT_EQ(x.Add(0.5).dtype(), IsFloat(At(i)) ? At(i) : Scalar::kFloat32);
  }
  context_.default_float = Scalar::kFloat64;
  context_.default_int = Scalar::kInt64;
  EXPECT_EQ(Vector({1}, Scalar::kInt32).Add(0.5).dtype(), Scalar::kFloat64);
  EXPECT_EQ(Vector({1}, Scalar::kBool).Add(2).dtype(), Scalar::kInt64);
}

}  // namespace
}  // namespace beamd::testing

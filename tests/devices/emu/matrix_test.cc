#include "devices/emu/matrix.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "devices/emu/float_bits.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using Place = std::pair<int, int>;  // row, column
using Where = std::function<Place(int lane, int element)>;

// The formulas of the makers' documents, written out.
struct Formulas {
  const char* prefix;  // of intrinsics
  Where a, b, c;
};

std::vector<Formulas> Documents() {
  const Where mma_c = [](int l, int i) {
    return Place(l / 4 + (i < 2 ? 0 : 8), l % 4 * 2 + (i & 1));
  };
  const Where mfma_c = [](int l, int i) { return Place(4 * (l / 16) + i, l % 16); };
  return {
      {"llvm.nvvm.mma.m16n8k16",
       [](int l, int i) {
         const bool low = i < 2 || (i >= 4 && i < 6);
         return Place(l / 4 + (low ? 0 : 8), l % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8));
       },
       [](int l, int i) { return Place(l % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), l / 4); }, mma_c},
      {"llvm.nvvm.mma.m16n8k8.row.col.tf32",
       [](int l, int i) { return Place(l / 4 + (i % 2 == 0 ? 0 : 8), l % 4 + (i < 2 ? 0 : 4)); },
       [](int l, int i) { return Place(l % 4 + (i == 0 ? 0 : 4), l / 4); }, mma_c},
      {"llvm.nvvm.mma.m16n8k8",
       [](int l, int i) { return Place(l / 4 + (i < 2 ? 0 : 8), l % 4 * 2 + (i & 1)); },
       [](int l, int i) { return Place(l % 4 * 2 + i, l / 4); }, mma_c},
      {"llvm.amdgcn.mfma.f32.16x16x16",
       [](int l, int j) { return Place(l % 16, 4 * (l / 16) + j); },
       [](int l, int j) { return Place(4 * (l / 16) + j, l % 16); }, mfma_c},
      {"llvm.amdgcn.mfma.f32.16x16x4f32", [](int l, int) { return Place(l % 16, l / 16); },
       [](int l, int) { return Place(l / 16, l % 16); }, mfma_c},
      {"llvm.amdgcn.mfma.f32.16x16x8.xf32",
       [](int l, int j) { return Place(l % 16, 2 * (l / 16) + j); },
       [](int l, int j) { return Place(2 * (l / 16) + j, l % 16); }, mfma_c},
      {"llvm.amdgcn.mfma.f32.32x32x8", [](int l, int j) { return Place(l % 32, 4 * (l / 32) + j); },
       [](int l, int j) { return Place(4 * (l / 32) + j, l % 32); },
       [](int l, int i) { return Place(8 * (i / 4) + 4 * (l / 32) + i % 4, l % 32); }},
  };
}

// RDNA's: told apart by how many elements a lane holds.
Formulas Wmma(bool rdna3, bool packed) {
  if (rdna3) {
    return {"", [](int l, int k) { return Place(l % 16, k); },
            [](int l, int k) { return Place(k, l % 16); },
            [packed](int l, int e) { return Place(2 * (packed ? e / 2 : e) + l / 16, l % 16); }};
  }
  return {"", [](int l, int e) { return Place(l % 16, 8 * (l / 16) + e); },
          [](int l, int e) { return Place(8 * (l / 16) + e, l % 16); },
          [](int l, int e) { return Place(8 * (l / 16) + e, l % 16); }};
}

Formulas FormulasOf(const MatrixOp& op) {
  if (absl::StartsWith(op.intrinsic, "llvm.amdgcn.wmma")) {
    return Wmma(op.a.elements == 16, op.c.elements == 16);
  }
  for (const Formulas& f : Documents()) {
    if (absl::StartsWith(op.intrinsic, f.prefix)) return f;
  }
  ADD_FAILURE() << op.intrinsic;
  return {};
}

int BytesOf(MatrixScalar s) { return s == MatrixScalar::kF16 || s == MatrixScalar::kBf16 ? 2 : 4; }

void Put(MatrixScalar s, float v, std::byte* to) {
  const uint16_t bits = s == MatrixScalar::kF16 ? FloatToHalf(v) : FloatToBfloat16(v);
  if (BytesOf(s) == 2) {
    std::memcpy(to, &bits, 2);
  } else {
    std::memcpy(to, &v, 4);
  }
}

float Get(MatrixScalar s, const std::byte* from) {
  uint16_t bits = 0;
  float v = 0;
  if (BytesOf(s) == 2) {
    std::memcpy(&bits, from, 2);
    return s == MatrixScalar::kF16 ? HalfToFloat(bits) : Bfloat16ToFloat(bits);
  }
  std::memcpy(&v, from, 4);
  return v;
}

// Small whole numbers: exact in every type, so sums don't depend on their order.
float A(int i, int k) { return static_cast<float>((3 * i + 5 * k) % 7 - 3); }
float B(int k, int j) { return static_cast<float>((2 * k + j) % 5 - 2); }
float C(int i, int j) { return static_cast<float>((i + 4 * j) % 9 - 4); }

TEST(MatrixOps, MultiplyWhatTheDocumentsSayThatLanesHold) {
  for (const MatrixOp& op : MatrixOps()) {
    SCOPED_TRACE(std::string(op.intrinsic));
    const Formulas where = FormulasOf(op);
    const int in = BytesOf(op.in), out = BytesOf(op.out);
    const int b_at = op.a.elements * in, c_at = b_at + op.b.elements * in;
    std::vector<std::vector<std::byte>> operands(op.wave), results(op.wave);
    std::vector<MatrixLane> lanes;
    for (int l = 0; l < op.wave; ++l) {
      operands[l].resize(c_at + op.c.elements * out);
      results[l].resize(op.c.elements * out);
      for (int e = 0; e < op.a.elements; ++e) {
        const auto [i, k] = where.a(l, e);
        Put(op.in, A(i, k), &operands[l][e * in]);
      }
      for (int e = 0; e < op.b.elements; ++e) {
        const auto [k, j] = where.b(l, e);
        Put(op.in, B(k, j), &operands[l][b_at + e * in]);
      }
      for (int e = 0; e < op.c.elements; ++e) {
        const auto [i, j] = where.c(l, e);
        Put(op.out, C(i, j), &operands[l][c_at + e * out]);
      }
      lanes.push_back({operands[l].data(), results[l].data()});
    }
    EXPECT_TRUE(Multiply(op, lanes));
    std::set<Place> seen;
    for (int l = 0; l < op.wave; ++l) {
      for (int e = 0; e < op.c.elements; ++e) {
        const float got = Get(op.out, &results[l][e * out]);
        if (op.c.unused_bit == 0 && e % 2 == 1) {
          EXPECT_TRUE(std::isnan(got));
          continue;
        }
        const auto [i, j] = where.c(l, e);
        float want = C(i, j);
        for (int k = 0; k < op.k; ++k) want += A(i, k) * B(k, j);
        ASSERT_EQ(got, want) << "lane " << l << " element " << e;
        EXPECT_TRUE(seen.insert({i, j}).second);
      }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(op.m) * op.n);
  }
}

TEST(MatrixOps, LanesThatShouldAgreeMust) {
  for (const MatrixOp& op : MatrixOps()) {
    if (op.intrinsic != "llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16") continue;
    std::vector<std::vector<std::byte>> operands(32, std::vector<std::byte>(96));
    std::vector<std::vector<std::byte>> results(32, std::vector<std::byte>(32));
    std::vector<MatrixLane> lanes;
    for (int l = 0; l < 32; ++l) lanes.push_back({operands[l].data(), results[l].data()});
    EXPECT_TRUE(Multiply(op, lanes));
    operands[17][3] = std::byte{1};
    EXPECT_FALSE(Multiply(op, lanes));
    return;
  }
  FAIL();
}

TEST(FloatBits, RoundToBfloat16) {
  EXPECT_EQ(FloatToBfloat16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBfloat16(1.00390625f), 0x3f80);  // a tie, to even
  EXPECT_EQ(FloatToBfloat16(1.01171875f), 0x3f82);  // a tie, to even
  EXPECT_EQ(DoubleToBfloat16(1.00390625), 0x3f80);
  EXPECT_EQ(DoubleToBfloat16(1.00390625 + 1e-12),
            0x3f81);  // above the tie by less than float32 tells
  EXPECT_EQ(DoubleToBfloat16(-1.00390625 - 1e-12), 0xbf81);
  EXPECT_EQ(FloatToBfloat16(1e-40f), 0x0001);
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(std::nanf("")))));
}

}  // namespace
}  // namespace beamd

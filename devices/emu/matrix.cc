#include "devices/emu/matrix.h"

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "devices/emu/float_bits.h"

namespace beamd {
namespace {

constexpr int kLargest = 32;  // of m, n and k

// PTX ISA 8.7, 9.7.14.5.8 "Matrix Fragments for mma.m16n8k16 with floating point type", .f16 and
// .bf16: groupID = lane / 4, t = lane % 4.
//   a[i]: row groupID, + 8 for i of 2, 3, 6, 7; column 2 t + i % 2, + 8 from i = 4 on.
//   b[i]: row 2 t + i % 2, + 8 from i = 2 on; column groupID.
//   c[i]: row groupID, + 8 from i = 2 on; column 2 t + i % 2.
constexpr MatrixLayout kMma16A = {.lane = {{{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}},
                                  .element = {{{0, 1}, {8, 0}, {0, 8}}},
                                  .elements = 8};
constexpr MatrixLayout kMma16B = {.lane = {{{2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}}},
                                  .element = {{{1, 0}, {8, 0}}},
                                  .elements = 4};
constexpr MatrixLayout kMmaC = {.lane = {{{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}},
                                .element = {{{0, 1}, {8, 0}}},
                                .elements = 4};

// PTX ISA 8.7, 9.7.14.5.7 "Matrix Fragments for mma.m16n8k8", .f16 and .bf16.
//   a[i]: row groupID, + 8 from i = 2 on; column 2 t + i % 2.
//   b[i]: row 2 t + i; column groupID.
constexpr MatrixLayout kMma8A = {.lane = {{{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}},
                                 .element = {{{0, 1}, {8, 0}}},
                                 .elements = 4};
constexpr MatrixLayout kMma8B = {
    .lane = {{{2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}}}, .element = {{{1, 0}}}, .elements = 2};

// The same section, .tf32.
//   a[i]: row groupID, + 8 for i of 1 and 3; column t, + 4 from i = 2 on.
//   b[i]: row t + 4 i; column groupID.
constexpr MatrixLayout kMmaTf32A = {.lane = {{{0, 1}, {0, 2}, {1, 0}, {2, 0}, {4, 0}}},
                                    .element = {{{8, 0}, {0, 4}}},
                                    .elements = 4};
constexpr MatrixLayout kMmaTf32B = {
    .lane = {{{1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 4}}}, .element = {{{4, 0}}}, .elements = 2};

// AMD Instinct MI200 ISA and CDNA3 ISA, 7.1 "Matrix Fused-Multiply-Add"; AMD's matrix instruction
// calculator prints the same. 16x16x16 of 16 bits:
//   A[i][k]: lane i + 16 (k / 4), element k % 4.  B[k][j]: lane j + 16 (k / 4), element k % 4.
//   D[i][j]: lane j + 16 (i / 4), element i % 4.
constexpr MatrixLayout kMfma16A = {.lane = {{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {0, 4}, {0, 8}}},
                                   .element = {{{0, 1}, {0, 2}}},
                                   .elements = 4};
constexpr MatrixLayout kMfma16B = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {4, 0}, {8, 0}}},
                                   .element = {{{1, 0}, {2, 0}}},
                                   .elements = 4};
constexpr MatrixLayout kMfma16C = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {4, 0}, {8, 0}}},
                                   .element = {{{1, 0}, {2, 0}}},
                                   .elements = 4};

// The same, 16x16x4 of float32: A[i][k]: lane i + 16 k. B[k][j]: lane j + 16 k.
constexpr MatrixLayout kMfma4A = {.lane = {{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {0, 1}, {0, 2}}},
                                  .elements = 1};
constexpr MatrixLayout kMfma4B = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {1, 0}, {2, 0}}},
                                  .elements = 1};

// CDNA3 ISA, 16x16x8 of xf32: A[i][k]: lane i + 16 (k / 2), element k % 2; B as A with j.
constexpr MatrixLayout kMfma8A = {.lane = {{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {0, 2}, {0, 4}}},
                                  .element = {{{0, 1}}},
                                  .elements = 2};
constexpr MatrixLayout kMfma8B = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {2, 0}, {4, 0}}},
                                  .element = {{{1, 0}}},
                                  .elements = 2};

// MI200 and CDNA3 ISA, 32x32x8 of 16 bits:
//   A[i][k]: lane i + 32 (k / 4), element k % 4; B as A with j.
//   D[i][j]: lane j + 32 (i / 4 % 2), element i % 4 + 4 (i / 8).
constexpr MatrixLayout kMfma32A = {.lane = {{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {16, 0}, {0, 4}}},
                                   .element = {{{0, 1}, {0, 2}}},
                                   .elements = 4};
constexpr MatrixLayout kMfma32B = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {4, 0}}},
                                   .element = {{{1, 0}, {2, 0}}},
                                   .elements = 4};
constexpr MatrixLayout kMfma32C = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {4, 0}}},
                                   .element = {{{1, 0}, {2, 0}, {8, 0}, {16, 0}}},
                                   .elements = 16};

// AMD RDNA3 ISA, 7.9 "Wave Matrix Multiply Accumulate", wave32.
//   A[i][k]: lanes i and i + 16, element k.  B[k][j]: lanes j and j + 16, element k.
//   D[i][j]: lane j + 16 (i % 2), register i / 2; of 16 bits in the low half of the register.
constexpr MatrixLayout kWmma11A = {.lane = {{{1, 0}, {2, 0}, {4, 0}, {8, 0}}},
                                   .element = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}}},
                                   .elements = 16};
constexpr MatrixLayout kWmma11B = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}}},
                                   .element = {{{1, 0}, {2, 0}, {4, 0}, {8, 0}}},
                                   .elements = 16};
constexpr MatrixLayout kWmma11C = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {1, 0}}},
                                   .element = {{{2, 0}, {4, 0}, {8, 0}}},
                                   .elements = 8};
constexpr MatrixLayout kWmma11C16 = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {1, 0}}},
                                     .element = {{{0, 0}, {2, 0}, {4, 0}, {8, 0}}},
                                     .elements = 16,
                                     .unused_bit = 0};

// AMD RDNA4 ISA, 7.12 "Wave Matrix Multiply Accumulate", wave32.
//   A[i][k]: lane i + 16 (k / 8), element k % 8.  B[k][j]: lane j + 16 (k / 8), element k % 8.
//   D[i][j]: lane j + 16 (i / 8), element i % 8.
constexpr MatrixLayout kWmma12A = {.lane = {{{1, 0}, {2, 0}, {4, 0}, {8, 0}, {0, 8}}},
                                   .element = {{{0, 1}, {0, 2}, {0, 4}}},
                                   .elements = 8};
constexpr MatrixLayout kWmma12B = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {8, 0}}},
                                   .element = {{{1, 0}, {2, 0}, {4, 0}}},
                                   .elements = 8};
constexpr MatrixLayout kWmma12C = {.lane = {{{0, 1}, {0, 2}, {0, 4}, {0, 8}, {8, 0}}},
                                   .element = {{{1, 0}, {2, 0}, {4, 0}}},
                                   .elements = 8};

constexpr auto kF16 = MatrixScalar::kF16;
constexpr auto kBf16 = MatrixScalar::kBf16;
constexpr auto kTf32 = MatrixScalar::kTf32;
constexpr auto kF32 = MatrixScalar::kF32;

constexpr MatrixOp kOps[] = {
    {"llvm.nvvm.mma.m16n8k16.row.col.f32.f32", 32, 16, 8, 16, kF16, kF32, kMma16A, kMma16B, kMmaC,
     0},
    {"llvm.nvvm.mma.m16n8k16.row.col.bf16", 32, 16, 8, 16, kBf16, kF32, kMma16A, kMma16B, kMmaC, 0},
    {"llvm.nvvm.mma.m16n8k16.row.col.f16.f16", 32, 16, 8, 16, kF16, kF16, kMma16A, kMma16B, kMmaC,
     0},
    {"llvm.nvvm.mma.m16n8k8.row.col.f32.f32", 32, 16, 8, 8, kF16, kF32, kMma8A, kMma8B, kMmaC, 0},
    {"llvm.nvvm.mma.m16n8k8.row.col.f16.f16", 32, 16, 8, 8, kF16, kF16, kMma8A, kMma8B, kMmaC, 0},
    {"llvm.nvvm.mma.m16n8k8.row.col.bf16", 32, 16, 8, 8, kBf16, kF32, kMma8A, kMma8B, kMmaC, 0},
    {"llvm.nvvm.mma.m16n8k8.row.col.tf32", 32, 16, 8, 8, kTf32, kF32, kMmaTf32A, kMmaTf32B, kMmaC,
     0},
    {"llvm.amdgcn.mfma.f32.16x16x16f16", 64, 16, 16, 16, kF16, kF32, kMfma16A, kMfma16B, kMfma16C,
     3},
    {"llvm.amdgcn.mfma.f32.16x16x16bf16.1k", 64, 16, 16, 16, kBf16, kF32, kMfma16A, kMfma16B,
     kMfma16C, 3},
    {"llvm.amdgcn.mfma.f32.16x16x4f32", 64, 16, 16, 4, kF32, kF32, kMfma4A, kMfma4B, kMfma16C, 3},
    {"llvm.amdgcn.mfma.f32.16x16x8.xf32", 64, 16, 16, 8, kTf32, kF32, kMfma8A, kMfma8B, kMfma16C,
     3},
    {"llvm.amdgcn.mfma.f32.32x32x8f16", 64, 32, 32, 8, kF16, kF32, kMfma32A, kMfma32B, kMfma32C, 3},
    {"llvm.amdgcn.mfma.f32.32x32x8bf16.1k", 64, 32, 32, 8, kBf16, kF32, kMfma32A, kMfma32B,
     kMfma32C, 3},
    {"llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16", 32, 16, 16, 16, kF16, kF32, kWmma11A,
     kWmma11B, kWmma11C, 0},
    {"llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v16i16", 32, 16, 16, 16, kBf16, kF32, kWmma11A,
     kWmma11B, kWmma11C, 0},
    {"llvm.amdgcn.wmma.f16.16x16x16.f16.v16f16.v16f16", 32, 16, 16, 16, kF16, kF16, kWmma11A,
     kWmma11B, kWmma11C16, 1},
    {"llvm.amdgcn.wmma.bf16.16x16x16.bf16.v16i16.v16i16", 32, 16, 16, 16, kBf16, kBf16, kWmma11A,
     kWmma11B, kWmma11C16, 1},
    {"llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16", 32, 16, 16, 16, kF16, kF32, kWmma12A,
     kWmma12B, kWmma12C, 0},
    {"llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v8i16", 32, 16, 16, 16, kBf16, kF32, kWmma12A,
     kWmma12B, kWmma12C, 0},
    {"llvm.amdgcn.wmma.f16.16x16x16.f16.v8f16.v8f16", 32, 16, 16, 16, kF16, kF16, kWmma12A,
     kWmma12B, kWmma12C, 1},
    {"llvm.amdgcn.wmma.bf16.16x16x16.bf16.v8i16.v8i16", 32, 16, 16, 16, kBf16, kBf16, kWmma12A,
     kWmma12B, kWmma12C, 1},
};

constexpr int kNowhere = -1;

// Of each lane's elements one after another: the place in a matrix of rows of kLargest.
std::vector<int> PlacesOf(const MatrixLayout& layout, int wave) {
  std::vector<int> places;
  for (int lane = 0; lane < wave; ++lane) {
    for (int e = 0; e < layout.elements; ++e) {
      if (layout.unused_bit >= 0 && (e >> layout.unused_bit & 1) != 0) {
        places.push_back(kNowhere);
        continue;
      }
      int row = 0, column = 0;
      for (size_t bit = 0; bit < layout.lane.size(); ++bit) {
        if ((lane >> bit & 1) == 0) continue;
        row += layout.lane[bit].row;
        column += layout.lane[bit].column;
      }
      for (size_t bit = 0; bit < layout.element.size(); ++bit) {
        if ((e >> bit & 1) == 0) continue;
        row += layout.element[bit].row;
        column += layout.element[bit].column;
      }
      places.push_back(row * kLargest + column);
    }
  }
  return places;
}

struct Places {
  std::vector<int> a, b, c;
};

const Places& PlacesOf(const MatrixOp& op) {
  static const auto* const all = [] {
    auto* places = new std::vector<Places>;
    for (const MatrixOp& o : kOps) {
      places->push_back({PlacesOf(o.a, o.wave), PlacesOf(o.b, o.wave), PlacesOf(o.c, o.wave)});
    }
    return places;
  }();
  return (*all)[&op - kOps];
}

int64_t BytesOf(MatrixScalar scalar) {
  return scalar == MatrixScalar::kF16 || scalar == MatrixScalar::kBf16 ? 2 : 4;
}

float LoadElement(MatrixScalar scalar, const std::byte* from) {
  if (BytesOf(scalar) == 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof(bits));
    return scalar == MatrixScalar::kF16 ? HalfToFloat(bits) : Bfloat16ToFloat(bits);
  }
  uint32_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  constexpr uint32_t kTf32Bits = ~uint32_t{0x1fff};
  return std::bit_cast<float>(scalar == MatrixScalar::kTf32 ? bits & kTf32Bits : bits);
}

void StoreElement(MatrixScalar scalar, float value, std::byte* to) {
  if (BytesOf(scalar) == 4) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t bits = scalar == MatrixScalar::kF16 ? FloatToHalf(value) : FloatToBfloat16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

using Matrix = std::array<float, kLargest * kLargest>;

// Spreads what the lanes hold from byte `begin` on. False where two lanes hold one element and
// disagree.
bool Gather(const MatrixLayout& layout, MatrixScalar scalar, const std::vector<int>& places,
            std::span<const MatrixLane> lanes, int64_t begin, Matrix& matrix) {
  const int64_t bytes = BytesOf(scalar);
  // Only where the matrix is smaller than what the lanes hold does one element come twice.
  std::array<const std::byte*, kLargest * kLargest> from{};
  bool agree = true;
  const int* place = places.data();
  for (const MatrixLane& lane : lanes) {
    const std::byte* element = lane.in + begin;
    for (int e = 0; e < layout.elements; ++e, element += bytes, ++place) {
      if (*place == kNowhere) continue;
      const std::byte*& first = from[*place];
      if (first == nullptr) {
        first = element;
        matrix[*place] = LoadElement(scalar, element);
      } else {
        agree = agree && std::memcmp(first, element, static_cast<size_t>(bytes)) == 0;
      }
    }
  }
  return agree;
}

}  // namespace

std::span<const MatrixOp> MatrixOps() { return kOps; }

int64_t FragmentBytes(const MatrixLayout& layout, MatrixScalar scalar) {
  return layout.elements * BytesOf(scalar);
}

bool Multiply(const MatrixOp& op, std::span<const MatrixLane> lanes) {
  Matrix a, b, c;
  const Places& places = PlacesOf(op);
  const int64_t a_bytes = FragmentBytes(op.a, op.in), b_bytes = FragmentBytes(op.b, op.in);
  bool agree = Gather(op.a, op.in, places.a, lanes, 0, a);
  agree = Gather(op.b, op.in, places.b, lanes, a_bytes, b) && agree;
  agree = Gather(op.c, op.out, places.c, lanes, a_bytes + b_bytes, c) && agree;
  for (int i = 0; i < op.m; ++i) {
    for (int k = 0; k < op.k; ++k) {
      const float x = a[i * kLargest + k];
      const float* const row = &b[k * kLargest];
      float* const sums = &c[i * kLargest];
      for (int j = 0; j < op.n; ++j) sums[j] += x * row[j];
    }
  }
  const int* place = places.c.data();
  const int64_t bytes = BytesOf(op.out);
  for (const MatrixLane& lane : lanes) {
    std::byte* to = lane.out;
    for (int e = 0; e < op.c.elements; ++e, to += bytes, ++place) {
      StoreElement(op.out, *place == kNowhere ? std::numeric_limits<float>::quiet_NaN() : c[*place],
                   to);
    }
  }
  return agree;
}

}  // namespace beamd

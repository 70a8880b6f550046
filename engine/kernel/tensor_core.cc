#include "engine/kernel/tensor_core.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace beamd {
namespace {

using Split = TensorCore::Split;
using Bit = TensorCore::Bit;

constexpr Bit N(int8_t bit) { return {kTileN, bit}; }
constexpr Bit M(int8_t bit) { return {kTileM, bit}; }
constexpr Bit K(int8_t bit) { return {kTileK, bit}; }
constexpr Bit kRepeats = {kTileK, Bit::kRepeats};

// ---- NVIDIA: PTX ISA, "Warp-level matrix instructions", section of each shape. There a lane is
// groupID * 4 + threadID_in_group. ----

// A 16 x 8 matrix C of any shape: row groupID, 8 more in the upper two of four elements; column
// threadID_in_group * 2, 1 more in odd elements. B's columns and A's rows are groupID as well.
constexpr Bit kMmaLaneC[] = {N(1), N(2), M(0), M(1), M(2)};
constexpr Bit kMmaElementC[] = {N(0), M(3)};

// "Matrix Fragments for mma.m16n8k16 with floating point type". A: columns threadID_in_group * 2 and
// the next, 8 more in the upper four elements; row groupID, 8 more in elements 2, 3, 6, 7.
constexpr Bit kM16N8K16LaneA[] = {K(1), K(2), M(0), M(1), M(2)};
constexpr Bit kM16N8K16ElementA[] = {K(0), M(3), K(3)};
constexpr Bit kM16N8K16LaneB[] = {K(1), K(2), N(0), N(1), N(2)};
constexpr Bit kM16N8K16ElementB[] = {K(0), K(3)};
constexpr Split kM16N8K16[] = {
    {OptOp::kUnroll, kTileK, 8}, {OptOp::kUnroll, kTileK, 2}, {OptOp::kUpcast, kTileN, 2},
    {OptOp::kUpcast, kTileM, 2}, {OptOp::kLocal, kTileN, 2},  {OptOp::kLocal, kTileN, 2},
    {OptOp::kLocal, kTileM, 2},  {OptOp::kLocal, kTileM, 2},  {OptOp::kLocal, kTileM, 2},
};
constexpr TensorCore M16N8K16(Scalar in) {
  return {{8, 16, 16},
          in,
          Scalar::kFloat32,
          kM16N8K16,
          {kM16N8K16LaneA, kM16N8K16ElementA},
          {kM16N8K16LaneB, kM16N8K16ElementB},
          {kMmaLaneC, kMmaElementC}};
}

// Eight along K.
constexpr Split kM16N8K8[] = {
    {OptOp::kUnroll, kTileK, 8}, {OptOp::kUpcast, kTileN, 2}, {OptOp::kUpcast, kTileM, 2},
    {OptOp::kLocal, kTileN, 2},  {OptOp::kLocal, kTileN, 2},  {OptOp::kLocal, kTileM, 2},
    {OptOp::kLocal, kTileM, 2},  {OptOp::kLocal, kTileM, 2},
};
// "Matrix Fragments for mma.m16n8k8", .f16: as above without the upper half of K.
constexpr Bit kM16N8K8ElementA[] = {K(0), M(3)};
constexpr Bit kM16N8K8ElementB[] = {K(0)};
// .tf32: a lane's columns of A are threadID_in_group and 4 more in the upper two elements, its row is
// 8 more in odd ones; B's rows are threadID_in_group and 4 more.
constexpr Bit kTf32LaneA[] = {K(0), K(1), M(0), M(1), M(2)};
constexpr Bit kTf32ElementA[] = {M(3), K(2)};
constexpr Bit kTf32LaneB[] = {K(0), K(1), N(0), N(1), N(2)};
constexpr Bit kTf32ElementB[] = {K(2)};

constexpr TensorCore kTuring[] = {
    {{8, 16, 8},
     Scalar::kFloat16,
     Scalar::kFloat32,
     kM16N8K8,
     {kM16N8K16LaneA, kM16N8K8ElementA},
     {kM16N8K16LaneB, kM16N8K8ElementB},
     {kMmaLaneC, kMmaElementC}},
};
constexpr TensorCore kAmpere[] = {
    M16N8K16(Scalar::kFloat16),
    M16N8K16(Scalar::kBFloat16),
    {{8, 16, 8},
     Scalar::kFloat32,
     Scalar::kFloat32,
     kM16N8K8,
     {kTf32LaneA, kTf32ElementA},
     {kTf32LaneB, kTf32ElementB},
     {kMmaLaneC, kMmaElementC}},
};
// tf32 rounds the factors to 10 bits: last, for those who allow it.
constexpr size_t kTf32Cores = 1;

// ---- AMD, 16 x 16 x 16: the ISA documents' chapters on matrix arithmetic. A lane's number modulo 16
// is its row of A and its column of B and C. ----

constexpr Bit kElementsK4[] = {K(0), K(1)}, kElementsK8[] = {K(0), K(1), K(2)},
              kElementsK16[] = {K(0), K(1), K(2), K(3)};

// "AMD RDNA3 ISA", 7.9, "Wave Matrix Multiply Accumulate", wave32: a lane holds a whole row of A and
// column of B, the upper half of the wave repeats the lower; of C it holds every other row. (With
// f16 sums these are the lower halves of its registers.)
constexpr Bit kRdna3LaneA[] = {M(0), M(1), M(2), M(3), kRepeats};
constexpr Bit kRdna3LaneB[] = {N(0), N(1), N(2), N(3), kRepeats};
constexpr Bit kRdna3LaneC[] = {N(0), N(1), N(2), N(3), M(0)};
constexpr Bit kRdna3ElementC[] = {M(1), M(2), M(3)};
constexpr Split kRdna3Splits[] = {
    {OptOp::kUnroll, kTileK, 16}, {OptOp::kLocal, kTileN, 8},  {OptOp::kLocal, kTileN, 2},
    {OptOp::kLocal, kTileM, 2},   {OptOp::kUpcast, kTileM, 8},
};
constexpr TensorCore Rdna3(Scalar in, Scalar out) {
  return {{16, 16, 16},
          in,
          out,
          kRdna3Splits,
          {kRdna3LaneA, kElementsK16},
          {kRdna3LaneB, kElementsK16},
          {kRdna3LaneC, kRdna3ElementC}};
}
constexpr TensorCore kRdna3[] = {
    Rdna3(Scalar::kFloat16, Scalar::kFloat32),
    Rdna3(Scalar::kFloat16, Scalar::kFloat16),
};

// "AMD RDNA4 ISA", 7.12, wave32: the halves of the wave hold the halves of K, and of C's rows.
constexpr Bit kRdna4LaneA[] = {M(0), M(1), M(2), M(3), K(3)};
constexpr Bit kRdna4LaneB[] = {N(0), N(1), N(2), N(3), K(3)};
constexpr Bit kRdna4LaneC[] = {N(0), N(1), N(2), N(3), M(3)};
constexpr Bit kRdna4ElementC[] = {M(0), M(1), M(2)};
constexpr Split kRdna4Splits[] = {
    {OptOp::kUnroll, kTileK, 16}, {OptOp::kLocal, kTileN, 8}, {OptOp::kLocal, kTileN, 2},
    {OptOp::kUpcast, kTileM, 8},  {OptOp::kLocal, kTileM, 2},
};
constexpr TensorCore Rdna4(Scalar in, Scalar out) {
  return {{16, 16, 16},
          in,
          out,
          kRdna4Splits,
          {kRdna4LaneA, kElementsK8},
          {kRdna4LaneB, kElementsK8},
          {kRdna4LaneC, kRdna4ElementC}};
}
constexpr TensorCore kRdna4[] = {
    Rdna4(Scalar::kFloat16, Scalar::kFloat32),
    Rdna4(Scalar::kBFloat16, Scalar::kFloat32),
    Rdna4(Scalar::kFloat16, Scalar::kFloat16),
};

// "AMD Instinct MI200 / CDNA3 ISA", "V_MFMA", wave64, 16 x 16 x 16 of f16 and (gfx90a: _1k) bf16: a
// quarter of the wave holds four of K, and four rows of C.
constexpr Bit kCdnaLaneA[] = {M(0), M(1), M(2), M(3), K(2), K(3)};
constexpr Bit kCdnaLaneB[] = {N(0), N(1), N(2), N(3), K(2), K(3)};
constexpr Bit kCdnaLaneC[] = {N(0), N(1), N(2), N(3), M(2), M(3)};
constexpr Bit kCdnaElementC[] = {M(0), M(1)};
constexpr Split kCdnaSplits[] = {
    {OptOp::kUnroll, kTileK, 16}, {OptOp::kLocal, kTileN, 8}, {OptOp::kLocal, kTileN, 2},
    {OptOp::kUpcast, kTileM, 4},  {OptOp::kLocal, kTileM, 4},
};
constexpr TensorCore Cdna(Scalar in) {
  return {{16, 16, 16},
          in,
          Scalar::kFloat32,
          kCdnaSplits,
          {kCdnaLaneA, kElementsK4},
          {kCdnaLaneB, kElementsK4},
          {kCdnaLaneC, kCdnaElementC}};
}
constexpr TensorCore kCdna[] = {Cdna(Scalar::kFloat16), Cdna(Scalar::kBFloat16)};

}  // namespace

int TensorCore::ThreadAxes() const {
  return static_cast<int>(std::count_if(
      splits.begin(), splits.end(), [](const Split& split) { return split.op == OptOp::kLocal; }));
}

int64_t TensorCore::ElementsPerThread() const {
  int64_t elements = 1;
  for (const Split& split : splits) {
    if (split.op != OptOp::kLocal) elements *= split.amount;
  }
  return elements;
}

std::span<const TensorCore> TensorCoresOf(const TargetCaps& caps) {
  switch (caps.kind) {
    case TargetKind::kCuda: {
      const int capability = ComputeCapability(caps.arch);
      if (capability >= 80) {
        const std::span<const TensorCore> all = kAmpere;
        return caps.allow_tf32 ? all : all.first(all.size() - kTf32Cores);
      }
      if (capability >= 75) return kTuring;
      break;
    }
    case TargetKind::kHip:
      if (absl::StartsWith(caps.arch, "gfx11")) return kRdna3;
      if (absl::StartsWith(caps.arch, "gfx120")) return kRdna4;
      if (caps.arch == "gfx90a" || caps.arch == "gfx942") return kCdna;
      break;
    case TargetKind::kCpu:
      break;
  }
  return {};
}

}  // namespace beamd

#include "engine/kernel/tensor_core.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace beamd {
namespace {

using Split = TensorCore::Split;

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": a thread of 32 holds 2 x 2
// elements of C; the lane's two low bits count pairs of N, the others rows of M.
constexpr Split kM16N8K16[] = {
    {OptOp::kUnroll, kTileK, 8}, {OptOp::kUnroll, kTileK, 2}, {OptOp::kUpcast, kTileN, 2},
    {OptOp::kUpcast, kTileM, 2}, {OptOp::kLocal, kTileN, 2},  {OptOp::kLocal, kTileN, 2},
    {OptOp::kLocal, kTileM, 2},  {OptOp::kLocal, kTileM, 2},  {OptOp::kLocal, kTileM, 2},
};
constexpr TensorCore kAmpere[] = {
    {{8, 16, 16}, Scalar::kFloat16, Scalar::kFloat32, kM16N8K16},
    {{8, 16, 16}, Scalar::kBFloat16, Scalar::kFloat32, kM16N8K16},
};

// AMD RDNA3 ISA, "Wave Matrix Multiply Accumulate", wave32: a lane of 16 holds a column of N, the
// two halves of the wave every other row of M.
constexpr Split kWmma16[] = {
    {OptOp::kUnroll, kTileK, 16}, {OptOp::kLocal, kTileN, 8},  {OptOp::kLocal, kTileN, 2},
    {OptOp::kLocal, kTileM, 2},   {OptOp::kUpcast, kTileM, 8},
};
constexpr TensorCore kRdna3[] = {
    {{16, 16, 16}, Scalar::kFloat16, Scalar::kFloat32, kWmma16},
    {{16, 16, 16}, Scalar::kFloat16, Scalar::kFloat16, kWmma16},
};

// Of "sm_80" 80, of "sm_90a" 90.
int ComputeCapability(absl::string_view arch) {
  if (!absl::ConsumePrefix(&arch, "sm_")) return 0;
  absl::ConsumeSuffix(&arch, "a");
  int capability = 0;
  return absl::SimpleAtoi(arch, &capability) ? capability : 0;
}

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
    case TargetKind::kCuda:
      if (ComputeCapability(caps.arch) >= 80) return kAmpere;
      break;
    case TargetKind::kHip:
      if (absl::StartsWith(caps.arch, "gfx11")) return kRdna3;
      break;
    case TargetKind::kCpu:
      break;
  }
  return {};
}

}  // namespace beamd

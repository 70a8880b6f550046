// Matrix instructions of GPUs, as the makers document them: which lane of a wave holds which
// element of each operand. D (m x n) = A (m x k) * B (k x n) + C.
//
// What engine/kernel says of tensor cores was written apart from this, so a kernel that multiplies
// right here proves both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

namespace beamd {

// What an element is held as. kTf32: 32 bits of which the low 13 count for nothing.
enum class MatrixScalar : uint8_t { kF16, kBf16, kTf32, kF32 };

// Where a step along one bit of a lane's or an element's number leads in a matrix.
struct MatrixStep {
  int16_t row = 0, column = 0;
};

// A fragment: element `e` of lane `l` is at the sum of the steps of the bits set in l and e.
struct MatrixLayout {
  std::array<MatrixStep, 6> lane{};
  std::array<MatrixStep, 4> element{};
  int8_t elements = 0;     // a lane holds
  int8_t unused_bit = -1;  // of the element's number: elements that have it set hold nothing
};

struct MatrixOp {
  absl::string_view intrinsic;  // LLVM's name with the suffixes of its types
  int16_t wave;                 // lanes that take part
  int16_t m, n, k;
  MatrixScalar in, out;  // of A and B, of C and D
  MatrixLayout a, b, c;
  int8_t flags;  // trailing arguments that must be zero
};

std::span<const MatrixOp> MatrixOps();

// Bytes that a lane's A and B, C or D take, elements one after another.
int64_t FragmentBytes(const MatrixLayout& layout, MatrixScalar scalar);

// What the lanes of a wave hand in and get, each a block of its own.
struct MatrixLane {
  const std::byte* in;  // A, then B, then C
  std::byte* out;       // D
};

// Multiplies; `lanes` has op.wave of them. Products are exact and summed in float32 in the order of
// k, then rounded to op.out. Where lanes hold the same element, false unless they agree on it.
// Elements of D that hold nothing become NaN.
bool Multiply(const MatrixOp& op, std::span<const MatrixLane> lanes);

}  // namespace beamd

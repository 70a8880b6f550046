// Sums of multiples: the normal form of integer ADD and MUL.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/symbolic/bounds.h"
#include "engine/uop/uop.h"

namespace beamd {

// constant + sum of coef * base, modulo 2^width of dtype. Coefficients are read as signed and are
// not 0; bases differ, aren't ADDs or multiples, and aren't known constants.
struct LinearForm {
  DType dtype;
  Terms terms;
  int64_t constant = 0;

  bool operator==(const LinearForm&) const = default;
};

// nullopt for a sum of too many terms: what is done per node stays bounded. u: an integer.
std::optional<LinearForm> Linearise(UOp u, BoundsTable& bounds);

// The sum's range over the integers, without wrapping.
struct SumRange {
  Int128 min = 0, max = 0;
};
// nullopt where it isn't known.
std::optional<SumRange> RangeOf(const LinearForm& sum, BoundsTable& bounds);
// The same where it fits the dtype: then the node's value is the integer sum, and `bounds` may be
// tighter. nullopt where the sum may wrap.
std::optional<Bounds> ExactRange(const LinearForm& sum, BoundsTable& bounds);

// Puts the terms in canonical order.
void Sort(LinearForm& sum);
// The node, terms in canonical order.
UOp Build(LinearForm sum, UOpGraph& graph);

// An integer whose node has the value of the integer sum, and where it lies.
struct ExactSum {
  LinearForm sum;
  Bounds bounds;
};
// nullopt where the sum may wrap.
std::optional<ExactSum> ExactSumOf(UOp u, BoundsTable& bounds);

// a - b over the integers; nullopt if a coefficient overflows.
std::optional<LinearForm> Difference(const LinearForm& a, const LinearForm& b);
// Modulo 2^width.
void Negate(LinearForm& sum);
// The sum divided by d, which divides every coefficient; the constant rounds down.
LinearForm DividedBy(LinearForm sum, int64_t d);
// Of the coefficients and `start`.
int64_t GcdOfCoefficients(const LinearForm& sum, int64_t start);
// Absolute values of coefficients, those above 1, largest first.
std::vector<int64_t> DistinctFactors(const LinearForm& sum);

// base and coef of a summand as it stands.
inline Term TermOf(UOp u) {
  if (u.is(Op::kMul) && u.src(1).is_const()) return {u.src(0), u.src(1).int_value()};
  return {u, 1};
}

// Orders nodes by structure, the same way in every process: variables and indices by name, then
// the rest, constants last.
bool CanonicalLess(UOp a, UOp b);

// `v` read as a signed number of the scalar's width.
constexpr int64_t SignedWrap(int64_t v, Scalar s) {
  switch (s) {
    case Scalar::kInt8:
    case Scalar::kUint8:
      return static_cast<int8_t>(v);
    case Scalar::kInt16:
    case Scalar::kUint16:
      return static_cast<int16_t>(v);
    case Scalar::kInt32:
    case Scalar::kUint32:
      return static_cast<int32_t>(v);
    default:
      return v;
  }
}
// Arithmetic modulo 2^64.
constexpr int64_t AddWrap(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
constexpr int64_t MulWrap(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
constexpr int64_t NegWrap(int64_t a) { return static_cast<int64_t>(-static_cast<uint64_t>(a)); }
// Division that rounds down; b > 0.
constexpr int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
constexpr int64_t FloorMod(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

}  // namespace beamd

#include "engine/uop/int_alu.h"

#include <bit>

#include "engine/base/status.h"

namespace beamd {
namespace {

// SEMANTICS: truncates; x/0 = 0, x%0 = 0; the least value by -1 wraps to itself, remainder 0.
int64_t Quotient(Scalar s, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (IsUnsigned(s)) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  }
  if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
  return a / b;
}

int64_t Remainder(Scalar s, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (IsUnsigned(s)) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  }
  return b == -1 ? 0 : a % b;
}

bool Less(Scalar s, int64_t a, int64_t b) {
  return IsUnsigned(s) ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}

int64_t Shift(Op op, Scalar s, int64_t a, int64_t amount) {
  const int bits = Bits(s);
  const bool all_out = amount < 0 || amount >= bits;
  if (op == Op::kShl) return all_out ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << amount);
  if (IsUnsigned(s)) return all_out ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> amount);
  return a >> (all_out ? bits - 1 : amount);
}

}  // namespace

int64_t IntAlu(Op op, Scalar s, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const auto wrap = [s](uint64_t v) { return WrapInt(static_cast<int64_t>(v), s); };
  switch (op) {
    case Op::kNeg:
      return wrap(-ua);
    case Op::kAdd:
      return wrap(ua + ub);
    case Op::kSub:
      return wrap(ua - ub);
    case Op::kMul:
      return wrap(ua * ub);
    case Op::kIdiv:
      return WrapInt(Quotient(s, a, b), s);
    case Op::kMod:
      return WrapInt(Remainder(s, a, b), s);
    case Op::kMax:
      return Less(s, a, b) ? b : a;
    case Op::kCmpLt:
      return Less(s, a, b) ? 1 : 0;
    case Op::kCmpNe:
      return a != b ? 1 : 0;
    case Op::kXor:
      return wrap(ua ^ ub);
    case Op::kOr:
      return wrap(ua | ub);
    case Op::kAnd:
      return wrap(ua & ub);
    case Op::kShl:
    case Op::kShr:
      return WrapInt(Shift(op, s, a, b), s);
    case Op::kThreefry:
      return static_cast<int64_t>(Threefry2x32(ua, ub));
    default:
      CheckFailed(__FILE__, __LINE__, "kIntAlu.Has(op)", Name(op));
  }
}

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11), section 3.2 and Table 2.
uint64_t Threefry2x32(uint64_t counter, uint64_t key) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const uint32_t schedule[3] = {k0, k1, 0x1BD11BDA ^ k0 ^ k1};
  auto x0 = static_cast<uint32_t>(counter), x1 = static_cast<uint32_t>(counter >> 32);
  x0 += schedule[0];
  x1 += schedule[1];
  for (uint32_t group = 1; group <= 5; ++group) {
    for (const int rotation : kRotations[(group - 1) % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, rotation) ^ x0;
    }
    x0 += schedule[group % 3];
    x1 += schedule[(group + 1) % 3] + group;
  }
  return uint64_t{x1} << 32 | x0;
}

}  // namespace beamd

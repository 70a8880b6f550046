// What integer and bool ops compute, one value at a time: two's complement that wraps, and nothing
// traps.
#pragma once

#include <cstdint>

#include "engine/uop/op.h"
#include "engine/uop/uop.h"

namespace beamd {

// The ops that IntAlu knows: what takes integers or bool and isn't a cast or a select.
inline constexpr OpSet kIntAlu = Op::kNeg | Op::kAdd | Op::kMul | Op::kIdiv | Op::kMax | Op::kMod |
                                 Op::kCmpLt | Op::kCmpNe | Op::kXor | Op::kShl | Op::kShr |
                                 Op::kOr | Op::kAnd | Op::kThreefry | Op::kSub;

// `op` on operands of `s` (int or bool), which are as WrapInt leaves them; so is the result, for a
// comparison 0 or 1. `b` is unused by NEG.
int64_t IntAlu(Op op, Scalar s, int64_t a, int64_t b);

// threefry2x32 with 20 rounds; low words are word 0 of counter, key and result.
uint64_t Threefry2x32(uint64_t counter, uint64_t key);

}  // namespace beamd

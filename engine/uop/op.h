// The operations a node can have, and sets of them.
//
// The first block is the wire's (proto/beamd/v1/ast.proto, meanings in tinygrad 0.10.0 ops.py and
// in the README's table); the second is never on the wire: lazy buffers and lowering passes use it.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace beamd {

enum class Op : uint8_t {
  kUnspecified,
  // graph structure and memory
  kSink,
  kStore,
  kLoad,
  kDefineGlobal,
  kDefineLocal,
  kDefineVar,
  kView,
  kValid,
  kConst,
  kAssign,
  kReduceAxis,
  kPreload,
  kBind,
  // type changes
  kCast,
  kBitcast,
  // unary
  kExp2,
  kLog2,
  kSin,
  kSqrt,
  kRecip,
  kNeg,
  // binary
  kAdd,
  kMul,
  kIdiv,
  kMax,
  kMod,
  kCmpLt,
  kCmpNe,
  kXor,
  kShl,
  kShr,
  kOr,
  kAnd,
  kThreefry,
  kSub,
  kFdiv,
  // ternary
  kWhere,
  kMulAcc,
  // tensor graphs only
  kBuffer,
  kReshape,
  kExpand,
  kPermute,
  kPad,
  kShrink,
  kFlip,
  kContiguous,
  kCopy,
  kEmpty,
  // ---- inside the engine only ----
  kBufferView,  // a lazy buffer that is a window of another: no kernel computes it
  // lowering's, in the order in which its passes introduce them
  kRange,      // an axis' index: arg RangeArg; src: extent. Half open, from 0
  kSpecial,    // a GPU grid or local index: arg name; src: extent
  kIndex,      // address of an element: src buffer, index[, valid]
  kReduce,     // folds src 0 over the ranges that follow: arg ReduceArg (its axes are unused)
  kBarrier,    // work-group barrier after its sources
  kVConst,     // a vector constant: arg LanesArg
  kVectorize,  // a vector of its scalar sources
  kGep,        // chosen lanes of src 0: arg LanesArg
  kAcc,      // an accumulator: src identity, then the ranges it lives through; arg int: its number
  kLoop,     // opens the loop of a range
  kEndLoop,  // closes it
  kIf,       // opens a guarded block
  kEndIf,    // closes it
  kWmma,     // a tensor-core product
  kCount
};
inline constexpr int kOpCount = static_cast<int>(Op::kCount);
static_assert(kOpCount <= 128, "OpSet has 128 bits");

// Upper-case name as on the wire without OP_: "REDUCE_AXIS".
absl::string_view Name(Op op);
std::optional<Op> OpFromName(absl::string_view name);

// A set of Ops in two words. Usable as a template argument.
struct OpSet {
  uint64_t lo = 0, hi = 0;

  constexpr OpSet() = default;
  constexpr OpSet(Op op)  // an op is a set of one
      : lo(static_cast<int>(op) < 64 ? uint64_t{1} << (static_cast<int>(op) & 63) : 0),
        hi(static_cast<int>(op) >= 64 ? uint64_t{1} << (static_cast<int>(op) & 63) : 0) {}
  static constexpr OpSet All() {
    OpSet s;
    for (int i = 0; i < kOpCount; ++i) s = s | OpSet(static_cast<Op>(i));
    return s;
  }

  constexpr bool Has(Op op) const {
    const int i = static_cast<int>(op);
    return ((i < 64 ? lo : hi) >> (i & 63)) & 1;
  }
  constexpr bool Covers(OpSet other) const {
    return (other.lo & ~lo) == 0 && (other.hi & ~hi) == 0;
  }
  constexpr bool Empty() const { return lo == 0 && hi == 0; }
  constexpr bool IsSingle() const {
    return (lo == 0) != (hi == 0) && (lo & (lo - 1)) == 0 && (hi & (hi - 1)) == 0;
  }
  friend constexpr OpSet operator|(OpSet a, OpSet b) { return Raw(a.lo | b.lo, a.hi | b.hi); }
  friend constexpr OpSet operator&(OpSet a, OpSet b) { return Raw(a.lo & b.lo, a.hi & b.hi); }
  constexpr bool operator==(const OpSet&) const = default;

 private:
  static constexpr OpSet Raw(uint64_t lo, uint64_t hi) {
    OpSet s;
    s.lo = lo;
    s.hi = hi;
    return s;
  }
};
constexpr OpSet operator|(Op a, Op b) { return OpSet(a) | OpSet(b); }

inline constexpr OpSet kUnary =
    Op::kExp2 | Op::kLog2 | Op::kSin | Op::kSqrt | Op::kRecip | Op::kNeg;
inline constexpr OpSet kCommutative =
    Op::kAdd | Op::kMul | Op::kMax | Op::kCmpNe | Op::kXor | Op::kAnd | Op::kOr;
inline constexpr OpSet kAssociative =
    Op::kAdd | Op::kMul | Op::kMax | Op::kAnd | Op::kOr | Op::kXor;
inline constexpr OpSet kComparison = Op::kCmpLt | Op::kCmpNe;
inline constexpr OpSet kBinary = kCommutative | Op::kIdiv | Op::kMod | Op::kCmpLt | Op::kShl |
                                 Op::kShr | Op::kThreefry | Op::kSub | Op::kFdiv;
inline constexpr OpSet kTernary = Op::kWhere | Op::kMulAcc;
inline constexpr OpSet kAlu = kUnary | kBinary | kTernary;
// Nodes of a kernel graph that a view belongs to.
inline constexpr OpSet kBufferOps = Op::kLoad | Op::kStore | Op::kValid | Op::kPreload;

}  // namespace beamd

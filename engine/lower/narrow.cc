#include "engine/lower/narrow.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/symbolic/bounds.h"

namespace beamd {
namespace {

constexpr OpSet kIndexOps = Op::kAdd | Op::kMul | Op::kIdiv | Op::kMod | Op::kMax | Op::kNeg |
                            Op::kSub | Op::kVectorize | Op::kGep | Op::kConst | Op::kVConst;
constexpr OpSet kLeaves = Op::kRange | Op::kSpecial | Op::kDefineVar;
// What is worth it on a CPU.
constexpr OpSet kTargets = Op::kCmpLt | Op::kCmpNe | Op::kIdiv | Op::kMod;

bool FitsInt32(Bounds b) {
  return b.min >= std::numeric_limits<int32_t>::min() &&
         b.max <= std::numeric_limits<int32_t>::max();
}

class Narrower {
 public:
  Narrower(UOp sink, const TargetCaps& caps)
      : g_(sink.graph()),
        everywhere_(caps.has_local),
        order_(Toposort(sink)),
        fits_(g_.size()),
        range_(g_.size()) {}

  UOp Run() {
    for (const UOp u : order_) fits_[u.id()] = Fits(u);
    const size_t size = g_.size();
    wide_.resize(size);
    narrow_.resize(size);
    std::vector<UOp> src;
    for (const UOp u : order_) {
      src.clear();
      if (u.is(kTargets) && u.src(0).scalar() == Scalar::kInt64 && fits_[u.src(0).id()] &&
          fits_[u.src(1).id()]) {
        src = {Narrow(u.src(0)), Narrow(u.src(1))};
        const bool compares = u.is(kComparison);
        const UOp n =
            g_.Make(u.op(), compares ? u.dtype() : u.dtype().WithScalar(Scalar::kInt32), src);
        wide_[u.id()] = compares ? n : Cast(n, u.dtype());
        if (!compares) narrow_[u.id()] = n;
        continue;
      }
      if (everywhere_ && NarrowWhole(u)) continue;
      for (const UOp s : u.src()) src.push_back(wide_[s.id()]);
      wide_[u.id()] = std::ranges::equal(src, u.src()) ? u : u.WithSrc(src);
    }
    return wide_[order_.back().id()];
  }

 private:
  // What an address, a loop or an expression becomes where all narrow ones are better. False: it is
  // made of its sources like any other node.
  bool NarrowWhole(UOp u) {
    if (u.is(Op::kAcc)) {
      std::vector<UOp> src = {wide_[u.src(0).id()]};
      for (const UOp range : u.src().subspan(1)) {
        src.push_back(narrow_[range.id()] ? narrow_[range.id()] : range);
      }
      wide_[u.id()] = u.WithSrc(src);
      return true;
    }
    if (u.is(Op::kIndex) && fits_[u.src(1).id()]) {
      std::vector<UOp> src;
      for (const UOp s : u.src()) src.push_back(wide_[s.id()]);
      src[1] = Narrow(u.src(1));
      wide_[u.id()] = u.WithSrc(src);
      return true;
    }
    if (!fits_[u.id()] || u.lanes() != 1) return false;
    if (u.is(Op::kRange)) {
      if (!fits_[u.src(0).id()]) return false;
      narrow_[u.id()] = g_.Make(Op::kRange, Scalar::kInt32, {Narrow(u.src(0))}, u.arg());
    } else if (u.is(kLeaves) || u.is_const()) {
      return false;
    }
    wide_[u.id()] = Cast(Narrow(u), u.dtype());
    return true;
  }

  // Itself and all that it is computed from.
  bool Fits(UOp u) {
    if (u.scalar() != Scalar::kInt64 || !u.is(kIndexOps | kLeaves)) return false;
    if (!u.is(kLeaves)) {
      for (const UOp s : u.src()) {
        if (!fits_[s.id()]) return false;
      }
    }
    const bool scalar = u.is_const() || (u.lanes() == 1 && !u.is(Op::kGep));
    range_[u.id()] = scalar ? bounds_.Of(u) : VectorBounds(u);
    return FitsInt32(range_[u.id()]);
  }

  // Of all lanes together, from those of the operands. They fit 32 bits, so nothing here overflows
  // 64.
  Bounds VectorBounds(UOp u) const {
    if (u.is(Op::kVConst)) {
      const auto [lo, hi] = std::ranges::minmax_element(u.data<LanesArg>().lanes);
      return {*lo, *hi};
    }
    const Bounds a = range_[u.src(0).id()];
    if (u.is(Op::kGep)) return a;
    if (u.is(Op::kVectorize)) {
      Bounds all = a;
      for (const UOp s : u.src()) {
        const Bounds b = range_[s.id()];
        all = {std::min(all.min, b.min), std::max(all.max, b.max)};
      }
      return all;
    }
    if (u.is(Op::kAdd | Op::kMul)) {
      const Bounds b = range_[u.src(1).id()];
      if (u.is(Op::kAdd)) return {a.min + b.min, a.max + b.max};
      const int64_t corners[] = {a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max};
      return {*std::ranges::min_element(corners), *std::ranges::max_element(corners)};
    }
    return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }

  // Operands come first, so theirs are there; only a chain of single nodes can be met again.
  UOp Narrow(UOp root) {
    std::vector<UOp> stack = {root};
    std::vector<UOp> src;
    while (!stack.empty()) {
      const UOp u = stack.back();
      if (narrow_[u.id()]) {
        stack.pop_back();
        continue;
      }
      const DType dtype = u.dtype().WithScalar(Scalar::kInt32);
      if (u.is(kLeaves)) {
        narrow_[u.id()] = Cast(wide_[u.id()], dtype);
      } else if (u.is_const()) {
        narrow_[u.id()] = g_.Const(dtype, u.int_value());
      } else {
        src.clear();
        for (const UOp s : u.src()) {
          if (!narrow_[s.id()]) stack.push_back(s);
        }
        if (stack.back() != u) continue;
        for (const UOp s : u.src()) src.push_back(narrow_[s.id()]);
        narrow_[u.id()] = g_.Make(u.op(), dtype, src, u.arg());
      }
      stack.pop_back();
    }
    return narrow_[root.id()];
  }

  UOpGraph& g_;
  const bool everywhere_;
  const std::vector<UOp> order_;
  std::vector<bool> fits_;
  std::vector<Bounds> range_;  // of those that the bounds decide
  std::vector<UOp> wide_, narrow_;
  BoundsTable bounds_;
};

}  // namespace

UOp NarrowIndices(UOp sink, const TargetCaps& caps) { return Narrower(sink, caps).Run(); }

}  // namespace beamd

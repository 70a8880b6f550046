#include "engine/lower/narrow.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/symbolic/bounds.h"

namespace beamd {
namespace {

constexpr OpSet kIndexOps = Op::kAdd | Op::kMul | Op::kIdiv | Op::kMod | Op::kMax | Op::kNeg |
                            Op::kSub | Op::kVectorize | Op::kGep | Op::kConst | Op::kVConst;
constexpr OpSet kLeaves = Op::kRange | Op::kDefineVar;
// What is worth it.
constexpr OpSet kTargets = Op::kCmpLt | Op::kCmpNe | Op::kIdiv | Op::kMod;

bool FitsInt32(Bounds b) {
  return b.min >= std::numeric_limits<int32_t>::min() &&
         b.max <= std::numeric_limits<int32_t>::max();
}

class Narrower {
 public:
  explicit Narrower(UOp sink) : g_(sink.graph()), order_(Toposort(sink)), fits_(g_.size()) {}

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
      for (const UOp s : u.src()) src.push_back(wide_[s.id()]);
      wide_[u.id()] = std::ranges::equal(src, u.src()) ? u : u.WithSrc(src);
    }
    return wide_[order_.back().id()];
  }

 private:
  // Itself and all that it is computed from.
  bool Fits(UOp u) {
    if (u.scalar() != Scalar::kInt64 || !u.is(kIndexOps | kLeaves)) return false;
    if (u.is(Op::kVConst)) {
      for (const int64_t lane : u.data<LanesArg>().lanes) {
        if (!FitsInt32({lane, lane})) return false;
      }
      return true;
    }
    if (!u.is(kLeaves)) {
      for (const UOp s : u.src()) {
        if (!fits_[s.id()]) return false;
      }
    }
    // A vector's bounds are those of its parts, which fit.
    if (u.is(Op::kVectorize | Op::kGep)) return true;
    if (u.lanes() > 1 && !u.is_const()) return FitsInt32(VectorBounds(u));
    return FitsInt32(bounds_.Of(u));
  }

  // Interval arithmetic a lane at a time; Of() answers for scalars.
  Bounds VectorBounds(UOp u) {
    if (u.is(Op::kVConst)) {
      const auto [lo, hi] = std::ranges::minmax_element(u.data<LanesArg>().lanes);
      return {*lo, *hi};
    }
    if (u.is(Op::kVectorize)) {
      Bounds b = VectorBounds(u.src(0));
      for (const UOp s : u.src()) {
        const Bounds of = VectorBounds(s);
        b = {std::min(b.min, of.min), std::max(b.max, of.max)};
      }
      return b;
    }
    if (u.lanes() == 1 || u.is_const()) return bounds_.Of(u);
    if (!u.is(Op::kAdd | Op::kMul)) {
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    }
    // Operands fit 32 bits, so nothing here overflows 64.
    const Bounds a = VectorBounds(u.src(0)), b = VectorBounds(u.src(1));
    if (!FitsInt32(a) || !FitsInt32(b)) {
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    }
    if (u.is(Op::kAdd)) return {a.min + b.min, a.max + b.max};
    const int64_t corners[] = {a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max};
    return {*std::ranges::min_element(corners), *std::ranges::max_element(corners)};
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
  const std::vector<UOp> order_;
  std::vector<bool> fits_;
  std::vector<UOp> wide_, narrow_;
  BoundsTable bounds_;
};

}  // namespace

UOp NarrowIndices(UOp sink) { return Narrower(sink).Run(); }

}  // namespace beamd

// Interval analysis, memoised by node, with optional assumptions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/symbolic/symbolic.h"
#include "engine/uop/uop.h"

namespace beamd {

__extension__ using Int128 = __int128;

// Integers and bools, pointers apart.
inline bool IsIntegral(DType t) {
  return !t.is_pointer() && (IsInt(t.scalar) || t.scalar == Scalar::kBool);
}

// All values of an integer or bool scalar; uint64's as Bounds says.
Bounds FullRange(Scalar s);

// Of uint64 and not known to fit int64: its values can't be computed with.
inline bool IsUnknown(Scalar s, Bounds b) { return s == Scalar::kUint64 && b.min < 0; }

// expr's value lies in bounds.
struct Fact {
  UOp expr;
  Bounds bounds;
};

// coef * base.
struct Term {
  UOp base;
  int64_t coef;
  bool operator==(const Term&) const = default;
};
using Terms = absl::InlinedVector<Term, 8>;

class BoundsTable {
 public:
  Bounds Of(UOp u) {
    const Entry* entry = Find(u);
    return entry != nullptr ? entry->bounds : Learn(u);
  }

  // From now on, bounds hold only where the facts do. Drops what is memoised. False if the facts
  // contradict each other; bounds are then arbitrary.
  bool Assume(const std::vector<Fact>& facts);

 private:
  struct Entry {
    Bounds bounds;
    uint64_t epoch = 0;
  };
  // A fact about a sum without a constant.
  struct SumFact {
    Terms terms;
    Bounds bounds;
  };

  const Entry* Find(UOp u) const {
    return u.id() < known_.size() && known_[u.id()].epoch == epoch_ ? &known_[u.id()] : nullptr;
  }
  Bounds Learn(UOp u);
  Bounds Known(UOp u) const;
  Bounds Compute(UOp u);
  Bounds Binary(UOp u) const;
  Bounds Refine(UOp u, Bounds b);

  uint64_t epoch_ = 1;
  std::vector<Entry> known_;
  std::vector<UOp> stack_;
  std::vector<Fact> facts_;
  std::vector<SumFact> sum_facts_;
};

}  // namespace beamd

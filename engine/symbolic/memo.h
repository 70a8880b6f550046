// What engine/symbolic remembers about a graph: bounds and simplified forms by node.
#pragma once

#include <vector>

#include "engine/rewrite/graph_rewrite.h"
#include "engine/symbolic/bounds.h"
#include "engine/uop/uop.h"

namespace beamd {

class SymbolicMemo : public GraphMemo {
 public:
  static SymbolicMemo& Of(UOpGraph& graph);

  // Bounds that the rules may rely on now: those of every point, or inside SimplifyAssuming those
  // of the points where the facts hold.
  BoundsTable& bounds() { return assuming_ ? assumed_bounds_ : bounds_; }

  UOp Simplify(UOp u);
  // Where the facts hold, equal to u. Not to be called from a rule. Null if the facts contradict
  // each other.
  UOp SimplifyAssuming(UOp u, const std::vector<Fact>& facts);

 private:
  SymbolicMemo();

  BoundsTable bounds_;
  Rewriter rewriter_;
  bool assuming_ = false;
  BoundsTable assumed_bounds_;
  Rewriter assumed_rewriter_;
};

// Bounds for use in rules.
inline Bounds BoundsNow(UOp u) { return SymbolicMemo::Of(u.graph()).bounds().Of(u); }

}  // namespace beamd

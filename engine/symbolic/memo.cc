#include "engine/symbolic/memo.h"

#include <memory>

#include "engine/symbolic/symbolic.h"

namespace beamd {
namespace {

// Rule applications: many times what expressions take. Rules that don't settle lose this much work.
int64_t FuelFor(UOp u) { return 50'000 + 20 * static_cast<int64_t>(u.graph().size()); }

}  // namespace

SymbolicMemo::SymbolicMemo() : rewriter_(SymbolicRules()), assumed_rewriter_(SymbolicRules()) {}

SymbolicMemo& SymbolicMemo::Of(UOpGraph& graph) {
  std::unique_ptr<GraphMemo>& memo = graph.symbolic_memo();
  if (memo == nullptr) memo.reset(new SymbolicMemo());
  return static_cast<SymbolicMemo&>(*memo);
}

UOp SymbolicMemo::Simplify(UOp u) {
  const UOp out = rewriter_.Rewrite(u, FuelFor(u));
  return out ? out : u;
}

UOp SymbolicMemo::SimplifyAssuming(UOp u, const std::vector<Fact>& facts) {
  if (!assumed_bounds_.Assume(facts)) return nullptr;
  assumed_rewriter_.Forget();
  assuming_ = true;
  const UOp out = assumed_rewriter_.Rewrite(u, FuelFor(u));
  assuming_ = false;
  return out ? out : u;
}

}  // namespace beamd

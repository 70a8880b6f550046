// Runs a rule table over a graph to its fixed point.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/rewrite/rule_table.h"
#include "engine/uop/uop.h"

namespace beamd {

inline constexpr int64_t kRewriteFuel = 1'000'000;

// Rewrites bottom-up until no rule applies: sources first, then the node, then the result again.
// Uses its own work stack (a client's graph chooses the depth) and at most `fuel` rule
// applications: ResourceExhausted naming the table when they don't suffice.
absl::StatusOr<UOp> GraphRewrite(UOp root, const RuleTable& rules, int64_t fuel = kRewriteFuel);

// The same for many roots of one graph: final forms are kept between them. Only for rules whose
// result follows from the node alone. `rules` must outlive it.
class Rewriter {
 public:
  explicit Rewriter(const RuleTable& rules) : rules_(rules) {}

  // The final form of root; null if `fuel` ends first. All roots are of one graph, until Forget.
  UOp Rewrite(UOp root, int64_t fuel = kRewriteFuel);
  // Drops the kept forms in constant time.
  void Forget();

 private:
  struct Frame {
    UOp node, becomes;
  };
  struct Entry {
    UOp final_form;
    uint64_t epoch = 0;
  };

  UOp Done(UOp u) const {
    return u.id() < done_.size() && done_[u.id()].epoch == epoch_ ? done_[u.id()].final_form
                                                                  : UOp();
  }
  void SetDone(UOp u, UOp final_form);
  bool PushPendingSources(UOp u);
  UOp Step(UOp u, int64_t& fuel);

  const RuleTable& rules_;
  uint64_t epoch_ = 1;
  std::vector<Frame> stack_;
  std::vector<Entry> done_;
  std::vector<UOp> sources_;
};

}  // namespace beamd

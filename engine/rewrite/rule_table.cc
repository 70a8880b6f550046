#include "engine/rewrite/rule_table.h"

#include "absl/strings/str_cat.h"

namespace beamd {

void RuleTable::BuildIndex() {
  for (auto& list : by_op_) list.clear();
  for (const auto& rule : rules_) {
    for (int op = 0; op < kOpCount; ++op) {
      if (rule->roots.Has(static_cast<Op>(op))) by_op_[op].push_back({rule->needs, rule.get()});
    }
  }
}

RuleTable operator+(const RuleTable& a, const RuleTable& b) {
  RuleTable sum(a);
  absl::StrAppend(&sum.name_, "+", b.name_);
  sum.rules_.insert(sum.rules_.end(), b.rules_.begin(), b.rules_.end());
  sum.BuildIndex();
  return sum;
}

}  // namespace beamd

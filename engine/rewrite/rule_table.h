// An ordered list of rules with an index by root op.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/rewrite/pattern.h"
#include "engine/uop/uop.h"

namespace beamd {

class AnyRule {
 public:
  virtual ~AnyRule() = default;
  virtual UOp Apply(UOp u) const = 0;
  virtual bool Instantiate(std::span<const UOp> captures, UOp* before, UOp* after) const = 0;
  virtual std::string ToString() const = 0;

  const OpSet roots, needs;
  const pattern::SourceLine where;

 protected:
  AnyRule(OpSet roots, OpSet needs, pattern::SourceLine where)
      : roots(roots), needs(needs), where(where) {}
};

// Immutable once built: safe to share between threads. Tables concatenate with +, keeping order.
class RuleTable {
 public:
  template <class... Rs>
  explicit RuleTable(absl::string_view name, Rs... rules) : name_(name) {
    (rules_.push_back(std::make_shared<Holder<Rs>>(rules)), ...);
    BuildIndex();
  }
  friend RuleTable operator+(const RuleTable& a, const RuleTable& b);

  // The result of the first rule, in table order, that applies to u; null if none does.
  UOp Rewrite(UOp u) const {
    for (const Entry& entry : by_op_[static_cast<int>(u.op())]) {
      if (!u.src_ops().Covers(entry.needs)) continue;
      if (UOp out = entry.rule->Apply(u)) return out;
    }
    return nullptr;
  }
  const std::vector<std::shared_ptr<const AnyRule>>& rules() const { return rules_; }
  absl::string_view name() const { return name_; }

 private:
  template <class R>
  struct Holder final : AnyRule {
    explicit Holder(R r) : AnyRule(R::kRoots, R::kNeeds, r.where()), rule(r) {}
    UOp Apply(UOp u) const override { return rule.Apply(u); }
    bool Instantiate(std::span<const UOp> c, UOp* b, UOp* a) const override {
      return rule.Instantiate(c, b, a);
    }
    std::string ToString() const override { return rule.ToString(); }
    R rule;
  };
  struct Entry {
    OpSet needs;
    const AnyRule* rule;
  };
  void BuildIndex();

  std::string name_;
  std::vector<std::shared_ptr<const AnyRule>> rules_;
  std::array<std::vector<Entry>, kOpCount> by_op_;
};

}  // namespace beamd

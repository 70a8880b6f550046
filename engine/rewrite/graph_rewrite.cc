#include "engine/rewrite/graph_rewrite.h"

#include "absl/strings/str_cat.h"

namespace beamd {

// A frame waits for its node's sources, then rewrites the node; if that yields another node, the
// frame waits for that node's final form and takes it over.
UOp Rewriter::Rewrite(UOp root, int64_t fuel) {
  stack_.clear();
  stack_.push_back({root, {}});
  while (!stack_.empty()) {
    const Frame top = stack_.back();
    if (Done(top.node)) {
      stack_.pop_back();
    } else if (top.becomes) {
      SetDone(top.node, Done(top.becomes));
      stack_.pop_back();
    } else if (!PushPendingSources(top.node)) {
      const UOp next = Step(top.node, fuel);
      if (fuel < 0) return nullptr;
      if (next) {
        stack_.back().becomes = next;
        stack_.push_back({next, {}});
      } else {
        SetDone(top.node, top.node);
        stack_.pop_back();
      }
    }
  }
  return Done(root);
}

void Rewriter::Forget() { ++epoch_; }

void Rewriter::SetDone(UOp u, UOp final_form) {
  if (u.id() >= done_.size()) done_.resize(u.graph().size() * 2 + 64);
  done_[u.id()] = {final_form, epoch_};
}

bool Rewriter::PushPendingSources(UOp u) {
  const size_t before = stack_.size();
  for (int i = u.src_count() - 1; i >= 0; --i) {
    if (!Done(u.src(i))) stack_.push_back({u.src(i), {}});
  }
  return stack_.size() != before;
}

// u over final sources: rebuilt if they changed, else the first rule's result; null if settled.
UOp Rewriter::Step(UOp u, int64_t& fuel) {
  sources_.clear();
  bool changed = false;
  for (const UOp s : u.src()) {
    sources_.push_back(Done(s));
    changed |= sources_.back() != s;
  }
  if (changed) return u.WithSrc(sources_);
  const UOp out = rules_.Rewrite(u);
  if (!out || out == u) return nullptr;
  --fuel;
  return out;
}

absl::StatusOr<UOp> GraphRewrite(UOp root, const RuleTable& rules, int64_t fuel) {
  if (const UOp out = Rewriter(rules).Rewrite(root, fuel)) return out;
  return absl::ResourceExhaustedError(
      absl::StrCat("rules \"", rules.name(), "\" did not settle within ", fuel, " steps"));
}

}  // namespace beamd

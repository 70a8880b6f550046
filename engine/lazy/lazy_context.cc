#include "engine/lazy/lazy_context.h"

#include <utility>
#include <variant>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/lazy/lazy_node.h"

namespace beamd {

LazyContext::LazyContext(std::string device, Realizer* realizer)
    : device_(std::move(device)), realizer_(realizer) {}

LazyContext::~LazyContext() {
  extension_.reset();
  BEAMD_CHECK(live_nodes_ == 0, "a LazyContext outlives its lazy buffers");
}

UOp LazyContext::Variable(const std::string& name, int64_t min, int64_t max) {
  return graph_.Variable(name, min, max);
}

absl::Status LazyContext::Bind(UOp variable, int64_t value) {
  if (!variable || !variable.is(Op::kDefineVar) || &variable.graph() != &graph_) {
    return absl::InvalidArgumentError("Bind: not a variable of this context");
  }
  const auto& v = variable.data<VariableArg>();
  if (value < v.min || value > v.max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Bind: ", v.name, " = ", value, " is outside its bounds [", v.min, ", ", v.max, "]"));
  }
  bindings_[v.name] = value;
  return absl::OkStatus();
}

const std::string* LazyContext::InternDevice(absl::string_view device) {
  return &*devices_.emplace(device).first;
}

size_t LazyContext::CacheHash::operator()(const LazyNode* node) const { return node->hash; }

bool LazyContext::CacheEqual::operator()(const LazyNode* a, const LazyNode* b) const {
  return a->hash == b->hash && a->made_by == b->made_by && a->dtype == b->dtype &&
         a->image == b->image && a->device == b->device && a->src_ids == b->src_ids &&
         *a->st == *b->st && a->arg == b->arg;
}

}  // namespace beamd

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {
namespace {

using GradientMap = absl::flat_hash_map<const Tensor::Impl*, LazyBuffer>;

bool WantsGradient(const Tensor& tensor) { return tensor.requires_grad().value_or(false); }

// Every tensor that `root` was recorded from, root included: each after all of its parents.
std::vector<Tensor> Below(const Tensor& root) {
  struct Visit {
    Tensor tensor;
    size_t next_parent = 0;
  };
  std::vector<Tensor> order;
  absl::flat_hash_set<const Tensor::Impl*> seen = {root.impl().get()};
  std::vector<Visit> path;
  path.push_back({root});
  while (!path.empty()) {
    Visit& visit = path.back();
    const Recorded* const recorded = visit.tensor.impl()->recorded.get();
    if (recorded != nullptr && visit.next_parent < recorded->parents.size()) {
      const Tensor& parent = recorded->parents[visit.next_parent++];
      if (seen.insert(parent.impl().get()).second) path.push_back({parent});
      continue;
    }
    order.push_back(std::move(visit.tensor));
    path.pop_back();
  }
  return order;
}

// What `root` is differentiated with, or why it can't be.
absl::StatusOr<LazyBuffer> Seed(absl::string_view operation, const Tensor& root,
                                const Tensor& gradient) {
  const auto invalid = [operation](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", why...));
  };
  if (!root.ok()) return root.status();
  if (!root.is_floating_point()) {
    return invalid("a value of ", Name(root.dtype()), " has no gradient");
  }
  if (!WantsGradient(root)) {
    return absl::FailedPreconditionError(
        absl::StrCat(operation, ": nothing is recorded: no input requires a gradient"));
  }
  if (root.impl()->recording_freed) {
    return absl::FailedPreconditionError(absl::StrCat(
        operation, ": an earlier backward freed what was recorded; retain_graph keeps it"));
  }
  if (!gradient.defined()) {
    if (root.ndim() != 0) {
      return invalid("a tensor of shape ", ToString(root.shape()),
                     " is no scalar and needs a gradient");
    }
    return root.lazydata().ConstLike(1);
  }
  if (!gradient.ok()) return gradient.status();
  if (&gradient.context() != &root.context()) {
    return invalid("the gradient is of another context");
  }
  if (gradient.shape() != root.shape()) {
    return invalid("a gradient of shape ", ToString(gradient.shape()), " for a tensor of ",
                   ToString(root.shape()));
  }
  if (gradient.dtype() != root.dtype()) {
    return invalid("a gradient of ", Name(gradient.dtype()), " for a tensor of ",
                   Name(root.dtype()));
  }
  return gradient.lazydata().CopyTo(root.device());
}

// The gradient of every tensor of `order` that requires and has one; the last is the root.
absl::StatusOr<GradientMap> Propagate(absl::string_view operation, const std::vector<Tensor>& order,
                                      const LazyBuffer& seed) {
  GradientMap gradients;
  gradients.emplace(order.back().impl().get(), seed);
  for (auto tensor = order.rbegin(); tensor != order.rend(); ++tensor) {
    const auto found = gradients.find(tensor->impl().get());
    // Below a comparison or a condition nothing arrives.
    if (found == gradients.end()) continue;
    if (tensor->impl()->recording_freed) {
      return absl::FailedPreconditionError(
          absl::StrCat(operation,
                       ": an earlier backward freed a part of what was recorded; retain_graph "
                       "keeps it"));
    }
    const Recorded* const recorded = tensor->impl()->recorded.get();
    if (recorded == nullptr) continue;
    const absl::StatusOr<std::vector<LazyBuffer>> inputs =
        recorded->function->Backward(found->second);
    if (!inputs.ok()) {
      return absl::Status(inputs.status().code(),
                          absl::StrCat(operation, ": ", inputs.status().message()));
    }
    for (size_t i = 0; i < inputs->size(); ++i) {
      const Tensor& parent = recorded->parents[i];
      if (!(*inputs)[i] || !WantsGradient(parent)) continue;
      const LazyBuffer gradient = (*inputs)[i].CopyTo(parent.device());
      BEAMD_CHECK(gradient.shape() == parent.shape() || !AllNumbers(parent.shape()),
                  "a gradient has the shape of its tensor");
      LazyBuffer& sum = gradients[parent.impl().get()];
      sum = sum ? sum + gradient : gradient;
    }
  }
  return gradients;
}

}  // namespace

absl::Status Tensor::Backward(const Tensor& gradient, bool retain_graph) const {
  BEAMD_ASSIGN_OR_RETURN(const LazyBuffer seed, Seed("backward", *this, gradient));
  const std::vector<Tensor> order = Below(*this);
  BEAMD_ASSIGN_OR_RETURN(const GradientMap gradients, Propagate("backward", order, seed));
  std::vector<std::pair<Impl*, Tensor>> grads;
  for (const Tensor& tensor : order) {
    const auto found = gradients.find(tensor.impl().get());
    if (found == gradients.end()) {
      if (tensor.impl()->recorded) grads.emplace_back(tensor.impl().get(), Tensor());
      continue;
    }
    Tensor grad(found->second, false);
    // What was recorded starts anew with each backward; a leaf adds up.
    if (!tensor.impl()->recorded && tensor.grad().defined()) grad = tensor.grad().Add(grad);
    if (!grad.ok()) return grad.status();
    if (grad.shape() != tensor.shape() || grad.dtype() != tensor.dtype()) {
      return absl::InvalidArgumentError(
          absl::StrCat("backward: a tensor of ", ToString(tensor.shape()), " ",
                       Name(tensor.dtype()), " was given a grad of ",
                       ToString(tensor.grad().shape()), " ", Name(tensor.grad().dtype())));
    }
    grads.emplace_back(tensor.impl().get(), std::move(grad));
  }
  for (auto& [impl, grad] : grads) {
    impl->grad = grad.impl();
    if (!retain_graph && impl->recorded) {
      impl->recorded.reset();
      impl->recording_freed = true;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> Tensor::Gradient(std::span<const Tensor> targets,
                                                     const Tensor& gradient) const {
  BEAMD_ASSIGN_OR_RETURN(const LazyBuffer seed, Seed("gradient", *this, gradient));
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i].ok()) return targets[i].status();
    if (!targets[i].is_floating_point()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gradient: target ", i, " is of ", Name(targets[i].dtype()), ", which has no gradient"));
    }
  }
  BEAMD_ASSIGN_OR_RETURN(const GradientMap gradients, Propagate("gradient", Below(*this), seed));
  std::vector<Tensor> results;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto found = gradients.find(targets[i].impl().get());
    if (found == gradients.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("gradient: no gradient reaches target ", i,
                       WantsGradient(targets[i]) ? "" : ", which does not require one"));
    }
    results.emplace_back(found->second, false);
  }
  return results;
}

}  // namespace beamd

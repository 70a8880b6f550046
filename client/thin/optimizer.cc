#include "client/thin/optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/thin/macros.h"

namespace beamd::thin {
namespace {

Tensor InMemory(double value) {
  return Tensor::From<float>({static_cast<float>(value)}, std::vector<int64_t>{1});
}

// Zeros of the shapes of `like`, each in memory of its own.
std::vector<Tensor> ZerosLike(const std::vector<Tensor>& like) {
  std::vector<Tensor> zeros;
  zeros.reserve(like.size());
  for (const Tensor& t : like) zeros.push_back(Tensor::Zeros(t.shape(), t.dtype()).Contiguous());
  return zeros;
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, const SgdOptions& options)
    : parameters_(std::move(parameters)),
      is_adam_(false),
      sgd_(options),
      lr_(InMemory(options.lr)),
      first_(options.momentum == 0 ? std::vector<Tensor>() : ZerosLike(parameters_)) {}

Optimizer::Optimizer(std::vector<Tensor> parameters, const AdamOptions& options)
    : parameters_(std::move(parameters)),
      is_adam_(true),
      adam_(options),
      lr_(InMemory(options.lr)),
      first_(ZerosLike(parameters_)),
      second_(ZerosLike(parameters_)),
      power1_(Tensor::Ones({1}).Contiguous()),
      power2_(Tensor::Ones({1}).Contiguous()) {}

void Optimizer::set_lr(double lr) { lr_ = InMemory(lr); }

absl::Status Optimizer::Step(Session& session, const std::vector<Tensor>& gradients) {
  bool fit = gradients.size() == parameters_.size();
  for (size_t i = 0; fit && i < gradients.size(); ++i) {
    BEAMD_THIN_RETURN_IF_ERROR(gradients[i].status());
    BEAMD_THIN_RETURN_IF_ERROR(parameters_[i].status());
    fit = gradients[i].shape() == parameters_[i].shape();
  }
  if (!fit) {
    return absl::InvalidArgumentError(absl::StrCat(
        gradients.size(), " gradients aren't those of the ", parameters_.size(), " parameters"));
  }
  std::vector<Tensor> state = first_;
  state.insert(state.end(), second_.begin(), second_.end());
  if (is_adam_) state.insert(state.end(), {power1_, power2_});
  // The first time; later it is there. One by one: equal values of one run may be one value.
  for (const Tensor& s : state) BEAMD_THIN_RETURN_IF_ERROR(Compute(session, {s}).status());
  return Compute(session, is_adam_ ? AdamStep(gradients) : SgdStep(gradients)).status();
}

std::vector<Tensor> Optimizer::SgdStep(const std::vector<Tensor>& gradients) const {
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& w = parameters_[i];
    Tensor g = gradients[i];
    if (sgd_.weight_decay != 0) g = g + w * sgd_.weight_decay;
    if (sgd_.momentum != 0) {
      g = first_[i].Assign(first_[i] * sgd_.momentum + g);
      outputs.push_back(g);
    }
    outputs.push_back(w.Assign(w - g * lr_));
  }
  return outputs;
}

std::vector<Tensor> Optimizer::AdamStep(const std::vector<Tensor>& gradients) const {
  const Tensor power1 = power1_.Assign(power1_ * adam_.beta1);
  const Tensor power2 = power2_.Assign(power2_ * adam_.beta2);
  std::vector<Tensor> outputs = {power1, power2};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor &w = parameters_[i], &g = gradients[i];
    const Tensor first = first_[i].Assign(first_[i] * adam_.beta1 + g * (1 - adam_.beta1));
    const Tensor second =
        second_[i].Assign(second_[i] * adam_.beta2 + g.Square() * (1 - adam_.beta2));
    Tensor step = (first / (1 - power1)) / ((second / (1 - power2)).Sqrt() + adam_.eps);
    if (adam_.weight_decay != 0) step = step + w * adam_.weight_decay;
    outputs.insert(outputs.end(), {first, second, w.Assign(w - step * lr_)});
  }
  return outputs;
}

}  // namespace beamd::thin

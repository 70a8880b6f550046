#include "engine/tensor/nn/optim.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/dtype/promotion.h"

namespace beamd::nn {

namespace {

enum class Wanted : uint8_t { kParams, kBuffers };

// Each tensor once, in order. Ones that nobody decided about are trained.
std::vector<Tensor> Chosen(const std::vector<Tensor>& tensors, Wanted wanted) {
  std::vector<Tensor> chosen;
  for (Tensor tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!tensor.requires_grad().has_value()) tensor.set_requires_grad(true);
    const bool is_param = *tensor.requires_grad();
    if (is_param != (wanted == Wanted::kParams)) continue;
    const bool is_known = std::any_of(chosen.begin(), chosen.end(),
                                      [&](const Tensor& other) { return other.is(tensor); });
    if (!is_known) chosen.push_back(std::move(tensor));
  }
  return chosen;
}

std::vector<Tensor> Joined(const std::vector<std::unique_ptr<Optimizer>>& optimizers,
                           const std::vector<Tensor>& (Optimizer::*part)() const) {
  std::vector<Tensor> all;
  for (const auto& optimizer : optimizers) {
    const std::vector<Tensor>& own = (optimizer.get()->*part)();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

Tensor Norm(const Tensor& x) { return x.Square().Sum().Sqrt(); }

// `ratio`, or 1 where a norm is 0.
Tensor TrustRatio(const Tensor& weight_norm, const Tensor& update_norm, const Tensor& ratio) {
  return weight_norm.Gt(0).Where(update_norm.Gt(0).Where(ratio, 1.0), 1.0);
}

}  // namespace

void Optimizer::ZeroGrad() {
  for (Tensor& param : params_) param.clear_grad();
}

absl::StatusOr<std::vector<Tensor>> Optimizer::ScheduleStep() {
  if (params_.empty()) return absl::InvalidArgumentError("an optimiser without a parameter");
  for (size_t i = 0; i < params_.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(params_[i].status());
    if (!params_[i].grad().defined()) {
      return absl::FailedPreconditionError(
          absl::StrCat("optimiser: parameter ", i, " has no gradient; call Backward first"));
    }
    // Checked here: assigning what can't be would spoil the parameter.
    BEAMD_RETURN_IF_ERROR(params_[i].grad().status());
    if (params_[i].grad().shape() != params_[i].shape()) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimiser: the gradient of parameter ", i, " has another shape"));
    }
  }
  if (!params_[0].context().training) {
    return absl::FailedPreconditionError(
        "optimiser: the context is not training; set LazyContext::training before a step");
  }
  std::vector<Tensor> changed = Update();
  changed.insert(changed.end(), params_.begin(), params_.end());
  changed.insert(changed.end(), buffers_.begin(), buffers_.end());
  return changed;
}

absl::Status Optimizer::Step() {
  BEAMD_ASSIGN_OR_RETURN(std::vector<Tensor> changed, ScheduleStep());
  return Tensor::Realize(changed);
}

RatedOptimizer::RatedOptimizer(const std::vector<Tensor>& tensors, double rate)
    : Optimizer(Chosen(tensors, Wanted::kParams), Chosen(tensors, Wanted::kBuffers)) {
  if (params().empty() || !params()[0].ok()) return;
  const Tensor& like = params()[0];
  const std::vector<double> rates = {rate};
  lr = Tensor::From<double>(
      like.context(), rates, {1},
      {.dtype = LeastUpperDType({like.context().default_float, Scalar::kFloat32}),
       .requires_grad = false,
       .device = like.device()});
}

LARS::LARS(const std::vector<Tensor>& tensors, const LARSOptions& options)
    : RatedOptimizer(tensors, options.lr), options_(options) {
  if (options.momentum == 0) return;
  for (const Tensor& param : params()) {
    velocity_.push_back(param.ZerosLike({.requires_grad = false}));
  }
}

std::vector<Tensor> LARS::Update() {
  for (size_t i = 0; i < params().size(); ++i) {
    Tensor param = params()[i];
    const Tensor value = param.Detach();
    // Contiguous: a gradient read twice below is computed once.
    Tensor g = param.grad().Contiguous();
    Tensor ratio;
    if (options_.tcoef != 0) {
      const Tensor weight_norm = Norm(value);
      const Tensor grad_norm = Norm(g);
      Tensor whole = grad_norm;
      if (options_.weight_decay != 0) whole = whole + options_.weight_decay * weight_norm;
      ratio = TrustRatio(weight_norm, grad_norm, options_.tcoef * weight_norm / whole);
    }
    const auto at_rate = [&](const Tensor& step) {
      return (ratio.defined() ? step * ratio : step) * lr;
    };
    if (options_.weight_decay != 0) g = g + options_.weight_decay * value;
    if (options_.classic) g = at_rate(g);
    if (options_.momentum != 0) {
      Tensor& velocity = velocity_[i];
      velocity.Assign((options_.momentum * velocity + g).Cast(velocity.dtype()));
      g = options_.nesterov ? g + options_.momentum * velocity : velocity;
    }
    if (!options_.classic) g = at_rate(g);
    param.Assign((value - g).Cast(param.dtype()));
  }
  return velocity_;
}

LAMB::LAMB(const std::vector<Tensor>& tensors, const LAMBOptions& options)
    : RatedOptimizer(tensors, options.lr), options_(options) {
  if (params().empty() || !params()[0].ok()) return;
  const TensorOptions own = {.dtype = Scalar::kFloat32, .requires_grad = false};
  TensorOptions beside_first = own;
  beside_first.device = params()[0].device();
  b1_t_ = Tensor::Ones(params()[0].context(), {1}, beside_first).Contiguous();
  b2_t_ = Tensor::Ones(params()[0].context(), {1}, beside_first).Contiguous();
  for (const Tensor& param : params()) {
    m_.push_back(param.ZerosLike(own).Contiguous());
    v_.push_back(param.ZerosLike(own).Contiguous());
  }
}

std::vector<Tensor> LAMB::Update() {
  b1_t_.Assign(b1_t_ * options_.b1);
  b2_t_.Assign(b2_t_ * options_.b2);
  for (size_t i = 0; i < params().size(); ++i) {
    Tensor param = params()[i];
    const Tensor value = param.Detach();
    const Tensor g = param.grad();
    m_[i].Assign(options_.b1 * m_[i] + (1 - options_.b1) * g);
    v_[i].Assign(options_.b2 * v_[i] + (1 - options_.b2) * (g * g));
    const Tensor m_hat = m_[i] / (1.0 - b1_t_);
    const Tensor v_hat = v_[i] / (1.0 - b2_t_);
    Tensor update = m_hat / (v_hat.Sqrt() + options_.eps);
    if (options_.weight_decay != 0) update = update + options_.weight_decay * value;
    Tensor rate = lr;
    if (!options_.adam) {
      const Tensor weight_norm = Norm(value);
      const Tensor update_norm = Norm(update);
      rate = lr * TrustRatio(weight_norm, update_norm, weight_norm / update_norm);
    }
    param.Assign((value - rate * update).Cast(param.dtype()));
  }
  std::vector<Tensor> own = {b1_t_, b2_t_};
  own.insert(own.end(), m_.begin(), m_.end());
  own.insert(own.end(), v_.begin(), v_.end());
  return own;
}

std::unique_ptr<LARS> SGD(const std::vector<Tensor>& tensors, const SGDOptions& options) {
  return std::make_unique<LARS>(tensors, LARSOptions{.lr = options.lr,
                                                     .momentum = options.momentum,
                                                     .weight_decay = options.weight_decay,
                                                     .nesterov = options.nesterov,
                                                     .classic = options.classic,
                                                     .tcoef = 0});
}

std::unique_ptr<LAMB> Adam(const std::vector<Tensor>& tensors, const AdamOptions& options) {
  return std::make_unique<LAMB>(tensors, LAMBOptions{.lr = options.lr,
                                                     .b1 = options.b1,
                                                     .b2 = options.b2,
                                                     .eps = options.eps,
                                                     .weight_decay = 0,
                                                     .adam = true});
}

std::unique_ptr<LAMB> AdamW(const std::vector<Tensor>& tensors, const AdamWOptions& options) {
  return std::make_unique<LAMB>(tensors, LAMBOptions{.lr = options.lr,
                                                     .b1 = options.b1,
                                                     .b2 = options.b2,
                                                     .eps = options.eps,
                                                     .weight_decay = options.weight_decay,
                                                     .adam = true});
}

OptimizerGroup::OptimizerGroup(std::vector<std::unique_ptr<Optimizer>> optimizers)
    : Optimizer(Joined(optimizers, &Optimizer::params), Joined(optimizers, &Optimizer::buffers)),
      optimizers_(std::move(optimizers)) {}

std::vector<Tensor> OptimizerGroup::Update() {
  std::vector<Tensor> all;
  for (const auto& optimizer : optimizers_) {
    const std::vector<Tensor> own = optimizer->Update();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace beamd::nn

// Optimisers: from gradients to new values of the parameters.
//
//   auto optimizer = nn::SGD(net.Parameters(), {.lr = 0.1});
//   context.training = true;
//   optimizer->ZeroGrad();
//   BEAMD_RETURN_IF_ERROR(loss.Backward());
//   BEAMD_RETURN_IF_ERROR(optimizer->Step());
//
// Spec: tinygrad 0.10.0 nn/optim.py: the same updates, operation by operation, but for factors of 0
// (no weight decay), which are left out. As there, SGD is LARS and Adam is LAMB without their trust
// ratios.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tensor/tensor.h"

namespace beamd::nn {

// Confined to the thread of its parameters' LazyContext.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // What is trained: each tensor once, those that don't refuse a gradient.
  const std::vector<Tensor>& params() const { return params_; }
  // The rest: realised with every step, else as they are.
  const std::vector<Tensor>& buffers() const { return buffers_; }

  void ZeroGrad();
  // One update of the parameters, realised.
  // FailedPrecondition: the context isn't training, or a parameter has no gradient.
  // InvalidArgument: there is nothing to train, or a gradient of another shape.
  absl::Status Step();
  // The same not realised: what Step would realise, to be realised with other tensors.
  absl::StatusOr<std::vector<Tensor>> ScheduleStep();

 protected:
  Optimizer(std::vector<Tensor> params, std::vector<Tensor> buffers)
      : params_(std::move(params)), buffers_(std::move(buffers)) {}
  // Assigns the new values; every parameter has a gradient. Gives the optimiser's own tensors.
  virtual std::vector<Tensor> Update() = 0;

 private:
  friend class OptimizerGroup;
  std::vector<Tensor> params_;
  std::vector<Tensor> buffers_;
};

// An optimiser with a learning rate.
class RatedOptimizer : public Optimizer {
 public:
  // One element, of at least float32: assign to it to change the rate, also of a captured plan.
  Tensor lr;

 protected:
  RatedOptimizer(const std::vector<Tensor>& tensors, double rate);
};

struct LARSOptions {
  double lr = 0.001;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  bool nesterov = false;
  bool classic = true;   // the rate enters before the momentum, not after
  double tcoef = 0.001;  // 0: no trust ratio
};

// You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017.
class LARS : public RatedOptimizer {
 public:
  LARS(const std::vector<Tensor>& tensors, const LARSOptions& options = {});

 protected:
  std::vector<Tensor> Update() override;

 private:
  LARSOptions options_;
  std::vector<Tensor> velocity_;  // empty without momentum
};

struct LAMBOptions {
  double lr = 0.001;
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  bool adam = false;  // no trust ratio
};

// You et al., "Large Batch Optimization for Deep Learning", 2019.
class LAMB : public RatedOptimizer {
 public:
  LAMB(const std::vector<Tensor>& tensors, const LAMBOptions& options = {});

 protected:
  std::vector<Tensor> Update() override;

 private:
  LAMBOptions options_;
  Tensor b1_t_;  // b1 to the power of the steps so far
  Tensor b2_t_;
  std::vector<Tensor> m_;
  std::vector<Tensor> v_;
};

struct SGDOptions {
  double lr = 0.001;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool classic = false;
};
std::unique_ptr<LARS> SGD(const std::vector<Tensor>& tensors, const SGDOptions& options = {});

struct AdamOptions {
  double lr = 0.001;
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
};
std::unique_ptr<LAMB> Adam(const std::vector<Tensor>& tensors, const AdamOptions& options = {});

struct AdamWOptions {
  double lr = 0.001;
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};
std::unique_ptr<LAMB> AdamW(const std::vector<Tensor>& tensors, const AdamWOptions& options = {});

// Several optimisers that step as one: their updates are realised together.
class OptimizerGroup : public Optimizer {
 public:
  explicit OptimizerGroup(std::vector<std::unique_ptr<Optimizer>> optimizers);
  Optimizer& operator[](size_t i) { return *optimizers_[i]; }
  size_t size() const { return optimizers_.size(); }

 protected:
  std::vector<Tensor> Update() override;

 private:
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
};

}  // namespace beamd::nn

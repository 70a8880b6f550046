// Training steps on the server: parameters and what the optimiser keeps of them stay there.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "client/thin/session.h"
#include "client/thin/tensor.h"

namespace beamd::thin {

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;  // added to the gradient
};

// Kingma and Ba (2015); weight_decay as Loshchilov and Hutter (2019): AdamW.
struct AdamOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

// Not thread-safe. The parameters are memory of floats, in one session.
class Optimizer {
 public:
  Optimizer(std::vector<Tensor> parameters, const SgdOptions& options);
  Optimizer(std::vector<Tensor> parameters, const AdamOptions& options);

  // Moves each parameter by its gradient (RunReport::gradients, in order), all in one run. Every
  // step has the same structure, so the server plans it once. InvalidArgument where the gradients
  // aren't the parameters'; the errors of Run.
  absl::Status Step(Session& session, const std::vector<Tensor>& gradients);
  void set_lr(double lr);

  const std::vector<Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<Tensor> SgdStep(const std::vector<Tensor>& gradients) const;
  std::vector<Tensor> AdamStep(const std::vector<Tensor>& gradients) const;

  std::vector<Tensor> parameters_;
  const bool is_adam_;
  const SgdOptions sgd_;
  const AdamOptions adam_;
  Tensor lr_;
  std::vector<Tensor> first_, second_;  // moments; of SGD the momentum
  Tensor power1_, power2_;              // beta1 and beta2, to as many steps as were made
};

}  // namespace beamd::thin

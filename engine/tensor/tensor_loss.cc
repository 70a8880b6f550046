// Losses.
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {

namespace {

Tensor Reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return losses;
    case Reduction::kMean:
      return losses.Mean();
    case Reduction::kSum:
      return losses.Sum();
  }
  return InvalidTensor("reduction", absl::StrCat("no reduction ", static_cast<int>(reduction)));
}

bool IsShare(double smoothing) { return smoothing >= 0 && smoothing <= 1; }

Tensor RefusedSmoothing(absl::string_view operation, double smoothing) {
  return InvalidTensor(operation, absl::StrCat("label_smoothing ", smoothing, " is not in [0, 1]"));
}

}  // namespace

Tensor Tensor::BinaryCrossentropy(const Tensor& y, Reduction reduction) const {
  return Reduced(-y * Log() - (1 - y) * (1 - *this).Log(), reduction);
}

Tensor Tensor::BinaryCrossentropyLogits(const Tensor& y, Reduction reduction) const {
  return Reduced(Maximum(0) - y * *this + (1 + Abs().Neg().Exp()).Log(), reduction);
}

Tensor Tensor::SparseCategoricalCrossentropy(const Tensor& y, int ignore_index,
                                             double label_smoothing, Reduction reduction) const {
  constexpr char kName[] = "sparse_categorical_crossentropy";
  if (Tensor failed = FirstFailed({*this, y}); failed.defined()) return failed;
  if (!IsShare(label_smoothing)) return RefusedSmoothing(kName, label_smoothing);
  if (ndim() < 1 || Shape(shape().begin(), shape().end() - 1) != y.shape()) {
    return InvalidTensor(
        kName, absl::StrCat("labels ", ToString(y.shape()), " for logits ", ToString(shape())));
  }
  const SInt& classes = shape().back();
  if (!classes.is_number()) return InvalidTensor(kName, "a symbolic number of classes");

  const Tensor log_probs = LogSoftmax();
  const Tensor mask = ignore_index != -1
                          ? y.Ne(ignore_index)
                          : y.OnesLike({.dtype = Scalar::kBool, .requires_grad = false});
  const Tensor counter =
      Arange(context(), classes.number(), {.requires_grad = false, .device = device()})
          .Unsqueeze(0)
          .Expand({y.numel(), classes});
  // One-hot, without a one where the label is ignored.
  const Tensor hot =
      (counter.Eq(y.Reshape({y.numel(), 1})) * mask.Reshape({y.numel(), 1})).Reshape(shape());
  Tensor likelihood = (log_probs * hot).Sum(-1);
  // Left out when nothing is smoothed: 0 * x is no constant in floats.
  if (label_smoothing != 0) {
    likelihood = (1 - label_smoothing) * likelihood + label_smoothing * (log_probs.Mean(-1) * mask);
  }
  switch (reduction) {
    case Reduction::kMean:  // over the labels that count
      return -(likelihood.Sum() / mask.Sum());
    case Reduction::kSum:
      return -likelihood.Sum();
    case Reduction::kNone:
      break;
  }
  return -likelihood;
}

Tensor Tensor::CrossEntropy(const Tensor& y, Reduction reduction, double label_smoothing) const {
  constexpr char kName[] = "cross_entropy";
  if (Tensor failed = FirstFailed({*this, y}); failed.defined()) return failed;
  if (!IsShare(label_smoothing)) return RefusedSmoothing(kName, label_smoothing);
  if (ndim() < 2 || !shape()[1].is_number()) {
    return InvalidTensor(kName, absl::StrCat("no axis of classes in ", ToString(shape())));
  }
  const int classes = static_cast<int>(shape()[1].number());
  // Class probabilities; labels become them.
  Tensor target = y.ndim() < 2 ? y.OneHot(classes) : y;
  if (!target.ok()) return target;
  const double share = label_smoothing / static_cast<double>(classes);
  target = (1 - label_smoothing) * target;
  if (label_smoothing != 0) target = target + share;
  return Reduced((-LogSoftmax(1) * target).Sum(1), reduction);
}

Tensor Tensor::NllLoss(const Tensor& y, const Tensor& weight, std::optional<int> ignore_index,
                       Reduction reduction) const {
  constexpr char kName[] = "nll_loss";
  if (Tensor failed = FirstFailed({*this, y}); failed.defined()) return failed;
  if (ndim() < 2 || y.ndim() != ndim() - 1) {
    return InvalidTensor(kName, absl::StrCat("labels ", ToString(y.shape()),
                                             " for log-probabilities ", ToString(shape())));
  }
  if (!IsInt(y.dtype())) {
    return InvalidTensor(kName, absl::StrCat("labels of ", Name(y.dtype()), ", not integers"));
  }
  if (weight.defined() && weight.ok() && weight.shape() != Shape{shape()[1]}) {
    return InvalidTensor(kName, absl::StrCat("weights ", ToString(weight.shape()), " for ",
                                             beamd::ToString(shape()[1]), " classes"));
  }
  Tensor label_weight =
      weight.defined() ? weight.Get({Index(y)}) : y.OnesLike({.requires_grad = false});
  if (ignore_index.has_value()) label_weight = label_weight * y.Ne(*ignore_index);
  const Tensor losses = -Gather(1, y.Unsqueeze(1)).Squeeze(1) * label_weight;
  return reduction == Reduction::kMean ? losses.Sum() / label_weight.Sum()
                                       : Reduced(losses, reduction);
}

}  // namespace beamd

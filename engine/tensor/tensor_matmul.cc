// Products: each is an element-wise multiplication of two expanded views under one sum, which is
// what scheduling turns into one kernel.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/option.h"
#include "engine/base/status.h"
#include "engine/dtype/promotion.h"
#include "engine/tensor/convolution.h"
#include "engine/tensor/tensor.h"
#include "engine/tensor/tensor_impl.h"

namespace beamd {

namespace {

// One axis of a formula: a letter by its character; axes of an ellipsis by their distance from its
// last one, negative, so that they sort before every letter and align at the right.
using Label = int;
using Labels = std::vector<Label>;

constexpr absl::string_view kEllipsis = "...";

// The labels of `term`, whose ellipsis stands for `ellipsis_axes`.
absl::StatusOr<Labels> ParseTerm(absl::string_view term, int ellipsis_axes) {
  Labels labels;
  bool has_ellipsis = false;
  for (size_t at = 0; at < term.size();) {
    if (absl::StartsWith(term.substr(at), kEllipsis)) {
      if (has_ellipsis) return absl::InvalidArgumentError("two ellipses in one operand");
      has_ellipsis = true;
      for (int axis = -ellipsis_axes; axis < 0; ++axis) labels.push_back(axis);
      at += kEllipsis.size();
    } else if (absl::ascii_isalpha(static_cast<unsigned char>(term[at]))) {
      labels.push_back(term[at]);
      ++at;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", term.substr(at, 1), "' is neither a letter nor part of an ellipsis"));
    }
  }
  if (std::set<Label>(labels.begin(), labels.end()).size() != labels.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a letter stands twice in \"", term, "\""));
  }
  return labels;
}

struct Formula {
  std::vector<Labels> inputs;
  Labels output;
};

absl::StatusOr<Formula> ParseFormula(absl::string_view text, std::span<const Tensor> operands) {
  const std::string formula = absl::StrReplaceAll(text, {{" ", ""}});
  const std::vector<std::string> sides = absl::StrSplit(formula, "->");
  if (sides.size() > 2) return absl::InvalidArgumentError("more than one \"->\"");
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (terms.size() != operands.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the formula names ", terms.size(), " operands, ", operands.size(), " given"));
  }

  Formula result;
  int longest_ellipsis = 0;
  std::map<Label, int> uses;
  for (size_t i = 0; i < terms.size(); ++i) {
    int ellipsis_axes = 0;
    if (absl::StrContains(terms[i], kEllipsis)) {
      ellipsis_axes = operands[i].ndim() - static_cast<int>(terms[i].size() - kEllipsis.size());
      longest_ellipsis = std::max(longest_ellipsis, ellipsis_axes);
    }
    BEAMD_ASSIGN_OR_RETURN(Labels labels, ParseTerm(terms[i], std::max(ellipsis_axes, 0)));
    if (static_cast<int>(labels.size()) != operands[i].ndim()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", terms[i], "\" doesn't fit shape ", ToString(operands[i].shape())));
    }
    for (Label label : labels) ++uses[label];
    result.inputs.push_back(std::move(labels));
  }

  if (sides.size() == 2) {
    BEAMD_ASSIGN_OR_RETURN(result.output, ParseTerm(sides[1], longest_ellipsis));
    for (Label label : result.output) {
      if (!uses.contains(label)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "output letter '", std::string(1, static_cast<char>(label)), "' is in no operand"));
      }
    }
  } else {
    // Without an arrow: the ellipsis, then what stands once, sorted.
    for (const auto& [label, count] : uses) {
      if (label < 0 || count == 1) result.output.push_back(label);
    }
  }
  return result;
}

}  // namespace

Tensor Tensor::Dot(const Tensor& w, std::optional<Scalar> acc_dtype) const {
  if (Tensor failed = FirstFailed({*this, w}); failed.defined()) return failed;
  const int dx = ndim();
  const int dw = w.ndim();
  if (dx == 0 || dw == 0) {
    return InvalidTensor("dot", absl::StrCat("both tensors need an axis, got ", ToString(shape()),
                                             " and ", ToString(w.shape())));
  }
  // The last axis of this against the last but one of w.
  const int axis_w = -std::min(dw, 2);
  if (shape().back() != w.shape()[dw + axis_w]) {
    return InvalidTensor(
        "dot", absl::StrCat("can't multiply ", ToString(shape()), " by ", ToString(w.shape())));
  }
  if (options::kImage != 0 && TakesImages(*this, w)) return ImageDot(w, acc_dtype);
  const int ones = std::min({dx - 1, dw - 1, 1});
  Shape x_shape(shape().begin(), shape().end() - 1);
  x_shape.insert(x_shape.end(), ones, 1);
  x_shape.push_back(shape().back());
  Shape w_shape(w.shape().begin(), w.shape().end() + axis_w);
  w_shape.insert(w_shape.end(), ones, 1);
  w_shape.insert(w_shape.end(), w.shape().end() + axis_w, w.shape().end());
  return (Reshape(x_shape) * w.Reshape(w_shape).Transpose(-1, axis_w))
      .Sum(-1, /*keepdim=*/false, acc_dtype)
      .Cast(acc_dtype.value_or(LeastUpperDType({dtype(), w.dtype()})));
}

Tensor Tensor::Matmul(const Tensor& x, bool reverse, std::optional<Scalar> acc_dtype) const {
  return reverse ? x.Dot(*this, acc_dtype) : Dot(x, acc_dtype);
}

Tensor Tensor::Einsum(absl::string_view formula, std::span<const Tensor> operands,
                      std::optional<Scalar> acc_dtype) {
  if (operands.empty()) return InvalidTensor("einsum", "no operands");
  if (Tensor failed = FirstFailed(operands); failed.defined()) return failed;
  absl::StatusOr<Formula> parsed = ParseFormula(formula, operands);
  if (!parsed.ok()) return InvalidTensor("einsum", parsed.status().message());

  // Every label's size, in the labels' order: the axes of the product.
  std::map<Label, SInt> sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t axis = 0; axis < parsed->inputs[i].size(); ++axis) {
      const Label label = parsed->inputs[i][axis];
      const SInt& size = operands[i].shape()[axis];
      auto [it, is_new] = sizes.emplace(label, size);
      if (is_new || it->second == size) continue;
      const bool broadcasts = label < 0 && (it->second == 1 || size == 1);
      if (!broadcasts) {
        return InvalidTensor(
            "einsum",
            absl::StrCat(label < 0
                             ? "an axis of the ellipsis"
                             : absl::StrCat("'", std::string(1, static_cast<char>(label)), "'"),
                         " has sizes ", ToString(it->second), " and ", ToString(size)));
      }
      if (it->second == 1) it->second = size;
    }
  }
  Shape product_shape;
  for (const auto& [label, size] : sizes) product_shape.push_back(size);

  Tensor product;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Labels& labels = parsed->inputs[i];
    std::vector<int> order;
    Shape with_ones;
    for (const auto& [label, size] : sizes) {
      const auto found = std::find(labels.begin(), labels.end(), label);
      if (found == labels.end()) {
        with_ones.push_back(1);
      } else {
        order.push_back(static_cast<int>(found - labels.begin()));
        with_ones.push_back(operands[i].shape()[order.back()]);
      }
    }
    const Tensor factor = operands[i].Permute(order).Reshape(with_ones).Expand(product_shape);
    product = product.defined() ? product * factor : factor;
  }

  std::vector<int> summed;
  Labels kept;
  for (const auto& [label, size] : sizes) {
    const Labels& output = parsed->output;
    if (std::find(output.begin(), output.end(), label) == output.end()) {
      summed.push_back(static_cast<int>(summed.size() + kept.size()));
    } else {
      kept.push_back(label);
    }
  }
  std::vector<int> output_order;
  for (Label label : parsed->output) {
    output_order.push_back(
        static_cast<int>(std::lower_bound(kept.begin(), kept.end(), label) - kept.begin()));
  }
  return product.Sum(summed, /*keepdim=*/false, acc_dtype).Permute(output_order);
}

Tensor Tensor::Linear(const Tensor& weight, const Tensor& bias) const {
  if (Tensor failed = FirstFailed({*this, weight}); failed.defined()) return failed;
  const Tensor x = weight.ndim() == 1 ? Mul(weight) : Dot(weight);
  return bias.defined() ? x.Add(bias) : x;
}

Tensor Tensor::Sequential(const std::vector<std::function<Tensor(const Tensor&)>>& layers) const {
  Tensor x = *this;
  for (const auto& layer : layers) {
    if (!layer) return InvalidTensor("sequential", "a layer is no function");
    x = layer(x);
  }
  return x;
}

Tensor Tensor::ScaledDotProductAttention(const Tensor& key, const Tensor& value,
                                         const Tensor& attn_mask, double dropout_p, bool is_causal,
                                         bool enable_gqa) const {
  if (Tensor failed = FirstFailed({*this, key, value}); failed.defined()) return failed;
  constexpr char kName[] = "scaled_dot_product_attention";
  const auto refused = [&](absl::string_view why) {
    return InvalidTensor(
        kName, absl::StrCat(why, ": query ", ToString(shape()), ", key ", ToString(key.shape()),
                            ", value ", ToString(value.shape())));
  };
  if (ndim() < 2 || key.ndim() < 2 || value.ndim() < 2) return refused("fewer than two axes");
  if (!AllNumbers(shape())) return refused("a query of symbolic size");
  if (is_causal && attn_mask.defined()) return refused("a mask beside is_causal");

  Tensor k = key;
  Tensor v = value;
  if (enable_gqa) {
    if (ndim() < 3 || key.ndim() < 3 || value.ndim() < 3) return refused("no axis of heads");
    const auto heads = [](const Tensor& t) { return t.shape()[t.ndim() - 3]; };
    for (Tensor* shared : {&k, &v}) {
      const SInt count = heads(*shared);
      if (!count.is_number() || count == 0 || heads(*this).number() % count.number() != 0) {
        return refused("the query's heads aren't a multiple of the key's and value's");
      }
      *shared =
          shared->RepeatInterleave(static_cast<int>(heads(*this).number() / count.number()), -3);
    }
  }

  // What is added to the scores: -inf where a query mustn't look.
  Tensor mask = attn_mask;
  if (is_causal) {
    mask = Ones(context(), {shape()[ndim() - 2], key.shape()[key.ndim() - 2]}, {.device = device()})
               .Tril()
               .Cast(Scalar::kBool);
  }
  if (mask.ok() && mask.dtype() == Scalar::kBool) {
    mask = mask.Eq(0).Where(-std::numeric_limits<double>::infinity(), 0.0);
  }
  const Scalar acc_dtype = LeastUpperDType({dtype(), key.dtype(), Scalar::kFloat32});
  const double scale = std::sqrt(static_cast<double>(shape().back().number()));
  Tensor scores = Matmul(k.Transpose(-2, -1), /*reverse=*/false, acc_dtype) / scale;
  if (mask.defined()) scores = scores + mask;
  return scores.Softmax(-1).Cast(dtype()).Dropout(dropout_p).Matmul(v);
}

}  // namespace beamd

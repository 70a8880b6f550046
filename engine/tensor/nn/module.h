// What has named tensors: layers, and models made of layers.
//
//   struct Net : nn::Module {
//     explicit Net(LazyContext& context) : l1(context, 784, 256), l2(context, 256, 10) {
//       Register("l1", l1);
//       Register("l2", l2);
//     }
//     Tensor operator()(const Tensor& x) const { return l2(l1(x).Relu()); }
//     nn::Linear l1, l2;
//   };
//   nn::SGD(net.Parameters());                 // l1.weight, l1.bias, l2.weight, l2.bias
//   nn::SaveSafetensorsFile(net.StateDict(), "net.safetensors");
//
// Answers to tinygrad 0.10.0 nn/state.py (get_state_dict, get_parameters, load_state_dict). Differs:
// C++ can't look into an object, so each says what it holds. Tensors are references, so a copied
// module is the same module.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/tensor/tensor.h"

namespace beamd::nn {

// Names and tensors, in the order in which they were registered.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class Module {
 public:
  // Parameters and buffers: "weight", or "conv.weight" of a part.
  const NamedTensors& StateDict() const { return tensors_; }
  // The same without names.
  std::vector<Tensor> Parameters() const;

 protected:
  Module() = default;
  // An undefined tensor (a bias that isn't there) is left out.
  void Register(absl::string_view name, const Tensor& tensor);
  // All tensors of `part`, whose names get the prefix "name.".
  void Register(absl::string_view name, const Module& part);

 private:
  NamedTensors tensors_;
};

// Gives the tensors of `model` (StateDict) the values of those with their names, and realises them.
// Shapes are equal, dtypes become the loaded ones. Nothing is changed on an error.
// InvalidArgument: a name is missing and `strict`, or a shape differs.
absl::Status LoadStateDict(const NamedTensors& model, const NamedTensors& values,
                           bool strict = true);

}  // namespace beamd::nn

#include "engine/tensor/nn/module.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace beamd::nn {

namespace {

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("(",
                      absl::StrJoin(shape, ", ",
                                    [](std::string* out, const SInt& size) {
                                      absl::StrAppend(out, ToString(size));
                                    }),
                      ")");
}

}  // namespace

std::vector<Tensor> Module::Parameters() const {
  std::vector<Tensor> tensors;
  tensors.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) tensors.push_back(tensor);
  return tensors;
}

void Module::Register(absl::string_view name, const Tensor& tensor) {
  if (tensor.defined()) tensors_.emplace_back(std::string(name), tensor);
}

void Module::Register(absl::string_view name, const Module& part) {
  for (const auto& [inner, tensor] : part.tensors_) {
    tensors_.emplace_back(absl::StrCat(name, ".", inner), tensor);
  }
}

absl::Status LoadStateDict(const NamedTensors& model, const NamedTensors& values, bool strict) {
  absl::flat_hash_map<std::string, Tensor> by_name;
  for (const auto& [name, value] : values) by_name.try_emplace(name, value);

  std::vector<std::pair<Tensor, Tensor>> replacements;
  for (const auto& [name, tensor] : model) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      if (!strict) continue;
      return absl::InvalidArgumentError(absl::StrCat("no value for \"", name, "\""));
    }
    BEAMD_RETURN_IF_ERROR(tensor.status());
    BEAMD_RETURN_IF_ERROR(found->second.status());
    if (tensor.shape() != found->second.shape()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" has shape ",
                                                     ShapeText(tensor.shape()), ", its value ",
                                                     ShapeText(found->second.shape())));
    }
    replacements.emplace_back(tensor, found->second.Detach().To(tensor.device()));
  }
  std::vector<Tensor> loaded;
  loaded.reserve(replacements.size());
  for (const auto& [tensor, value] : replacements) loaded.push_back(value);
  BEAMD_RETURN_IF_ERROR(Tensor::Realize(loaded));
  for (auto& [tensor, value] : replacements) {
    BEAMD_RETURN_IF_ERROR(tensor.Replace(value).status());
  }
  return absl::OkStatus();
}

}  // namespace beamd::nn

// Tensors by name as one file: the safetensors format.
//
// Spec: github.com/huggingface/safetensors, README, "Format": 8 bytes of little-endian header size,
// a JSON header, the elements. Checked as its reference implementation does (offsets in range, of
// the right size, without holes or overlaps), and beyond that: shapes of 64 axes at most, bools that
// are 0 or 1, names once. A file is untrusted input: whatever it holds, the answer is its tensors or
// a typed error that names the tensor.
//
// Answers to tinygrad 0.10.0 nn/state.py (safe_load, safe_save).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/tensor/nn/module.h"
#include "engine/tensor/tensor.h"

namespace beamd::nn {

struct Safetensors {
  NamedTensors tensors;  // in the order of their elements in the file
  std::map<std::string, std::string> metadata;
};

// InvalidArgument: not the format, or a dtype that we don't have.
absl::StatusOr<Safetensors> ParseSafetensors(LazyContext& context,
                                             std::span<const std::byte> bytes);
// NotFound: no such file. Unavailable: it can't be read. DataLoss: it is shorter than it says.
absl::StatusOr<Safetensors> LoadSafetensorsFile(LazyContext& context, const std::string& path);

// Realises what isn't. InvalidArgument: a name twice or "__metadata__", a symbolic size.
absl::StatusOr<std::vector<std::byte>> WriteSafetensors(
    const NamedTensors& tensors, const std::map<std::string, std::string>& metadata = {});
// Replaces the file at once or not at all. Unavailable: it can't be written.
absl::Status SaveSafetensorsFile(const NamedTensors& tensors, const std::string& path,
                                 const std::map<std::string, std::string>& metadata = {});

}  // namespace beamd::nn

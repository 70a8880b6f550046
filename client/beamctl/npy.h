// Arrays in NumPy's files, for `beamctl run`.
//
// Spec: NumPy's "npy format", versions 1.0 to 3.0 (numpy.lib.format). Strict: one array, C order,
// little-endian, of a type that a tensor's elements have; no objects, no records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

struct Npy {
  v1::Scalar dtype = v1::SCALAR_VOID;
  std::vector<int64_t> shape;
  std::string content;  // row-major
};

// "float32 (3, 4)".
std::string Describe(v1::Scalar dtype, const std::vector<int64_t>& shape);

// InvalidArgument says what is wrong and, where NumPy can mend it, how.
absl::StatusOr<Npy> ParseNpy(absl::string_view bytes);
// The file of an array. Unimplemented: bfloat16, which NumPy has no name for.
absl::StatusOr<std::string> NpyBytes(const Npy& array);

// "-" is no file here. Errors name the file (client/cc/local_file.h).
absl::StatusOr<Npy> ReadNpyFile(const std::string& path);
absl::Status WriteNpyFile(const std::string& path, const Npy& array);

}  // namespace beamd

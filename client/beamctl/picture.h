// Graphs to be looked at, found here and without a daemon.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

// The text form of a tensor graph, each value's shape behind it as a comment. InvalidArgument with
// the node where `graph` is none.
absl::StatusOr<std::string> TensorText(const v1::Graph& graph);

// In Graphviz's language: a tensor graph with shapes; a kernel, or the kernels of a tensor graph, a
// box each; the items of a tensor graph's schedule with their buffers. InvalidArgument with the
// node where `graph` isn't what the picture is of.
enum class PictureOf : uint8_t { kTensors, kKernels, kSchedule };
absl::StatusOr<std::string> Draw(const v1::Graph& graph, PictureOf picture);

}  // namespace beamd

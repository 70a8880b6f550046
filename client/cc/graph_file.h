// Kernels from files, in every form that people keep them in.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

// The graph that `bytes` hold. What they are is seen from them: bytes that no text holds are
// protobuf's binary form; protobuf's JSON begins with a brace, the text form (engine/uop/text.h)
// with a `%` or a comment, protobuf's text format with a field's name. InvalidArgument where they
// are none.
absl::StatusOr<v1::Graph> ParseGraph(absl::string_view bytes);

// "-" is standard input; a gzipped file is unpacked. NotFound without the file.
absl::StatusOr<v1::Graph> ReadGraphFile(const std::string& path);

// The graphs of the lines of a corpus file (lines of JSON with "id" and "graph", gzipped or not)
// with these ids, in their order. NotFound without the file or one of the lines.
absl::StatusOr<std::vector<v1::Graph>> ReadCorpusGraphs(const std::string& path,
                                                        const std::vector<std::string>& ids);

}  // namespace beamd

// The corpus of recorded kernels, which tests find through BEAMD_CORPUS: gzipped lines of JSON. Its
// README says what each file holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/uop/uop.h"
#include "proto/beamd/v1/ast.pb.h"
#include "tests/testing/json.h"

namespace beamd::testing {

// The corpus' folder; nullopt without BEAMD_CORPUS, in which case a test says GTEST_SKIP.
std::optional<std::string> CorpusDir();

// Calls `line` for each line of `dir`/`file`, in order, until it fails. NotFound without the file.
absl::Status ForEachLine(const std::string& dir, absl::string_view file,
                         const std::function<absl::Status(const JsonValue& line)>& line);

// The graph in a line's "graph" field.
absl::StatusOr<v1::Graph> CorpusMessage(const JsonValue& line);
absl::StatusOr<UOp> CorpusGraph(const JsonValue& line, UOpGraph& graph);

struct CorpusKernel {
  std::string id;
  v1::Graph graph;
};
// Those files among `files` that are there, in order; "kernels.jsonl.gz" and "hot.jsonl.gz".
absl::StatusOr<std::vector<CorpusKernel>> ReadCorpusKernels(
    const std::string& dir,
    const std::vector<std::string>& files = {"kernels.jsonl.gz", "hot.jsonl.gz"});

// What `numeric` fills buffers with: the bytes of `count` elements of `scalar` for the buffer in
// `slot`, by the formula of the corpus' README.
std::string CorpusInput(int64_t slot, int64_t count, Scalar scalar);

}  // namespace beamd::testing

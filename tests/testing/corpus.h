// The corpus of recorded kernels, which tests find through BEAMD_CORPUS: gzipped lines of JSON. Its
// README says what each file holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
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

// A line of numeric.jsonl.gz.
struct CorpusNumeric {
  struct Buffer {
    uint64_t slot = 0;
    int64_t elements = 0;
    Scalar scalar = Scalar::kVoid;
  };
  struct Sample {
    int64_t element = 0;
    double real = 0;      // of a float buffer
    int64_t integer = 0;  // of any other
  };
  struct Output {
    uint64_t slot = 0;
    std::vector<Sample> samples;
  };

  std::string id;
  std::vector<Buffer> buffers;
  std::vector<Output> outputs;
  std::vector<std::pair<std::string, int64_t>> variables;
};
absl::StatusOr<std::vector<CorpusNumeric>> ReadCorpusNumeric(const std::string& dir);

// What `numeric` fills buffers with: the bytes of `count` elements of `scalar` for the buffer in
// `slot`, by the formula of the corpus' README.
std::string CorpusInput(int64_t slot, int64_t count, Scalar scalar);

}  // namespace beamd::testing

// `beamctl run`: a tensor graph on arrays from files, and what it computes into files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/beamctl/npy.h"
#include "client/thin/session.h"
#include "proto/beamd/v1/ast.pb.h"
#include "proto/beamd/v1/executor.pb.h"

namespace beamd {

// What a graph's buffers and outputs are called. A BUFFER's name is its id, an output's its place
// among the SINK's sources; lines of a text file say others:
//
//   # buffer 0: images
//   # output 0: logits
struct GraphNames {
  std::map<std::string, uint64_t> buffers;
  std::map<std::string, int> outputs;
};
// InvalidArgument: a name that stands there twice, or is a number.
absl::StatusOr<GraphNames> NamesOf(absl::string_view text);
// None where the file isn't such a text, or is standard input.
absl::StatusOr<GraphNames> NamesOfFile(const std::string& path);

struct RunArguments {
  std::map<std::string, std::string> in;   // file by buffer's name
  std::map<std::string, std::string> out;  // file by output's name, or by grad.BUFFER
  std::vector<std::string> gradients;      // buffers' names
  std::map<std::string, int64_t> variables;
  bool random = false;  // a buffer without a file holds small numbers, the same each time
  v1::OptsPolicy opts = v1::OPTS_POLICY_NOW;
  v1::MatchPolicy match = v1::MATCH_POLICY_STRICT;
  bool profile = false;
};

// "x=a.npy", "w=b.npy". InvalidArgument where an entry isn't a pair or a name stands there twice.
absl::StatusOr<std::map<std::string, std::string>> ParsePairs(
    const std::vector<std::string>& entries);

struct RunResult {
  struct Output {
    std::string name;
    std::string file;  // that `out` names; may be empty
    Npy array;
  };
  std::vector<Output> outputs;  // then the gradients
  v1::RunResponse response;     // without content
};

// Checks names and arrays before anything is sent. InvalidArgument and NotFound say what to do.
absl::StatusOr<RunResult> RunGraph(thin::Session& session, const v1::Graph& graph,
                                   const GraphNames& names, const RunArguments& arguments);

// What came out, its first elements where it went into no file, and how long the kernels took.
void PrintRun(const RunResult& result, bool json);

// The kernels of a run, one behind another, for Chrome's about:tracing and Perfetto.
std::string TraceJson(const v1::RunResponse& response);

}  // namespace beamd

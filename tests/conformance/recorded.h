// The recorded kernels and what tinygrad 0.10.0 does with each: a folder of gzipped JSON lines, as
// its README says.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/kernel/opt.h"
#include "engine/uop/uop.h"
#include "proto/beamd/v1/ast.pb.h"
#include "tests/conformance/sizes.h"

namespace beamd::conformance {

// A kernel's state: full shape and the colours of its axes.
struct WrittenState {
  std::vector<WrittenSize> shape;
  std::vector<std::string> colors;
};

struct WrittenHeuristics {
  std::string id;
  std::string error;  // not empty: the release fails, nothing else is there
  std::vector<WrittenSize> fresh_shape;
  std::vector<Opt> opts;
  WrittenState state;
};

struct WrittenActions {
  std::string id;
  std::vector<int> legal;
  std::optional<int> then;  // none where nothing is legal
  WrittenState state;       // after it
  std::vector<int> legal_after;
};

struct WrittenWalk {
  struct Step {
    std::vector<int> legal;
    int take = 0;
    WrittenState state;
  };
  std::string id;
  std::string error;
  std::vector<Opt> required;
  std::vector<Step> steps;
};

class Recorded {
 public:
  // Reads the graphs of `kernels` and `hot`, whichever is there. NotFound if neither is.
  static absl::StatusOr<Recorded> Open(std::string directory);

  // The kernel's SINK.
  absl::StatusOr<UOp> Graph(const std::string& id, UOpGraph& graph) const;
  // Of all kernels, in order.
  std::vector<std::string> Ids() const;
  // Kernels with an image among their buffers.
  std::vector<std::string> ImageKernels() const;
  // `target`: "cpu", "cuda", "hip". NotFound where the file isn't there. Heuristics include those
  // of `hot`, where one of the two files is enough.
  absl::StatusOr<std::vector<WrittenHeuristics>> Heuristics(absl::string_view target) const;
  absl::StatusOr<std::vector<WrittenActions>> Actions(absl::string_view target) const;
  // The list that indices of `target` count, from 1.
  absl::StatusOr<std::vector<Opt>> ActionList(absl::string_view target) const;
  absl::StatusOr<std::vector<WrittenWalk>> Walks(absl::string_view target) const;

  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::map<std::string, v1::Graph> graphs_;  // by id
};

}  // namespace beamd::conformance

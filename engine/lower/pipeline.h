// The passes from a scheduled kernel to a linear program, in order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/kernel/kernel.h"
#include "engine/lower/program.h"
#include "engine/uop/uop.h"

namespace beamd {

struct LowerOptions {
  int64_t max_uops = 0;  // of the linear program; 0: no limit but the engine's own
  // A pass of LowerPassNames(): the graph or list after it is printed to `dump_text`.
  std::string dump;
  std::string* dump_text = nullptr;
  // Where given: how long each pass took.
  std::vector<std::pair<absl::string_view, absl::Duration>>* timings = nullptr;
};

// Names that LowerOptions::dump knows, in order: "ast", "index", "collapse", "expand", "narrow",
// "linear".
std::span<const absl::string_view> LowerPassNames();

// Lowers `kernel` for its target. The program's nodes live in `graph`, which starts empty.
// ResourceExhausted: over max_uops. InvalidArgument, Unimplemented: as the passes say.
absl::StatusOr<LinearProgram> Lower(const Kernel& kernel, UOpGraph& graph,
                                    const LowerOptions& options);

}  // namespace beamd

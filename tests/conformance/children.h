// Work done in child processes, so that what crashes or hangs costs itself.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace beamd::conformance {

// Calls done(i, what) for i of [0, count) in order, where `what` is what work(i) returned in a
// child, or how that died, or that it took over `seconds` of the processor's time. `start` makes
// `work` in each child. A child does some dozens, since starting one costs LLVM's start.
absl::Status InChildren(size_t count, unsigned seconds,
                        const std::function<std::function<std::string(size_t)>()>& start,
                        const std::function<void(size_t, const std::string&)>& done);

}  // namespace beamd::conformance

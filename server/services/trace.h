// W3C trace context: the id that every request, job and frame carries.
// Spec: https://www.w3.org/TR/trace-context/ (version 00).
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace beamd {

struct Trace {
  std::string id;      // 32 lower-case hexadecimal digits, not all 0
  std::string span;    // 16, ours
  std::string parent;  // 16, the caller's; empty where it named none
  bool sampled = true;

  // The `traceparent` that answers carry.
  std::string Header() const;
};

// The trace that a client's `traceparent` names, or a new one where it has none or a malformed one;
// with a span of our own.
Trace TraceFromHeader(absl::string_view header);

}  // namespace beamd

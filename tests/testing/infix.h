// Index expressions as text, for tests: "(a + 3) // 4 < b", printed without spaces and with every
// parenthesis.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/uop/uop.h"

namespace beamd {

struct InfixRange {
  int64_t min, max;  // inclusive
};

// Reads `text`. Names are int64 variables with the ranges given; others lie in [-20, 20].
// Operators: | & < != >= + - * // % ! and max(a, b), where(c, a, b). Dies of a syntax error.
UOp ParseInfix(UOpGraph& graph, absl::string_view text,
               const std::map<std::string, InfixRange>& ranges = {});

std::string ToInfix(UOp u);

}  // namespace beamd

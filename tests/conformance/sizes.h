// Sizes as the corpus writes them, numbers or text such as "(start_pos+1)", against ours: by value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/shape/sint.h"
#include "engine/shape/view.h"
#include "engine/uop/uop.h"

namespace beamd::conformance {

using WrittenSize = std::variant<int64_t, std::string>;

// The value of an expression over + - * // % and names; nullopt where it isn't one, a name has no
// value or a divisor is zero. Division rounds down.
std::optional<int64_t> Evaluate(absl::string_view text,
                                const std::map<std::string, int64_t>& values);

// Equal in number, and each equal where every variable of `sink`'s graph is at its minimum, in the
// middle, and at its maximum.
bool SameSizes(const std::vector<WrittenSize>& written, const Shape& ours, UOp sink);

std::string ToString(const std::vector<WrittenSize>& sizes);
std::string ToString(const Shape& shape);

}  // namespace beamd::conformance

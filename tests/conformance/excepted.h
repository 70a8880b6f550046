// excepted.txt, built in: the program runs from anywhere.
#pragma once

#include "absl/strings/string_view.h"

namespace beamd::conformance {

extern const absl::string_view kExcepted;

}  // namespace beamd::conformance

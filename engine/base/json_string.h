// A text as JSON writes it: in quotes, with what JSON doesn't allow in them escaped.
// Spec: RFC 8259, section 7. Bytes above 0x7F pass: the text is UTF-8.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace beamd {

std::string JsonString(absl::string_view text);

}  // namespace beamd

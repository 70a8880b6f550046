#include "engine/base/error_detail.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace beamd {
namespace {

// One `key=value` a line; values of text are C-escaped, so that a line is a field.
std::string Encode(const ErrorDetail& detail) {
  std::string text = absl::StrCat("reason=", absl::CEscape(detail.reason), "\n");
  if (detail.node) absl::StrAppend(&text, "node=", *detail.node, "\n");
  if (!detail.field.empty()) absl::StrAppend(&text, "field=", absl::CEscape(detail.field), "\n");
  if (detail.limit) absl::StrAppend(&text, "limit=", *detail.limit, "\n");
  if (detail.value) absl::StrAppend(&text, "value=", *detail.value, "\n");
  return text;
}

std::optional<ErrorDetail> Decode(absl::string_view text) {
  ErrorDetail detail;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    int64_t number = 0;
    bool ok = true;
    if (field.first == "reason") {
      ok = absl::CUnescape(field.second, &detail.reason);
    } else if (field.first == "field") {
      ok = absl::CUnescape(field.second, &detail.field);
    } else if ((ok = absl::SimpleAtoi(field.second, &number))) {
      if (field.first == "node") detail.node = number;
      if (field.first == "limit") detail.limit = number;
      if (field.first == "value") detail.value = number;
    }
    if (!ok) return std::nullopt;
  }
  return detail;
}

}  // namespace

absl::Status WithDetail(absl::Status status, const ErrorDetail& detail) {
  status.SetPayload(kErrorDetailUrl, absl::Cord(Encode(detail)));
  return status;
}

absl::Status InvalidArgument(absl::string_view message, const ErrorDetail& detail) {
  return WithDetail(absl::InvalidArgumentError(message), detail);
}

std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorDetailUrl);
  if (!payload) return std::nullopt;
  return Decode(std::string(*payload));
}

}  // namespace beamd

// Moving absl::Status through a function without ceremony, and checking invariants.
//
//   BEAMD_RETURN_IF_ERROR(store.Put(key, value));
//   BEAMD_ASSIGN_OR_RETURN(Kernel kernel, Kernel::Create(ast, caps));
//   BEAMD_CHECK(lanes > 0, "a vector has at least one lane");
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace beamd {

// Prints where, which condition and why to stderr, then aborts. For broken invariants only: a
// client's mistake is a Status.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              absl::string_view message);

}  // namespace beamd

#define BEAMD_CHECK(condition, message)                                                \
  do {                                                                                 \
    if (!(condition)) ::beamd::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)

#define BEAMD_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                     \
    if (absl::Status beamd_status = (expression); !beamd_status.ok()) return beamd_status; \
  } while (false)

#define BEAMD_CONCAT_INNER(a, b) a##b
#define BEAMD_CONCAT(a, b) BEAMD_CONCAT_INNER(a, b)

#define BEAMD_ASSIGN_OR_RETURN(lhs, expression) \
  BEAMD_ASSIGN_OR_RETURN_IMPL(BEAMD_CONCAT(beamd_status_or_, __LINE__), lhs, expression)
#define BEAMD_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expression) \
  auto tmp = (expression);                                \
  if (!tmp.ok()) return std::move(tmp).status();          \
  lhs = *std::move(tmp)

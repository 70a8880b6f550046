// Status macros of this folder, which sees nothing of the engine and its own.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BEAMD_THIN_CONCAT_(a, b) a##b
#define BEAMD_THIN_CONCAT(a, b) BEAMD_THIN_CONCAT_(a, b)

#define BEAMD_THIN_RETURN_IF_ERROR(expr)                          \
  do {                                                            \
    if (absl::Status thin_status_ = (expr); !thin_status_.ok()) { \
      return thin_status_;                                        \
    }                                                             \
  } while (false)

#define BEAMD_THIN_ASSIGN_OR_RETURN(lhs, expr) \
  BEAMD_THIN_ASSIGN_OR_RETURN_(BEAMD_THIN_CONCAT(thin_result_, __LINE__), lhs, expr)
#define BEAMD_THIN_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return std::move(result).status();  \
  lhs = *std::move(result)

#include "engine/search/pipeline.h"

#include <iterator>

namespace beamd {

absl::string_view Name(Failure failure) {
  static constexpr absl::string_view kNames[] = {
      "none",          "illegal_opt",    "lowering",
      "too_many_uops", "compile_error",  "compile_timeout",
      "compile_crash", "compile_memory", "too_much_compute",
      "duplicate",     "run_timeout",    "run_crash",
      "invalid_time",  "wrong_answer",   "cancelled",
      "run_memory",    "unavailable"};
  static_assert(std::size(kNames) == kFailureCount);
  return kNames[static_cast<int>(failure)];
}

Failure CompileFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return Failure::kTooManyUops;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return Failure::kLowering;
    default:
      return Failure::kCompileError;
  }
}

}  // namespace beamd

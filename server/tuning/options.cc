#include "server/tuning/options.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Wider beams than this compile for days; it also keeps a typing error from eating the memory.
constexpr int64_t kWidthMax = 1024;
constexpr int64_t kTimeoutMaxSeconds = 3600;

absl::Status CheckAtMost(absl::string_view field, int64_t value, int64_t limit) {
  if (value <= limit) return absl::OkStatus();
  return InvalidArgument(absl::StrCat("search.", field, " is ", value, ", at most ", limit),
                         {.reason = "OPTION_OUT_OF_RANGE",
                          .field = absl::StrCat("search.", field),
                          .limit = limit,
                          .value = value});
}

bool HasValidNanos(const google::protobuf::Duration& duration) {
  return duration.nanos() >= 0 && duration.nanos() < 1'000'000'000;
}

absl::Status Check(const v1::SearchOptions& o) {
  BEAMD_RETURN_IF_ERROR(CheckAtMost("width", o.width(), kWidthMax));
  BEAMD_RETURN_IF_ERROR(CheckAtMost("tc", o.tc(), 2));
  BEAMD_RETURN_IF_ERROR(CheckAtMost("tc_opt", o.tc_opt(), 2));
  BEAMD_RETURN_IF_ERROR(CheckAtMost("parallel", o.parallel(), kWidthMax));
  BEAMD_RETURN_IF_ERROR(
      CheckAtMost("compile_timeout", o.compile_timeout().seconds(), kTimeoutMaxSeconds));
  if (o.compile_timeout().seconds() < 0 || !HasValidNanos(o.compile_timeout()) ||
      (o.compile_timeout().seconds() == 0 && o.compile_timeout().nanos() == 0)) {
    return InvalidArgument("search.compile_timeout must be above 0, and its nanos below a second",
                           {.reason = "OPTION_OUT_OF_RANGE", .field = "search.compile_timeout"});
  }
  if (!std::isfinite(o.min_progress_us()) || o.min_progress_us() < 0) {
    return InvalidArgument("search.min_progress_us must be finite and not below 0",
                           {.reason = "OPTION_OUT_OF_RANGE", .field = "search.min_progress_us"});
  }
  return absl::OkStatus();
}

}  // namespace

v1::SearchOptions DefaultSearchOptions() {
  v1::SearchOptions o;
  o.set_width(2);
  o.mutable_compile_timeout()->set_seconds(10);
  o.set_uops_max(3000);
  o.set_upcast_max(256);
  o.set_local_max(1024);
  o.set_min_progress_us(0.01);
  o.set_padto(true);
  o.set_max_global_size(65536);
  o.set_tc(1);
  o.set_tc_opt(2);
  o.set_nolocals(false);
  o.set_estimate(true);
  o.set_clear_cache(false);
  o.set_noopt(false);
  o.set_seed(0);
  o.set_parallel(0);
  o.set_strict(false);
  o.set_debug(0);
  o.set_allow_tf32(false);
  return o;
}

absl::StatusOr<v1::SearchOptions> ResolveOptions(const v1::SearchOptions& request,
                                                 const v1::SearchOptions& defaults) {
  v1::SearchOptions options = defaults;
  // A duration is replaced, not merged field by field.
  if (request.has_compile_timeout()) options.clear_compile_timeout();
  options.MergeFrom(request);
  BEAMD_RETURN_IF_ERROR(Check(options));
  return options;
}

absl::StatusOr<absl::Duration> ResolveBudget(const v1::TuneRequest& request) {
  if (!request.has_budget()) return absl::InfiniteDuration();
  const google::protobuf::Duration& budget = request.budget();
  if (budget.seconds() < 0 || !HasValidNanos(budget)) {
    return InvalidArgument("budget must not be below 0, and its nanos below a second",
                           {.reason = "BUDGET", .field = "budget"});
  }
  return absl::Seconds(budget.seconds()) + absl::Nanoseconds(budget.nanos());
}

TargetCaps SearchedCaps(TargetCaps caps, const v1::SearchOptions& options) {
  caps.tensor_cores = static_cast<TensorCoreUse>(options.tc());
  caps.allow_tf32 = options.allow_tf32();
  return caps;
}

v1::SearchOptions KeyOptions(v1::SearchOptions options) {
  options.clear_parallel();
  options.clear_strict();
  options.clear_debug();
  return options;
}

}  // namespace beamd

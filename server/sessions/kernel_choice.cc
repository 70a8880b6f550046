#include "server/sessions/kernel_choice.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "server/workers/codec.h"
#include "spdlog/spdlog.h"

namespace beamd {

absl::StatusOr<KernelChoice> KernelChooser::Choose(const internal::PlanKernel& kernel,
                                                   const std::string& device, v1::OptsPolicy policy,
                                                   v1::MatchPolicy match, const Caller& caller) {
  const bool tunes = policy == v1::OPTS_POLICY_TUNE;
  if (tunes) {
    v1::TuneRequest request;
    *request.mutable_graph() = kernel.graph();
    request.mutable_device()->set_id(device);
    request.set_match(match);
    request.set_mode(v1::TUNE_MODE_NOW);
    request.set_label(kernel.name());
    absl::StatusOr<Tuner::Answer> answer = tuner_.Tune(request, caller, [] {});
    if (answer.ok() && answer->result && answer->result->match() != v1::MATCH_HEURISTIC) {
      return KernelChoice{.opts = answer->result->record().opts(),
                          .match = answer->result->match()};
    }
    // What can't be tuned now runs all the same.
    return KernelChoice{.opts = kernel.heuristic_opts()};
  }
  v1::LookupQuery query;
  *query.mutable_graph() = kernel.graph();
  query.mutable_device()->set_id(device);
  // What the policy would not call an answer may still be the best to be had at once.
  const bool only = policy == v1::OPTS_POLICY_LOOKUP_ONLY;
  query.set_match(only ? match : std::max(match, v1::MATCH_POLICY_SAME_ARCH));
  const absl::StatusOr<v1::LookupAnswer> answer = tuner_.Lookup(query);
  if (answer.ok() && answer->has_hit()) {
    return KernelChoice{.opts = answer->hit().record().opts(), .match = answer->hit().match()};
  }
  if (!only) return KernelChoice{.opts = kernel.heuristic_opts()};
  if (!answer.ok()) return answer.status();
  return WithDetail(absl::NotFoundError(absl::StrCat("kernel ", kernel.name(), " (", kernel.hash(),
                                                     ") was never tuned here")),
                    {.reason = "NO_RECORD", .field = "opts"});
}

bool KernelChooser::IsTuned(const internal::PlanKernel& kernel, const std::string& device) {
  v1::LookupQuery query;
  *query.mutable_graph() = kernel.graph();
  query.mutable_device()->set_id(device);
  query.set_match(v1::MATCH_POLICY_STRICT);
  const absl::StatusOr<v1::LookupAnswer> answer = tuner_.Lookup(query);
  return answer.ok() && answer->has_hit();
}

Digest KernelChooser::ImageKey(const internal::PlanKernel& kernel, const WireOpts& opts,
                               const TuningDevice& device) const {
  Hasher hasher;
  hasher.Add("beamd image 1")
      .Add(build_)
      .Add(device.environment.llvm())
      .Add(device.environment.codegen_epoch())
      .Add(ToFrame(device.caps).SerializeAsString())
      .Add(kernel.hash())
      .Add(static_cast<uint64_t>(opts.size()));
  for (const v1::Opt& opt : opts) {
    hasher.Add(static_cast<uint64_t>(opt.op()))
        .Add(opt.has_axis() ? 1 : 0)
        .Add(static_cast<uint64_t>(opt.axis()))
        .Add(opt.has_amount() ? 1 : 0)
        .Add(static_cast<uint64_t>(opt.amount()));
  }
  return hasher.Finish();
}

std::optional<internal::Image> KernelChooser::FindImage(const internal::PlanKernel& kernel,
                                                        const WireOpts& opts,
                                                        const TuningDevice& device) {
  const absl::StatusOr<std::optional<std::string>> bytes =
      store_.FindImage(ImageKey(kernel, opts, device));
  internal::Image image;
  if (!bytes.ok() || !*bytes || !image.ParseFromString(**bytes)) return std::nullopt;
  return image;
}

void KernelChooser::PutImage(const internal::PlanKernel& kernel, const WireOpts& opts,
                             const TuningDevice& device, const internal::Image& image) {
  const absl::Status status =
      store_.PutImage(ImageKey(kernel, opts, device), image.SerializeAsString());
  if (!status.ok()) spdlog::warn("kernel={} image not kept: {}", kernel.name(), status.ToString());
}

}  // namespace beamd

#include "server/workers/runner_handler.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/measure.h"
#include "devices/registry.h"
#include "engine/base/status.h"
#include "engine/llvm/epoch.h"
#include "engine/search/pipeline.h"
#include "server/workers/checked_graph.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

absl::string_view KindName(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu:
      return "cpu";
    case TargetKind::kCuda:
      return "cuda";
    case TargetKind::kHip:
      return "hip";
  }
  return "";
}

}  // namespace

absl::Status RunnerHandler::Start(internal::Hello& hello) {
  BEAMD_ASSIGN_OR_RETURN(device_, OpenDevice(device_name_));
  runner_.emplace(*device_);
  const DeviceInfo& info = device_->info();
  internal::DeviceDescription& description = *hello.mutable_device();
  description.set_id(device_name_);
  *description.mutable_caps() = ToFrame(device_->caps());
  v1::Environment& environment = *description.mutable_environment();
  // What is recorded of an emulated GPU must not be served to a real one: no policy matches across
  // kinds.
  environment.set_kind(
      absl::StrCat(info.emulated ? "emulated-" : "", KindName(device_->caps().kind)));
  environment.set_vendor(info.vendor);
  environment.set_model(info.model);
  environment.set_arch(info.arch);
  environment.set_features(info.features);
  environment.set_units(static_cast<uint32_t>(info.units));
  if (device_->caps().kind != TargetKind::kCpu) environment.set_memory_bytes(info.memory_bytes);
  environment.set_driver(info.driver);
  environment.set_clock_limit_mhz(static_cast<uint32_t>(info.clock_limit_mhz));
  environment.set_memory_clock_limit_mhz(static_cast<uint32_t>(info.memory_clock_limit_mhz));
  environment.set_llvm(LlvmVersion());
  environment.set_codegen_epoch(kCodegenEpoch);
  environment.set_measurement_version(kMeasurementVersion);
  return absl::OkStatus();
}

absl::Status RunnerHandler::AddContext(const internal::AddContext& context) {
  auto added = std::make_unique<Context>();
  BEAMD_ASSIGN_OR_RETURN(added->sink, CheckedGraph(context.graph(), added->graph));
  added->verify = {.seed = context.seed(), .allow_tf32 = context.caps().allow_tf32()};
  contexts_[context.id()] = std::move(added);
  return absl::OkStatus();
}

void RunnerHandler::DropContext(uint64_t id) {
  contexts_.erase(id);
  runner_->Forget();
}

absl::Status RunnerHandler::Attach(const internal::Attach& attach, int file) {
  if (attach.kind() == internal::Attach::PAGE) {
    BEAMD_ASSIGN_OR_RETURN(page_, RunPage::Open(file));
  } else if (attach.kind() == internal::Attach::TURN) {
    BEAMD_ASSIGN_OR_RETURN(turn_, DeviceTurn::Open(file));
    runner_->set_turn(turn_.get());
  } else {
    return TaskHandler::Attach(attach, file);
  }
  if (turn_ != nullptr) turn_->set_page(page_.get());
  return absl::OkStatus();
}

absl::Status RunnerHandler::Handle(const internal::Frame& request, internal::Frame& reply) {
  if (request.has_time()) {
    Time(request.time(), *reply.mutable_timed());
  } else if (request.has_verify()) {
    Verify(request.verify(), *reply.mutable_verified());
  } else {
    return absl::InvalidArgumentError("a runner was sent neither a timing nor a check");
  }
  if (!device_->Wait().ok()) {
    // Lost for this process; the next one opens it anew.
    reply.set_ends("device");
  } else {
    AddCondition(reply);
  }
  return absl::OkStatus();
}

void RunnerHandler::AddCondition(internal::Frame& reply) {
  if (absl::Now() < condition_due_) return;
  condition_due_ = absl::Now() + absl::Seconds(1);
  const absl::StatusOr<DeviceCondition> condition = device_->Condition();
  if (!condition.ok()) return;
  v1::DeviceCondition& to = *reply.mutable_condition();
  to.set_clock_mhz(static_cast<uint32_t>(condition->clock_mhz));
  to.set_memory_clock_mhz(static_cast<uint32_t>(condition->memory_clock_mhz));
  to.set_temperature_celsius(static_cast<uint32_t>(condition->temperature_celsius));
  to.set_foreign_processes(static_cast<uint32_t>(condition->foreign_processes));
}

void RunnerHandler::Time(const internal::TimeRequest& request, internal::TimeReply& reply) {
  std::vector<KernelImage> images;
  std::vector<const KernelImage*> pointers;
  images.reserve(request.images_size());
  for (const internal::Image& image : request.images()) {
    pointers.push_back(&images.emplace_back(FromFrame(image)));
  }
  MeasureOptions options;
  options.warmups = request.warmups();
  options.rounds = request.rounds();
  if (request.cut_off_s() > 0) options.cut_off_s = request.cut_off_s();
  options.partial = request.max_global_size() > 0;
  options.clear_cache = request.clear_cache();
  if (request.bound_s() > 0) options.bound_s = request.bound_s();
  const TimeDone done = runner_->Time(pointers, options);
  reply.set_failure(static_cast<uint32_t>(done.failure));
  reply.set_failed_image(done.failed_image);
  reply.set_detail(done.detail);
  for (const std::vector<double>& seconds : done.seconds) {
    internal::TimeReply::Series& series = *reply.add_images();
    for (const double s : seconds) series.add_seconds(s);
  }
  reply.set_cut_off(done.cut_off);
  reply.set_spoiled(done.spoiled);
}

void RunnerHandler::Verify(const internal::VerifyRequest& request, internal::VerifyReply& reply) {
  const auto it = contexts_.find(request.context());
  if (it == contexts_.end()) {
    reply.set_failure(static_cast<uint32_t>(Failure::kRunCrash));
    reply.set_detail("the kernel never arrived");
    return;
  }
  const KernelImage image = FromFrame(request.image());
  std::optional<KernelImage> oracle;
  if (request.has_oracle()) oracle = FromFrame(request.oracle());
  const VerifyDone done =
      runner_->Verify(it->second->sink, it->second->verify, image, oracle ? &*oracle : nullptr);
  reply.set_failure(static_cast<uint32_t>(done.failure));
  reply.set_detail(done.detail);
  reply.set_checked(done.checked);
  reply.set_undecided(done.undecided);
  reply.set_method(done.method);
}

}  // namespace beamd

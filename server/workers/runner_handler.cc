#include "server/workers/runner_handler.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "devices/measure.h"
#include "devices/registry.h"
#include "engine/base/status.h"
#include "engine/llvm/epoch.h"
#include "engine/search/pipeline.h"
#include "engine/uop/output_check.h"
#include "engine/uop/wire.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

// An oracle that takes longer than this leaves the check to the evaluator's sample.
constexpr double kLongestOracleSeconds = 10;

// Of an answer that nothing could check in more than one element of a hundred.
constexpr int64_t kMostUndecidedShare = 100;

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

// How long the whole kernel will take, from its first slices.
absl::StatusOr<double> Estimate(Device& device, const Loaded& loaded,
                                std::span<Buffer* const> buffers) {
  MeasureOptions options;
  options.rounds = 1;
  options.warmups = 0;
  BEAMD_ASSIGN_OR_RETURN(const Measurement m, Measure(device, {&loaded, 1}, buffers, options));
  return m.seconds[0].back();
}

}  // namespace

absl::Status RunnerHandler::Start(internal::Hello& hello) {
  BEAMD_ASSIGN_OR_RETURN(device_, OpenDevice(device_name_));
  const DeviceInfo& info = device_->info();
  internal::DeviceDescription& description = *hello.mutable_device();
  description.set_id(device_name_);
  *description.mutable_caps() = ToFrame(device_->caps());
  v1::Environment& environment = *description.mutable_environment();
  environment.set_kind(std::string(KindName(device_->caps().kind)));
  environment.set_vendor(info.vendor);
  environment.set_model(info.model);
  environment.set_arch(info.arch);
  environment.set_features(info.features);
  environment.set_units(static_cast<uint32_t>(info.units));
  if (device_->caps().kind != TargetKind::kCpu) environment.set_memory_bytes(info.memory_bytes);
  environment.set_driver(info.driver);
  environment.set_llvm(LlvmVersion());
  environment.set_codegen_epoch(kCodegenEpoch);
  environment.set_measurement_version(kMeasurementVersion);
  return absl::OkStatus();
}

absl::Status RunnerHandler::AddContext(const internal::AddContext& context) {
  auto added = std::make_unique<Context>();
  BEAMD_ASSIGN_OR_RETURN(added->sink, FromProto(context.graph(), added->graph));
  added->seed = context.seed();
  contexts_[context.id()] = std::move(added);
  return absl::OkStatus();
}

void RunnerHandler::DropContext(uint64_t id) {
  contexts_.erase(id);
  scratch_.reset();
  scratch_key_.clear();
}

absl::Status RunnerHandler::Handle(const internal::Frame& request, internal::Frame& reply) {
  if (request.has_time()) {
    Time(request.time(), *reply.mutable_timed());
    return absl::OkStatus();
  }
  if (request.has_verify()) {
    Verify(request.verify(), *reply.mutable_verified());
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a runner was sent a frame that is neither timing nor a check");
}

absl::StatusOr<ScratchBuffers*> RunnerHandler::Scratch(std::span<const KernelImage::Buffer> buffers,
                                                       uint64_t seed) {
  std::string key = absl::StrCat(seed);
  for (const KernelImage::Buffer& b : buffers) {
    absl::StrAppend(&key, ";", b.slot, ",", static_cast<int>(b.scalar), ",", b.size_elements, ",",
                    b.read ? 1 : 0, b.written ? 1 : 0);
  }
  if (!scratch_ || key != scratch_key_) {
    scratch_.reset();
    BEAMD_ASSIGN_OR_RETURN(scratch_, ScratchBuffers::Create(*device_, buffers, seed));
    scratch_key_ = std::move(key);
  }
  return &*scratch_;
}

void RunnerHandler::Time(const internal::TimeRequest& request, internal::TimeReply& reply) {
  reply.set_failed_image(-1);
  const auto fail = [&](Failure failure, int image, const absl::Status& status) {
    reply.set_failure(static_cast<uint32_t>(failure));
    reply.set_failed_image(image);
    reply.set_detail(std::string(status.message()));
  };
  std::vector<KernelImage> images;
  for (const internal::Image& image : request.images()) images.push_back(FromFrame(image));
  if (images.empty()) return fail(Failure::kRunCrash, -1, absl::InternalError("nothing to time"));
  const absl::StatusOr<ScratchBuffers*> scratch = Scratch(images[0].buffers, 0);
  if (!scratch.ok()) return fail(Failure::kRunCrash, -1, scratch.status());
  std::vector<std::unique_ptr<Executable>> executables;
  std::vector<Loaded> loaded;
  for (const KernelImage& image : images) {
    absl::StatusOr<std::unique_ptr<Executable>> executable = device_->Load(image);
    if (!executable.ok()) {
      return fail(Failure::kRunCrash, static_cast<int>(loaded.size()), executable.status());
    }
    loaded.push_back({executable->get(), &image});
    executables.push_back(*std::move(executable));
  }
  MeasureOptions options;
  options.warmups = request.warmups();
  options.rounds = request.rounds();
  if (request.cut_off_s() > 0) options.cut_off_s = request.cut_off_s();
  options.partial = request.max_global_size() > 0;
  options.clear_cache = request.clear_cache();
  const absl::StatusOr<Measurement> measured =
      Measure(*device_, loaded, (*scratch)->pointers(), options);
  if (!measured.ok()) {
    return fail(absl::IsInternal(measured.status()) ? Failure::kInvalidTime : Failure::kRunCrash,
                -1, measured.status());
  }
  for (const std::vector<double>& seconds : measured->seconds) {
    internal::TimeReply::Series& series = *reply.add_images();
    for (const double s : seconds) series.add_seconds(s);
  }
  reply.set_cut_off(measured->cut_off);
}

absl::Status RunnerHandler::RunWhole(const KernelImage& image, ScratchBuffers& scratch) {
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, device_->Load(image));
  const std::vector<int64_t> variables = MiddleValues(image);
  Launch launch;
  launch.buffers = scratch.pointers();
  launch.variables = variables;
  launch.end = image.slices;
  BEAMD_RETURN_IF_ERROR(scratch.Reset());
  BEAMD_RETURN_IF_ERROR(device_->Run(*executable, launch).status());
  return scratch.CheckGuards();
}

void RunnerHandler::Verify(const internal::VerifyRequest& request, internal::VerifyReply& reply) {
  const auto answer = [&](Failure failure, const std::string& detail) {
    reply.set_failure(static_cast<uint32_t>(failure));
    reply.set_detail(detail);
  };
  const auto it = contexts_.find(request.context());
  if (it == contexts_.end()) return answer(Failure::kRunCrash, "the kernel never arrived");
  const Context& context = *it->second;
  const KernelImage image = FromFrame(request.image());
  const absl::StatusOr<ScratchBuffers*> scratch = Scratch(image.buffers, context.seed);
  if (!scratch.ok()) return answer(Failure::kRunCrash, std::string(scratch.status().message()));

  // The oracle's outputs, by buffer; empty where it can't serve.
  std::vector<std::string> reference(image.buffers.size());
  bool has_reference = false;
  if (request.has_oracle()) {
    const KernelImage oracle = FromFrame(request.oracle());
    const absl::StatusOr<std::unique_ptr<Executable>> executable = device_->Load(oracle);
    if (executable.ok()) {
      const Loaded loaded{executable->get(), &oracle};
      const absl::StatusOr<double> seconds = Estimate(*device_, loaded, (*scratch)->pointers());
      has_reference =
          seconds.ok() && *seconds <= kLongestOracleSeconds && RunWhole(oracle, **scratch).ok();
    }
    for (size_t i = 0; has_reference && i < image.buffers.size(); ++i) {
      if (!image.buffers[i].written) continue;
      absl::StatusOr<std::string> content = (*scratch)->Content(i);
      if (!content.ok()) return answer(Failure::kRunCrash, std::string(content.status().message()));
      reference[i] = *std::move(content);
    }
  }
  if (const absl::Status status = RunWhole(image, **scratch); !status.ok()) {
    return answer(absl::IsOutOfRange(status) ? Failure::kWrongAnswer : Failure::kRunCrash,
                  std::string(status.message()));
  }

  EvalInputs inputs;
  std::vector<std::string> initial(image.buffers.size()), storage(image.buffers.size());
  std::vector<OutputResult> outputs;
  for (size_t i = 0; i < image.buffers.size(); ++i) {
    const KernelImage::Buffer& b = image.buffers[i];
    const auto slot = static_cast<uint64_t>(b.slot);
    const absl::StatusOr<const void*> now = (*scratch)->View(i, storage[i]);
    if (!now.ok()) return answer(Failure::kRunCrash, std::string(now.status().message()));
    if (!b.written) {
      inputs.buffers[slot] = {*now, b.size_elements, b.scalar};
      continue;
    }
    initial[i] = (*scratch)->Initial(i);
    inputs.buffers[slot] = {initial[i].data(), b.size_elements, b.scalar};
    outputs.push_back(
        {slot, b.scalar, b.size_elements, *now, has_reference ? reference[i].data() : nullptr});
  }
  const std::vector<int64_t> values = MiddleValues(image);
  for (size_t i = 0; i < values.size(); ++i) inputs.variables[image.variables[i].name] = values[i];

  OutputCheckOptions options;
  options.seed = context.seed;
  const absl::StatusOr<OutputCheck> check = CheckOutputs(context.sink, inputs, outputs, options);
  if (!check.ok()) return answer(Failure::kNone, std::string(check.status().message()));
  if (!check->equal) return answer(Failure::kWrongAnswer, check->detail);
  reply.set_checked(check->checked);
  reply.set_undecided(check->undecided);
  if (check->undecided * kMostUndecidedShare > check->evaluated && !has_reference) return;
  reply.set_method(has_reference ? "unoptimised" : check->complete ? "evaluator" : "sampled");
}

}  // namespace beamd

#include "server/workers/candidate_runner.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/uop/output_check.h"

namespace beamd {
namespace {

// An oracle that takes longer than this leaves the check to the evaluator's sample.
constexpr double kLongestOracleSeconds = 10;

// Of an answer that nothing could check in more than one element of a hundred.
constexpr int64_t kMostUndecidedShare = 100;

// What a device's error makes of the candidate.
Failure FailureOf(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? Failure::kRunMemory : Failure::kRunCrash;
}

// How long the whole kernel will take, from its first slices.
absl::StatusOr<double> Estimate(Device& device, DeviceTurn* turn, const Loaded& loaded,
                                std::span<Buffer* const> buffers) {
  MeasureOptions options;
  options.turn = turn;
  options.rounds = 1;
  options.warmups = 0;
  BEAMD_ASSIGN_OR_RETURN(const Measurement m, Measure(device, {&loaded, 1}, buffers, options));
  return m.seconds[0].back();
}

}  // namespace

absl::StatusOr<ScratchBuffers*> CandidateRunner::Scratch(
    std::span<const KernelImage::Buffer> buffers, uint64_t seed) {
  std::string key = absl::StrCat(seed);
  for (const KernelImage::Buffer& b : buffers) {
    absl::StrAppend(&key, ";", b.slot, ",", static_cast<int>(b.scalar), ",", b.size_elements, ",",
                    b.read ? 1 : 0, b.written ? 1 : 0);
  }
  if (!scratch_ || key != scratch_key_) {
    scratch_.reset();
    BEAMD_ASSIGN_OR_RETURN(scratch_, ScratchBuffers::Create(device_, buffers, seed));
    scratch_key_ = std::move(key);
  }
  return &*scratch_;
}

TimeDone CandidateRunner::Time(std::span<const KernelImage* const> images,
                               const MeasureOptions& options) {
  TimeDone done;
  const auto fail = [&](Failure failure, int image, const absl::Status& status) {
    done.failure = failure;
    done.failed_image = image;
    done.detail = std::string(status.message());
    return std::move(done);
  };
  if (images.empty()) return fail(Failure::kRunCrash, -1, absl::InternalError("nothing to time"));
  const absl::StatusOr<ScratchBuffers*> scratch = Scratch(images[0]->buffers, 0);
  if (!scratch.ok()) return fail(FailureOf(scratch.status()), -1, scratch.status());
  std::vector<std::unique_ptr<Executable>> executables;
  std::vector<Loaded> loaded;
  for (const KernelImage* const image : images) {
    absl::StatusOr<std::unique_ptr<Executable>> executable = device_.Load(*image);
    if (!executable.ok()) {
      return fail(FailureOf(executable.status()), static_cast<int>(loaded.size()),
                  executable.status());
    }
    loaded.push_back({executable->get(), image});
    executables.push_back(*std::move(executable));
  }
  MeasureOptions in_turn = options;
  in_turn.turn = turn_;
  absl::StatusOr<Measurement> measured = Measure(device_, loaded, (*scratch)->pointers(), in_turn);
  if (!measured.ok()) {
    return fail(
        absl::IsInternal(measured.status()) ? Failure::kInvalidTime : FailureOf(measured.status()),
        -1, measured.status());
  }
  done.seconds = std::move(measured->seconds);
  done.cut_off = measured->cut_off;
  done.spoiled = measured->spoiled;
  return done;
}

absl::Status CandidateRunner::RunWhole(const KernelImage& image, ScratchBuffers& scratch) {
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable, device_.Load(image));
  const std::vector<int64_t> variables = MiddleValues(image);
  Launch launch;
  launch.buffers = scratch.pointers();
  launch.variables = variables;
  launch.end = image.slices;
  BEAMD_RETURN_IF_ERROR(scratch.Reset());
  {
    const DeviceTurnScope turn(turn_);
    BEAMD_RETURN_IF_ERROR(device_.Run(*executable, launch).status());
  }
  BEAMD_RETURN_IF_ERROR(scratch.CheckGuards());
  return scratch.CheckInputs();
}

VerifyDone CandidateRunner::Verify(UOp sink, const VerifyOptions& options, const KernelImage& image,
                                   const KernelImage* oracle) {
  VerifyDone done;
  const auto answer = [&](Failure failure, const std::string& detail) {
    done.failure = failure;
    done.detail = detail;
    return std::move(done);
  };
  const auto refuse = [&](const absl::Status& status) {
    return answer(FailureOf(status), std::string(status.message()));
  };
  const absl::StatusOr<ScratchBuffers*> scratch = Scratch(image.buffers, options.seed);
  if (!scratch.ok()) return refuse(scratch.status());

  // The oracle's outputs, by buffer, where it can serve.
  std::vector<std::unique_ptr<Buffer>> reference;
  bool has_reference = false;
  if (oracle != nullptr) {
    const absl::StatusOr<std::unique_ptr<Executable>> executable = device_.Load(*oracle);
    if (executable.ok()) {
      const Loaded loaded{executable->get(), oracle};
      const absl::StatusOr<double> seconds =
          Estimate(device_, turn_, loaded, (*scratch)->pointers());
      has_reference =
          seconds.ok() && *seconds <= kLongestOracleSeconds && RunWhole(*oracle, **scratch).ok();
    }
    if (has_reference) {
      absl::StatusOr<std::vector<std::unique_ptr<Buffer>>> taken = (*scratch)->TakeWritten();
      if (!taken.ok()) return refuse(taken.status());
      reference = *std::move(taken);
    }
  }
  if (const absl::Status status = RunWhole(image, **scratch); !status.ok()) {
    if (!absl::IsOutOfRange(status)) return refuse(status);
    return answer(Failure::kWrongAnswer, std::string(status.message()));
  }

  EvalInputs inputs;
  inputs.allow_tf32 = options.allow_tf32;
  std::vector<std::string> initial(image.buffers.size()), storage(image.buffers.size()),
      reference_storage(image.buffers.size());
  std::vector<OutputResult> outputs;
  for (size_t i = 0; i < image.buffers.size(); ++i) {
    const KernelImage::Buffer& b = image.buffers[i];
    const auto slot = static_cast<uint64_t>(b.slot);
    const absl::StatusOr<const void*> now = (*scratch)->View(i, storage[i]);
    if (!now.ok()) return refuse(now.status());
    if (!b.written) {
      inputs.buffers[slot] = {*now, b.size_elements, b.scalar};
      continue;
    }
    if (const void* pattern = (*scratch)->Pattern(i); pattern != nullptr) {
      inputs.buffers[slot] = {pattern, b.size_elements, b.scalar, /*uniform=*/true};
    } else {
      initial[i] = (*scratch)->Initial(i);
      inputs.buffers[slot] = {initial[i].data(), b.size_elements, b.scalar};
    }
    OutputResult output{slot, b.scalar, b.size_elements, *now};
    if (has_reference) {
      const absl::StatusOr<const void*> wanted =
          (*scratch)->View(*reference[i], i, reference_storage[i]);
      if (!wanted.ok()) return refuse(wanted.status());
      output.reference = *wanted;
    }
    outputs.push_back(output);
  }
  const std::vector<int64_t> values = MiddleValues(image);
  for (size_t i = 0; i < values.size(); ++i) inputs.variables[image.variables[i].name] = values[i];

  const absl::StatusOr<OutputCheck> check =
      CheckOutputs(sink, inputs, outputs, {.seed = options.seed});
  if (!check.ok()) return answer(Failure::kNone, std::string(check.status().message()));
  if (!check->equal) return answer(Failure::kWrongAnswer, check->detail);
  done.checked = check->checked;
  done.undecided = check->undecided;
  if (check->undecided * kMostUndecidedShare > check->evaluated && !has_reference) return done;
  done.method = has_reference ? "unoptimised" : check->complete ? "evaluator" : "sampled";
  return done;
}

void CandidateRunner::Forget() {
  scratch_.reset();
  scratch_key_.clear();
}

}  // namespace beamd

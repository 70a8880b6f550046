#include "devices/measure.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Long enough that the clock's and the call's cost are below a percent, short enough for thousands
// of candidates.
constexpr double kPartSeconds = 1.5e-3;
constexpr double kShortestSample = 30e-6;
constexpr int64_t kMostRepeats = 1000;
// A first run is cold: only a multiple of the limit says that a warm one would pass it.
constexpr double kColdFactor = 8;

// Of the limit: a kernel alone that takes longer is sampled once.
constexpr double kFarShare = 0.5;

// Of several images, one that takes this many times as long as the fastest, and of whose samples
// one takes this much of the bound, has no more samples than these.
constexpr double kFarBehind = 2;
constexpr double kFarCost = 0.1;
constexpr int kFarRounds = 2;

// A sample that lost more than this share of its time to others is spoiled and taken again, this
// often for one image; then they stand, since the machine is what it is.
constexpr double kLostShare = 0.05;
constexpr double kLostLeast = 20e-6;
constexpr int kRetakes = 3;
// Before a GPU that others use is looked at again.
constexpr absl::Duration kPause = absl::Milliseconds(100);

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// What passed while this thread did not have its core, since some moment: others had it.
double LostSeconds() { return Seconds(CLOCK_MONOTONIC) - Seconds(CLOCK_THREAD_CPUTIME_ID); }

// One image's way through a measurement.
class Sampler {
 public:
  Sampler(Device& device, const Loaded& kernel, std::span<Buffer* const> buffers,
          const MeasureOptions& options)
      : device_(device),
        kernel_(kernel),
        buffers_(buffers),
        options_(options),
        variables_(MiddleValues(*kernel.image)),
        slices_(kernel.image->slices) {}

  // Finds how much of the kernel a sample is. True if it is out already.
  absl::StatusOr<bool> WarmUp() {
    if (slices_ <= 0) {
      part_ = 0;
      return false;
    }
    // One slice, then more, until a part is known that is long enough to tell.
    part_ = options_.partial ? 1 : slices_;
    for (int run = 0; run < 64; ++run) {
      BEAMD_ASSIGN_OR_RETURN(const double took, RunOnce());
      const double whole = took * Scale();
      if (whole > options_.cut_off_s * (run == 0 ? kColdFactor : 1.0) && took > kShortestSample) {
        seconds_ = whole;
        return true;
      }
      if (part_ == slices_ || took >= kPartSeconds) {
        Settle(took);
        if (run + 1 >= options_.warmups) break;
        continue;
      }
      const double grow = std::clamp(kPartSeconds / std::max(took, 1e-7), 2.0, 64.0);
      part_ = std::min<int64_t>(slices_,
                                static_cast<int64_t>(std::ceil(static_cast<double>(part_) * grow)));
    }
    return false;
  }

  // One sample, of the whole kernel. True if it passed the limit.
  absl::StatusOr<bool> Sample(std::vector<double>& samples) {
    if (part_ == 0) {
      samples.push_back(kNothing);
      return false;
    }
    const DeviceTurnScope turn(options_.turn);
    if (options_.clear_cache) BEAMD_RETURN_IF_ERROR(device_.FlushCache(buffers_));
    const int64_t repeats = options_.clear_cache ? 1 : repeats_;
    double took = 0;
    while (true) {
      const bool watched = device_.caps().kind == TargetKind::kCpu && spoiled_ < kRetakes;
      const double before = watched ? LostSeconds() : 0;
      BEAMD_ASSIGN_OR_RETURN(took, RunPart(repeats));
      const double lost = watched ? LostSeconds() - before : 0;
      if (lost <= std::max(kLostLeast, took * kLostShare)) break;
      ++spoiled_;
    }
    const double whole = took * Scale() / static_cast<double>(repeats);
    if (!std::isnormal(whole) || whole <= 0) {
      return absl::InternalError("the device's clock gave a time that is none");
    }
    samples.push_back(whole);
    return whole > options_.cut_off_s;
  }

  double seconds() const { return seconds_; }
  int64_t spoiled() const { return spoiled_; }

 private:
  // A kernel without work takes no time; a positive number keeps ratios finite.
  static constexpr double kNothing = 1e-9;

  double Scale() const { return static_cast<double>(slices_) / static_cast<double>(part_); }

  void Settle(double took) {
    if (took >= kPartSeconds && options_.partial) {
      const double fits = static_cast<double>(part_) * kPartSeconds / took;
      part_ = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(fits)), 1, slices_);
    }
    repeats_ = std::clamp<int64_t>(static_cast<int64_t>(kShortestSample / std::max(took, 1e-9)), 1,
                                   kMostRepeats);
  }

  absl::StatusOr<double> RunOnce() {
    const DeviceTurnScope turn(options_.turn);
    return RunPart(1);
  }

  absl::StatusOr<double> RunPart(int64_t repeats) {
    if (begin_ + part_ > slices_) begin_ = 0;
    Launch launch;
    launch.buffers = buffers_;
    launch.variables = variables_;
    launch.begin = begin_;
    launch.end = begin_ + part_;
    launch.repeats = repeats;
    begin_ += part_;
    BEAMD_ASSIGN_OR_RETURN(const absl::Duration took, device_.Run(*kernel_.executable, launch));
    return absl::ToDoubleSeconds(took);
  }

  Device& device_;
  const Loaded kernel_;
  const std::span<Buffer* const> buffers_;
  const MeasureOptions& options_;
  const std::vector<int64_t> variables_;
  const int64_t slices_;
  int64_t part_ = 1, begin_ = 0, repeats_ = 1;
  double seconds_ = 0;
  int64_t spoiled_ = 0;
};

}  // namespace

std::vector<int64_t> MiddleValues(const KernelImage& image) {
  std::vector<int64_t> values;
  for (const KernelImage::Variable& v : image.variables) {
    values.push_back(
        v.min +
        static_cast<int64_t>((static_cast<uint64_t>(v.max) - static_cast<uint64_t>(v.min)) / 2));
  }
  return values;
}

namespace {

// Which images are so far behind the best that their samples only take the others' time.
std::vector<bool> FarBehind(const std::vector<std::vector<double>>& seconds,
                            const std::vector<double>& costs, double bound_s) {
  const auto least = [](const std::vector<double>& samples) {
    return samples.empty() ? std::numeric_limits<double>::infinity()
                           : *std::min_element(samples.begin(), samples.end());
  };
  double best = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& samples : seconds) best = std::min(best, least(samples));
  std::vector<bool> far(seconds.size());
  for (size_t i = 0; i < far.size(); ++i) {
    far[i] = least(seconds[i]) > best * kFarBehind &&
             costs[i] > bound_s * kFarCost * static_cast<double>(seconds[i].size());
  }
  return far;
}

absl::StatusOr<Measurement> MeasureBatch(Device& device, std::span<const Loaded> kernels,
                                         std::span<Buffer* const> buffers,
                                         const MeasureOptions& options) {
  Measurement result;
  result.seconds.resize(kernels.size());
  std::vector<Sampler> samplers;
  for (const Loaded& kernel : kernels) {
    samplers.emplace_back(device, kernel, buffers, options);
    BEAMD_ASSIGN_OR_RETURN(const bool out, samplers.back().WarmUp());
    if (!out) continue;
    result.seconds[samplers.size() - 1].push_back(samplers.back().seconds());
    result.cut_off = true;
  }
  std::vector<double> costs(samplers.size(), 0);  // what sampling an image took altogether
  std::vector<bool> far(samplers.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < samplers.size(); ++i) {
      if (result.cut_off || (far[i] && round >= kFarRounds)) continue;
      const double start = Seconds(CLOCK_MONOTONIC);
      BEAMD_ASSIGN_OR_RETURN(const bool out, samplers[i].Sample(result.seconds[i]));
      costs[i] += Seconds(CLOCK_MONOTONIC) - start;
      // A slow round may be the machine's fault; with others beside it only the caller judges.
      result.cut_off |= out && samplers.size() == 1;
    }
    // Far from the best already: more samples would only tell how far.
    if (samplers.size() == 1 && !result.cut_off &&
        result.seconds[0].back() > options.cut_off_s * kFarShare) {
      break;
    }
    if (samplers.size() > 1) far = FarBehind(result.seconds, costs, options.bound_s);
    // Long runs vary little: past four times the bound one more says nothing.
    double spent = 0;
    for (size_t i = 0; i < costs.size(); ++i) spent += far[i] ? 0 : costs[i];
    const bool enough = spent > options.bound_s * (round + 1 >= 3 ? 1 : 4);
    if (result.cut_off || enough) break;
  }
  for (const Sampler& sampler : samplers) result.spoiled += sampler.spoiled();
  return result;
}

}  // namespace

absl::StatusOr<Measurement> Measure(Device& device, std::span<const Loaded> kernels,
                                    std::span<Buffer* const> buffers,
                                    const MeasureOptions& options) {
  int spoiled = 0;
  while (true) {
    // What is there already would spoil the batch for certain.
    while (spoiled < kRetakes && device.Disturbed()) {
      ++spoiled;
      absl::SleepFor(kPause);
    }
    BEAMD_ASSIGN_OR_RETURN(Measurement result, MeasureBatch(device, kernels, buffers, options));
    if (spoiled >= kRetakes || !device.Disturbed()) {
      result.spoiled += spoiled;
      return result;
    }
    ++spoiled;
  }
}

absl::StatusOr<std::vector<double>> LeastOfRuns(Device& device, std::span<const KernelImage> images,
                                                int runs) {
  std::vector<double> least;
  if (images.empty()) return least;
  BEAMD_ASSIGN_OR_RETURN(const ScratchBuffers scratch,
                         ScratchBuffers::Create(device, images[0].buffers, 0));
  std::vector<std::unique_ptr<Executable>> executables;
  std::vector<Loaded> loaded;
  for (const KernelImage& image : images) {
    BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable, device.Load(image));
    loaded.push_back({executable.get(), &image});
    executables.push_back(std::move(executable));
  }
  MeasureOptions options;
  options.rounds = runs;
  options.partial = false;
  options.bound_s = std::numeric_limits<double>::infinity();
  BEAMD_ASSIGN_OR_RETURN(const Measurement m, Measure(device, loaded, scratch.pointers(), options));
  for (const std::vector<double>& seconds : m.seconds) {
    least.push_back(*std::min_element(seconds.begin(), seconds.end()));
  }
  return least;
}

}  // namespace beamd

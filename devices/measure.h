// How long kernels take on a device, believably and without wasting the device's time.
//
// A sample is a number of slices of the outermost loop, scaled to all of them: as many as fill a
// millisecond or two, another part of the kernel each time so that a part that stays in the cache
// doesn't flatter; or several launches of a kernel that is over in microseconds. A candidate that
// is certain to be slower than `cut_off` is left after the first sample that says so. Of several
// images, one that is far behind and long has two samples, so that the bound is the others'.
//
// A sample that something else slowed is taken again. On a CPU that is seen: the thread waited for
// its core; where that doesn't end, what the device tells is the time that the thread had. On a GPU
// its management library is asked before and after a batch, which is all samples of a call, and the
// batch is taken again (Device::Disturbed).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/device.h"
#include "devices/device_turn.h"
#include "devices/scratch.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

// Rises when times of before and after can't be compared.
inline constexpr uint32_t kMeasurementVersion = 1;

struct MeasureOptions {
  int warmups = 1;
  int rounds = 3;  // samples an image, at most
  // Seconds a whole kernel; slower candidates are left early, and one past half of it is sampled
  // once.
  double cut_off_s = std::numeric_limits<double>::infinity();
  bool partial = true;  // a part of a long kernel will do
  bool clear_cache = false;
  // Sampling ends after three rounds that took this long altogether, or after any that took four
  // times as long.
  double bound_s = 0.1;
  // Taken for each sample where others run kernels on the device too. It outlives the measurement.
  DeviceTurn* turn = nullptr;
};

struct Measurement {
  std::vector<std::vector<double>> seconds;  // an image, a round; whole kernels
  bool cut_off = false;
  // Samples that were taken again; batches that were, or that waited for a device to be free.
  int64_t spoiled = 0;
};

struct Loaded {
  const Executable* executable = nullptr;
  const KernelImage* image = nullptr;
};

// The images belong to one kernel and share its buffers; with several, rounds are interleaved.
// Variables take the middle of their bounds. Internal where a time isn't positive and finite; the
// device's own errors.
absl::StatusOr<Measurement> Measure(Device& device, std::span<const Loaded> kernels,
                                    std::span<Buffer* const> buffers,
                                    const MeasureOptions& options);

// (min + max) / 2 of each, as the seeds take them.
std::vector<int64_t> MiddleValues(const KernelImage& image);

// Least of `runs` warm whole runs of each image, interleaved, nothing flushed.
absl::StatusOr<std::vector<double>> LeastOfRuns(Device& device, std::span<const KernelImage> images,
                                                int runs);

}  // namespace beamd

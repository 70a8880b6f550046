#include "devices/launch.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

absl::Status CheckSize(const KernelImage::Buffer& want, size_t size_bytes) {
  const auto bytes = static_cast<uint64_t>(want.size_elements) * SizeBytes(want.scalar);
  if (size_bytes >= bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("slot ", want.slot, " needs ", bytes, " bytes, its buffer has ", size_bytes));
}

}  // namespace

absl::Status CheckVariable(const KernelImage& image, size_t index, int64_t value) {
  if (index >= image.variables.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the launch has no variable ", index));
  }
  const KernelImage::Variable& v = image.variables[index];
  if (value >= v.min && value <= v.max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(v.name, " = ", value, " is outside [", v.min, ", ", v.max, "]"));
}

absl::Status CheckArgument(const KernelImage& image, size_t index, const Buffer& buffer,
                           size_t offset_bytes) {
  if (index >= image.buffers.size() || offset_bytes % kWindowAlignment != 0 ||
      offset_bytes > buffer.size_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", index, " of the launch can't be at byte ", offset_bytes));
  }
  return CheckSize(image.buffers[index], buffer.size_bytes() - offset_bytes);
}

absl::Status CheckLaunch(const KernelImage& image, const Launch& launch) {
  if (launch.buffers.size() != image.buffers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the kernel takes ", image.buffers.size(),
                                                   " buffers, not ", launch.buffers.size()));
  }
  for (size_t i = 0; i < image.buffers.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(CheckSize(image.buffers[i], launch.buffers[i]->size_bytes()));
  }
  if (launch.variables.size() != image.variables.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the kernel takes ", image.variables.size(),
                                                   " variables, not ", launch.variables.size()));
  }
  for (size_t i = 0; i < image.variables.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(CheckVariable(image, i, launch.variables[i]));
  }
  if (launch.begin < 0 || launch.begin > launch.end || launch.end > image.slices) {
    return absl::InvalidArgumentError(
        absl::StrCat("slices [", launch.begin, ", ", launch.end, ") of ", image.slices));
  }
  if (launch.repeats < 1) return absl::InvalidArgumentError("repeats must be at least 1");
  return absl::OkStatus();
}

absl::Status CheckWholeLaunch(const KernelImage& image, const Launch& launch) {
  BEAMD_RETURN_IF_ERROR(CheckLaunch(image, launch));
  if (launch.begin == 0 && launch.end == image.slices && launch.repeats == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a prepared launch is of all slices, once");
}

absl::Status CheckWindow(const Buffer& parent, size_t offset_bytes, size_t size_bytes) {
  if (offset_bytes % kWindowAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a window at byte ", offset_bytes,
                                                   ", which is no multiple of ", kWindowAlignment));
  }
  if (offset_bytes > parent.size_bytes() || size_bytes > parent.size_bytes() - offset_bytes) {
    return absl::OutOfRangeError(absl::StrCat("a window of bytes [", offset_bytes, ", +",
                                              size_bytes, ") of a buffer of ",
                                              parent.size_bytes()));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(size_t size_bytes, size_t offset_bytes, size_t count_bytes) {
  if (offset_bytes <= size_bytes && count_bytes <= size_bytes - offset_bytes) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(
      absl::StrCat("bytes [", offset_bytes, ", +", count_bytes, ") of a buffer of ", size_bytes));
}

}  // namespace beamd

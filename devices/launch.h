// Whether a launch fits the image that it is of: the same for every device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "devices/device.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

// InvalidArgument where the buffers (their number or sizes), the variables, the slices or the
// repeats don't fit.
absl::Status CheckLaunch(const KernelImage& image, const Launch& launch);
// The same, and it is of all slices, once.
absl::Status CheckWholeLaunch(const KernelImage& image, const Launch& launch);
// InvalidArgument unless argument `index` of the image can be `buffer` from `offset_bytes` on.
absl::Status CheckArgument(const KernelImage& image, size_t index, const Buffer& buffer,
                           size_t offset_bytes);
// InvalidArgument unless variable `index` of the image can have this value.
absl::Status CheckVariable(const KernelImage& image, size_t index, int64_t value);
// As Device::View says of a window.
absl::Status CheckWindow(const Buffer& parent, size_t offset_bytes, size_t size_bytes);
// OutOfRange where bytes [offset, offset + count) don't lie in a buffer of this size.
absl::Status CheckRange(size_t size_bytes, size_t offset_bytes, size_t count_bytes);

}  // namespace beamd

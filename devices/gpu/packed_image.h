// An image as bytes that say themselves how long they are: what a driver library that runs bitcode
// (devices/fake) is given in place of what a real one loads, which is told no length either.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

std::string PackImage(const KernelImage& image);

// `packed` points to what PackImage made. InvalidArgument where it begins otherwise, or isn't whole.
absl::StatusOr<KernelImage> UnpackImage(const void* packed);

}  // namespace beamd

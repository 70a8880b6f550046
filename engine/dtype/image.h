// Images: buffers of texels of four elements, row by row, that kernels read and write as float32.
//
// Spec: the wire form's DType::image_shape; tinygrad 0.10.0 dtype.py, ImageDType. Differs: a side
// is at most 65535 texels.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "engine/dtype/dtype.h"

namespace beamd {

// An image of `height` x `width` texels of float16 or float32; nothing where no image is that size.
constexpr std::optional<DType> ImageOf(Scalar texel, int64_t height, int64_t width) {
  constexpr int64_t kMost = std::numeric_limits<uint16_t>::max();
  if (height < 1 || width < 1 || height > kMost || width > kMost) return std::nullopt;
  DType image = DType::Pointer(texel, AddressSpace::kGlobal);
  image.image_height = static_cast<uint16_t>(height);
  image.image_width = static_cast<uint16_t>(width);
  return image;
}

// 0 of what is no image.
constexpr int64_t ImageElements(DType image) {
  return int64_t{4} * image.image_height * image.image_width;
}

// What a load of a buffer gives and a store takes: float32 of an image, whatever its texels are.
constexpr DType ElementOf(DType buffer) {
  return buffer.is_image() ? DType(Scalar::kFloat32) : DType(buffer.scalar, buffer.lanes);
}

}  // namespace beamd

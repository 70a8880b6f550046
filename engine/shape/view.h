// One strided view of a buffer, canonical: stride 0 where an axis has one element or one element
// that isn't masked, no mask where every element is valid. Shapes in elements; immutable values.
//
// Answers to tinygrad 0.10.0 shape/view.py, whose results (which reshapes merge, which need a
// second view) it reproduces.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/shape/sint.h"

namespace beamd {

using Shape = std::vector<SInt>;
// [begin, end) an axis.
using Mask = std::vector<std::pair<SInt, SInt>>;

struct View {
  Shape shape;
  Shape strides;
  SInt offset;
  std::optional<Mask> mask;
  bool contiguous = false;  // offset 0, no mask, row-major strides

  // Canonicalises. Row-major without `strides`.
  static View Create(Shape shape, std::optional<Shape> strides = std::nullopt, SInt offset = 0,
                     std::optional<Mask> mask = std::nullopt);

  // Elements seen, masked ones included.
  SInt size() const;

  // Movement. Arguments must be legal for the shape (checked by callers that face clients).
  View Pad(std::span<const std::pair<SInt, SInt>> amounts) const;
  View Shrink(std::span<const std::pair<SInt, SInt>> ranges) const;
  View Expand(const Shape& new_shape) const;
  View Permute(std::span<const int> order) const;
  View Flip(std::span<const int> axes) const;
  // Multiples of a stride, negative ones flip first (0.10.0: stride()).
  View Stride(std::span<const int64_t> multiples) const;
  // nullopt where one view can't express it.
  std::optional<View> Reshape(const Shape& new_shape) const;
  // This view seen through `outer`, whose row-major positions are this one's elements (0.10.0:
  // this + outer). nullopt where it takes two.
  std::optional<View> Compose(const View& outer) const;
  // The view that undoes this one, if it only permutes and flips elements (0.10.0: invert).
  std::optional<View> Invert(const Shape& out_shape) const;
  // Adjacent axes that one stride can walk merged, axes of size 1 dropped (0.10.0: minify).
  View Minify() const;

  bool operator==(const View&) const = default;
};

// Row-major, 0 on axes of size 1.
Shape StridesForShape(const Shape& shape);
std::string ToString(const View& view);

}  // namespace beamd

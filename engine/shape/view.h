// One strided view of a buffer, canonical: stride 0 where an axis has one element, no mask where
// every element is valid. Shapes in elements; immutable values.
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

  // Canonicalises. Row-major strides if `strides` is empty and the rank isn't 0.
  static View Create(Shape shape, std::optional<Shape> strides = std::nullopt, SInt offset = 0,
                     std::optional<Mask> mask = std::nullopt);

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
  // The view that is `this` looked at through `outer`... i.e. (outer's result indexes this): `*this
  // + outer` of 0.10.0 (View.__add__ with self=*this below, other=outer above). nullopt where it
  // needs two.
  std::optional<View> Compose(const View& outer) const;
  // 0.10.0 View.invert: nullopt where there is none.
  std::optional<View> Invert(const Shape& out_shape) const;
  // With every symbolic value that is proven constant made a number; masks and offsets minimal
  // (0.10.0: minify).
  View Minify() const;

  bool operator==(const View&) const = default;
};

Shape StridesForShape(const Shape& shape);
std::string ToString(const View& view);

}  // namespace beamd

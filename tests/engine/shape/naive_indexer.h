// Movement done element by element, to compare views with.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/shape/shape_tracker.h"

namespace beamd::testing {

// The place of every element of a shape, in row-major order: its index in the buffer, or kMasked.
struct NaiveIndexer {
  static constexpr int64_t kMasked = -1;

  std::vector<int64_t> shape;
  std::vector<int64_t> places;

  static NaiveIndexer FromShape(std::vector<int64_t> shape);
  // By the definition of views: each gives a place or masks, first to last.
  static NaiveIndexer FromViews(std::span<const View> views);

  NaiveIndexer Reshape(std::vector<int64_t> new_shape) const;
  NaiveIndexer Permute(std::span<const int> order) const;
  NaiveIndexer Pad(std::span<const std::pair<int64_t, int64_t>> amounts) const;
  NaiveIndexer Shrink(std::span<const std::pair<int64_t, int64_t>> ranges) const;
  NaiveIndexer Expand(std::vector<int64_t> new_shape) const;
  NaiveIndexer Flip(std::span<const int> axes) const;
  NaiveIndexer Stride(std::span<const int64_t> multiples) const;

  // The largest index + 1.
  int64_t RealSize() const;
  bool operator==(const NaiveIndexer&) const = default;
};

// Calls fn(coordinates, row-major position) for every point of a shape.
template <typename Fn>
void ForEachPoint(std::span<const int64_t> shape, Fn fn) {
  int64_t size = 1;
  for (const int64_t s : shape) size *= s;
  std::vector<int64_t> at(shape.size());
  for (int64_t position = 0; position < size; ++position) {
    fn(at, position);
    for (size_t i = shape.size(); i-- > 0;) {
      if (++at[i] < shape[i]) break;
      at[i] = 0;
    }
  }
}

std::vector<int64_t> Numbers(const Shape& shape);
int64_t Product(std::span<const int64_t> values);

}  // namespace beamd::testing

// How the elements of a kernel's shape address a buffer: views applied first to last, the last
// one's shape is the one seen.
//
// Answers to tinygrad 0.10.0 shape/shapetracker.py and reproduces its results, since which opts are
// legal depends on them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/shape/view.h"
#include "engine/uop/uop.h"

namespace beamd {

// An element's place: index in elements of the buffer (int64), valid a bool expression.
struct IndexedUOps {
  UOp index;
  UOp valid;
};

class ShapeTracker {
 public:
  ShapeTracker() = default;
  explicit ShapeTracker(std::vector<View> views) : views_(std::move(views)) {}
  static ShapeTracker FromShape(const Shape& shape);
  // From a verified VIEW node; its symbolic entries become int64 expressions of the node's graph.
  static ShapeTracker FromUOp(UOp view);
  // A VIEW node in `graph`.
  UOp ToUOp(UOpGraph& graph) const;

  const std::vector<View>& views() const { return views_; }
  const Shape& shape() const { return views_.back().shape; }
  bool contiguous() const { return views_.size() == 1 && views_[0].contiguous; }
  // Whether some view masks elements.
  bool masked() const;
  // Elements seen, masked ones included.
  SInt size() const { return views_.back().size(); }
  // Elements of the buffer that may be touched: the largest valid index + 1, for any value of the
  // variables; 0 if none is valid. Never too small; exact for numbers but for views so entangled
  // that a bounded search leaves a gap. (0.10.0: real_size, which disregards masks.)
  int64_t RealSize() const;

  // Index and validity at the point `idxs` (int64 nodes of `graph`, one an axis, each within its
  // axis), simplified. The index means nothing where valid is false.
  IndexedUOps ToIndexedUOps(UOpGraph& graph, std::span<const UOp> idxs) const;
  // The same for a rank of at least 1.
  IndexedUOps ToIndexedUOps(std::span<const UOp> idxs) const;
  // Stride of each axis where it is one; nullopt where there is none. ignore_valid: also where a
  // mask hangs on the axis. As in 0.10.0, the linear part of an axis counts as its stride even if a
  // division holds the axis as well.
  std::vector<std::optional<SInt>> RealStrides(bool ignore_valid = false) const;
  std::vector<int> UnitStrideAxes(bool ignore_valid = false) const;
  bool AxisIsMasked(int axis) const;

  // Merges the last views where one can express two.
  ShapeTracker Simplify() const;
  ShapeTracker Compose(const ShapeTracker& outer) const;  // 0.10.0: __add__
  std::optional<ShapeTracker> Invert(const Shape& out_shape) const;

  ShapeTracker Pad(std::span<const std::pair<SInt, SInt>> amounts) const;
  ShapeTracker Shrink(std::span<const std::pair<SInt, SInt>> ranges) const;
  ShapeTracker Expand(const Shape& new_shape) const;
  ShapeTracker Permute(std::span<const int> order) const;
  ShapeTracker Flip(std::span<const int> axes) const;
  ShapeTracker Stride(std::span<const int64_t> multiples) const;
  ShapeTracker Reshape(const Shape& new_shape) const;

  bool operator==(const ShapeTracker&) const = default;

 private:
  ShapeTracker WithLast(View last) const;

  std::vector<View> views_;
};

std::string ToString(const ShapeTracker& st);

}  // namespace beamd
